"""What an agent left in its box -> the image that its work is graded in: a fresh one, with its work and none of its
tricks.

    not carried                                          because a grader would
    usr, bin, lib …, etc, and files in / itself          run the agent's programs instead of the system's
    tests, solution, logs/verifier                       find tests and rewards that the agent wrote
    hidden files of homes, __pycache__, conftest.py …    start with what the agent put there

What the image itself has in these places is there in the grader's box too. A task whose work lies in such a place names
it in `artifacts`. In a box of this machine's programs only the task's own folders are carried.

A grader that runs the agent's code in its own process trusts that code; nothing here changes that. No link that the
agent made is followed here.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from openclaw_rl.envs.sandbox.box import Box
from openclaw_rl.envs.tasks.harbor.images import Image
from openclaw_rl.envs.tasks.harbor.placing import SYSTEM_FOLDERS

PUBLISHED = "/logs/artifacts"
"""Where any agent may leave what it delivers."""

_NOT_ITS_OWN = SYSTEM_FOLDERS | {"solution", "tests"}
_STARTERS = frozenset(
    ("__pycache__", ".pytest.ini", "conftest.py", "pytest.ini", "sitecustomize.py", "tox.ini", "usercustomize.py")
)
"""Names that Python and pytest look for by themselves."""


async def carry(box: Box, image: Image, to: Path, *, delivered: Sequence[str], max_bytes: int) -> Image:
    """All that the agent left, but for what a grader would trip over. `to` is an empty folder for it."""
    root = to / "root"
    if image.layers:
        await box.keep_layer(root)
        await asyncio.to_thread(_prune, root, delivered)
        return replace(image, layers=(*image.layers, root))
    for place in image.trees:
        await box.copy_out(place, root / place.strip("/"), max_bytes=max_bytes)
    await asyncio.to_thread(_prune, root, delivered)
    for place, tree in image.trees.items():
        await asyncio.to_thread(_restore, tree, root / place.strip("/"))
    return replace(image, trees={place: root / place.strip("/") for place in image.trees})


async def deliver(box: Box, image: Image, to: Path, *, delivered: Sequence[str], max_bytes: int) -> Image:
    """What the agent was to deliver, and nothing else, in an image that may be another than its own."""
    root = to / "root"
    for path in dict.fromkeys((PUBLISHED, *delivered)):
        there = await box.run('[ -e "$WANTED" ]', timeout_s=10.0, env={"WANTED": path})
        if there.exit_code == 0:
            await box.copy_out(path, root / path.strip("/"), max_bytes=max_bytes)
    await asyncio.to_thread(root.mkdir, exist_ok=True)
    if image.layers:
        return replace(image, layers=(*image.layers, root))
    return replace(image, trees=await asyncio.to_thread(_merged, image, root, to / "trees"))


def _merged(image: Image, over: Path, to: Path) -> dict[str, Path]:
    for place, tree in (*image.trees.items(), *((name, over / name) for name in os.listdir(over))):
        shutil.copytree(tree, to / place.strip("/"), symlinks=True, dirs_exist_ok=True)
    return {f"/{name}": to / name for name in os.listdir(to)}


def _is_unwanted(parts: tuple[str, ...], kind: int) -> bool:
    """`parts` of a path in the box."""
    name, is_plain = parts[-1], stat.S_ISREG(kind) or stat.S_ISLNK(kind)
    is_in_home = parts[:-1] == ("root",) or (len(parts) == 3 and parts[0] == "home")
    return (
        (len(parts) == 1 and (name in _NOT_ITS_OWN or is_plain))
        or parts == ("logs", "verifier")
        or (is_in_home and name.startswith("."))
        or name in _STARTERS
        or name.endswith(".pth")
    )


def _unwanted(root: Path, above: tuple[str, ...] = ()) -> Iterator[Path]:
    """The highest paths below `root`, which is the folder `above` of a box, that are not carried."""
    for entry in sorted(os.scandir(root), key=lambda one: one.name):
        kind = entry.stat(follow_symlinks=False).st_mode
        if _is_unwanted((*above, entry.name), kind):
            yield Path(entry)
        elif stat.S_ISDIR(kind):
            yield from _unwanted(Path(entry), (*above, entry.name))


def _prune(root: Path, delivered: Sequence[str]) -> None:
    aside = root.with_name("aside")
    aside.mkdir()
    saved = {}
    for number, path in enumerate(delivered):
        place = PurePosixPath(path.strip("/"))
        if _is_there(root, place):
            saved[place] = (root / place).rename(aside / str(number))
    for unwanted in list(_unwanted(root)):
        _remove(unwanted)
    for place, kept in saved.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        kept.rename(root / place)


def _restore(tree: Path, carried: Path) -> None:
    """What was not carried is as it was before the agent came, where its folder is still there."""
    for path in _unwanted(tree, (carried.name,)):
        place = path.relative_to(tree)
        if not _is_there(carried, place.parent) or os.path.lexists(carried / place):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, carried / place, symlinks=True)
        else:
            shutil.copy(path, carried / place, follow_symlinks=False)


def _is_there(root: Path, place: Path | PurePosixPath) -> bool:
    """Whether there is something at `place`, without a link on the way to it."""
    on_the_way = (root.joinpath(*place.parts[:depth]) for depth in range(len(place.parts)))
    return os.path.lexists(root / place) and all(
        stat.S_ISDIR(path.lstat().st_mode) for path in on_the_way if os.path.lexists(path)
    )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
