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
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import ParamSpec, TypeVar

from openclaw_rl.envs.sandbox.box import Box
from openclaw_rl.envs.tasks.harbor.images import Image
from openclaw_rl.envs.tasks.harbor.placing import SYSTEM_FOLDERS, lay_over, made_folder
from openclaw_rl.errors import EnvError

PUBLISHED = "/logs/artifacts"
"""Where any agent may leave what it delivers."""

_REWARDS = "/logs/verifier"

_NOT_ITS_OWN = SYSTEM_FOLDERS | {"solution", "tests"}
_STARTERS = frozenset(
    ("__pycache__", ".pytest.ini", "conftest.py", "pytest.ini", "sitecustomize.py", "tox.ini", "usercustomize.py")
)
"""Names that Python and pytest look for by themselves."""

_TELL_LINKS = """
find "$PLACE" -type l -exec sh -c 'for one; do printf "%s$MARK%s$MARK" "$one" "$(readlink "$one")"; done' x {} +
"""

_TELL_KIND = """
if [ -d "$WANTED" ]; then printf folder; elif [ -f "$WANTED" ]; then printf file; fi
"""

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """An image with the agent's work. `left`: what it changed among the system's files, which is not in it."""

    image: Image
    left: tuple[str, ...] = ()


async def carry(box: Box, image: Image, to: Path, *, delivered: Sequence[str], max_bytes: int) -> Carried:
    """All that the agent left, but for what a grader would trip over. `to` is an empty folder for it."""
    root = to / "root"
    if image.layers:
        await box.keep_layer(root)
        left = await _sorted_out(_prune, root, delivered)
        return Carried(image=replace(image, layers=(*image.layers, root)), left=left)
    trees = {place: root / place.strip("/") for place in image.trees}
    for place, carried in trees.items():
        await box.copy_out(place, carried, max_bytes=max_bytes)
        await _sorted_out(_link, carried, place, await _links(box, place))
    await _sorted_out(_prune, root, delivered)
    for place, carried in trees.items():
        await _sorted_out(_restore, image.trees[place], carried)
    return Carried(image=replace(image, trees=trees))


async def deliver(
    box: Box, image: Image, to: Path, *, delivered: Mapping[str, Sequence[str]], max_bytes: int
) -> Carried:
    """What the agent was to deliver, and nothing else, in an image that may be another than its own.

    `delivered`: paths in the box, and the patterns of what is left out below each. A folder takes the place of the
    image's own.
    """
    files, folders = to / "files", to / "folders"
    files.mkdir()
    shown: dict[str, Path] = {}
    wanted = {PUBLISHED: (), **delivered}
    for number, path in enumerate(_outermost(wanted)):
        place = folders / str(number)
        there = await box.run(_TELL_KIND, timeout_s=10.0, env={"WANTED": path})
        if there.output == "folder":
            await box.copy_out(path, place, max_bytes=max_bytes)
            await _sorted_out(_leave_out, place, wanted[path])
            shown[path] = place
        elif there.output == "file":
            await box.copy_out(path, files / path.strip("/"), max_bytes=max_bytes)
    if image.layers:
        return Carried(image=replace(image, layers=(*image.layers, files), trees={**image.trees, **shown}))
    await _sorted_out(_merge, image, files, to / "trees")
    trees = {f"/{name}": to / "trees" / name for name in os.listdir(to / "trees")}
    return Carried(image=replace(image, trees={**trees, **shown}))


def _outermost(paths: Iterable[str]) -> list[str]:
    """Those that lie in no other. Rewards are nobody's to deliver."""
    places = [place for place in map(PurePosixPath, paths) if not place.is_relative_to(_REWARDS)]
    return [str(place) for place in places if not any(other in place.parents for other in places)]


def _leave_out(folder: Path, patterns: Sequence[str]) -> None:
    """As `tar --exclude` does: a pattern may match any end of a path, and its `*` any part of it."""
    if not patterns:
        return
    for path in sorted(folder.rglob("*")):
        if os.path.lexists(path) and _is_meant(path.relative_to(folder).parts, patterns):
            _remove(path)


def _is_meant(parts: tuple[str, ...], patterns: Sequence[str]) -> bool:
    ends = ["/".join(parts[start:]) for start in range(len(parts))]
    return any(fnmatchcase(end, one.removeprefix("./").rstrip("/")) for one in patterns for end in ends)


async def _sorted_out(do: Callable[_Given, _Found], *given: _Given.args, **named: _Given.kwargs) -> _Found:
    try:
        return await asyncio.to_thread(do, *given, **named)
    except OSError as error:  # such as files of other users of the box, where we are not root
        raise EnvError(f"what the agent left cannot be prepared for its grader: {error}") from None


def _merge(image: Image, over: Path, to: Path) -> None:
    to.mkdir()
    for place, tree in image.trees.items():
        lay_over(tree, made_folder(to, place))
    lay_over(over, to)


async def _links(box: Box, place: str) -> list[str]:
    """Links below `place` and what they say, by turns: what is copied out of a box has none that are absolute."""
    mark = secrets.token_hex(16)  # which no name of the agent's can hold
    told = await box.run(_TELL_LINKS, timeout_s=60.0, env={"PLACE": place, "MARK": mark})
    if told.exit_code != 0 or told.is_cut:
        raise EnvError(f"the links in {place} cannot be told: {told.output[-200:]}")
    return told.output.split(mark)[:-1]


def _link(carried: Path, place: str, told: Sequence[str]) -> None:
    for path, says in zip(told[::2], told[1::2], strict=True):
        at = PurePosixPath(path).relative_to(place)
        if _is_folder(carried, at.parent) and not os.path.lexists(carried / at):
            (carried / at).symlink_to(says)


def _is_unwanted(parts: tuple[str, ...], kind: int) -> bool:
    """`parts` of a path in the box."""
    name, is_plain = parts[-1], stat.S_ISREG(kind) or stat.S_ISLNK(kind)
    is_in_home = parts[:-1] == ("root",) or (len(parts) == 3 and parts[0] == "home")
    return (
        (len(parts) == 1 and (name in _NOT_ITS_OWN or is_plain))
        or parts == PurePosixPath(_REWARDS).parts[1:]
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


def _prune(root: Path, delivered: Sequence[str]) -> tuple[str, ...]:
    """The paths of the system's files that were taken away."""
    aside = root.with_name("aside")
    aside.mkdir()
    saved = {}
    for number, path in enumerate(delivered):
        place = PurePosixPath(path.strip("/"))
        if _is_there(root, place):
            saved[place] = (root / place).rename(aside / str(number))
    unwanted = list(_unwanted(root))
    left = [path for folder in unwanted if folder.name in SYSTEM_FOLDERS for path in _changed(folder, root)]
    for one in unwanted:
        _remove(one)
    for place, kept in saved.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        kept.rename(root / place)
    return tuple(left)


def _changed(folder: Path, root: Path) -> Iterator[str]:
    """Files of a layer, and what it takes away, as paths in the box."""
    for above, _, names in os.walk(folder):
        yield from (f"/{Path(above, name).relative_to(root)}" for name in sorted(names))


def _restore(tree: Path, carried: Path) -> None:
    """What was not carried is as it was before the agent came, where its folder is still there."""
    for path in _unwanted(tree, (carried.name,)):
        place = path.relative_to(tree)
        if not _is_folder(carried, place.parent) or os.path.lexists(carried / place):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, carried / place, symlinks=True)
        else:
            shutil.copy(path, carried / place, follow_symlinks=False)


def _is_there(root: Path, place: PurePosixPath) -> bool:
    """Whether there is something at `place`, without a link on the way to it."""
    return os.path.lexists(root / place) and _is_folder(root, place.parent)


def _is_folder(root: Path, place: Path | PurePosixPath) -> bool:
    """Whether `place` and all that leads to it are folders, and no links."""
    all_of_it = (root.joinpath(*place.parts[:depth]) for depth in range(len(place.parts) + 1))
    return all(path.is_dir() and not path.is_symlink() for path in all_of_it)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
