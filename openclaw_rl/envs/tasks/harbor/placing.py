"""COPY: which files of a task's folder are meant, and how they come into a box, or onto this machine's programs.

Sources are looked up here, in the task's folder, and never through a link. Into an image they are copied by a command
in the box, so that links of the image mean what they mean there.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from openclaw_rl.envs.tasks.harbor.recipe import Copy, MakeFolder, Recipe, Run
from openclaw_rl.errors import TaskError

CONTEXT = "/.context"
"""Where a box in which an image is made sees the task's folder."""

_IGNORE_FILES = (".dockerignore", "Dockerfile.dockerignore")
_ARCHIVES = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
SYSTEM_FOLDERS = frozenset(
    "bin boot dev etc lib lib32 lib64 libx32 proc run sbin sys usr".split()  # noqa: SIM905
)
"""Folders of a root that hold its programs, and what they need to start."""
_OPEN_TO_ALL = 0o1777


def found_sources(copy: Copy, context: Path) -> list[str]:
    """The files and folders that COPY names, relative to `context`."""
    if any((context / name).exists() for name in _IGNORE_FILES):
        raise TaskError(f"line {copy.line} of the Dockerfile: COPY beside a .dockerignore is not interpreted here")
    found: list[str] = []
    for source in copy.sources:
        here = ["."]
        for part in PurePosixPath(source).parts:
            here = [f"{parent}/{name}" for parent in here for name in _named(context / parent, part)]
        if not here:
            raise TaskError(f"line {copy.line} of the Dockerfile: there is no {source} to copy")
        found += here
    if len(found) > 1 and not copy.to.endswith("/"):
        raise TaskError(f"line {copy.line} of the Dockerfile: several files go into a folder, whose name ends with /")
    if copy.unpacks and (archive := next((one for one in found if _is_archive(context / one)), None)):
        raise TaskError(f"line {copy.line} of the Dockerfile: ADD would unpack {archive}, which is not done here")
    return found


def _named(folder: Path, pattern: str) -> list[str]:
    if "[" in pattern or "\\" in pattern:
        raise TaskError(f"a pattern of COPY that is not interpreted here, {pattern!r}")
    try:
        names = sorted(name for name in os.listdir(folder) if fnmatchcase(name, pattern))
    except NotADirectoryError:
        return []
    if any((folder / name).is_symlink() for name in names):
        raise TaskError(f"COPY of {pattern}, which is a link, is not interpreted here")
    return names


def _is_archive(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(512)
    return head.startswith(_ARCHIVES) or head[257:262] == b"ustar"


def copy_command(copy: Copy, context: Path) -> str:
    """What does it in a box that sees the task's folder at `CONTEXT`."""
    return " && ".join(_copied(source, context / source, copy.to) for source in found_sources(copy, context))


def _copied(source: str, here: Path, to: str) -> str:
    there, folder = shlex.quote(f"{CONTEXT}/{source}"), shlex.quote(to.rstrip("/") or "/")
    # The umask keeps the modes that files have in the task's folder.
    if here.is_dir():
        return f"mkdir -p -- {folder} && (umask 0; cp -R -P -- {there}/. {folder}/)"
    name = shlex.quote(PurePosixPath(source).name)
    if to.endswith("/"):
        make = f"mkdir -p -- {folder} && to={folder}/{name}"
    else:
        parent = shlex.quote(str(PurePosixPath(to).parent))
        make = f"mkdir -p -- {parent} && to={folder} && if [ -d {folder} ]; then to={folder}/{name}; fi"
    return f'{make} && rm -f -- "$to" && (umask 0; cp -- {there} "$to")'


def digest_of(context: Path, sources: Sequence[str]) -> str:
    """Names, modes and contents of everything below."""
    digest = hashlib.sha256()
    for source in sources:
        for path in (context / source, *_below(context / source)):
            kind = path.lstat().st_mode
            digest.update(f"{source}\0{path.relative_to(context / source)}\0{kind:o}\0".encode())
            if stat.S_ISREG(kind):
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
            elif stat.S_ISLNK(kind):
                digest.update(os.readlink(path).encode())
    return digest.hexdigest()


def _below(path: Path) -> Iterator[Path]:
    if path.is_dir() and not path.is_symlink():
        for one in sorted(path.iterdir()):
            yield one
            yield from _below(one)


def place_on_machine(recipe: Recipe, context: Path, to: Path, delivered: Sequence[str]) -> None:
    """The folders of `to` are what a box shows in its root, over the programs of this machine. Blocking.

    RUN is refused: what it changed beyond these folders would be lost.
    """
    for place in ("/logs/agent", "/logs/artifacts", "/logs/verifier", recipe.workdir):
        made_folder(to, place)
    for path in delivered:
        made_folder(to, _folder_for(PurePosixPath(recipe.workdir, path)))
    for step in recipe.steps:
        match step:
            case Run():
                raise TaskError("RUN needs an image of the task's own, and this machine's programs are none")
            case MakeFolder():
                made_folder(to, step.path)
            case Copy():
                for source in found_sources(step, context):
                    _place(context / source, step.to, to)
    if (to / "tmp").is_dir():
        (to / "tmp").chmod(_OPEN_TO_ALL)


def _folder_for(delivered: PurePosixPath) -> str:
    """Where it will lie. What is to lie in the root itself is taken for a folder, unless its name ends as a file's."""
    is_in_root = len(delivered.parts) == 2 and not delivered.suffix
    return str(delivered if is_in_root else delivered.parent)


def made_folder(root: Path, place: str) -> Path:
    """The folder of this path under `root`, without following a link on the way."""
    parts = PurePosixPath(place).parts[1:]
    if not parts or parts[0] in SYSTEM_FOLDERS:
        raise TaskError(f"{place} belongs to this machine's programs, where a task has no files of its own")
    path = root
    for part in parts:
        path = path / part
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise TaskError(f"{place} leads through {part}, which is no folder")
        path.mkdir(exist_ok=True)
    return path


def _place(source: Path, to: str, root: Path) -> None:
    if source.is_dir():
        lay_over(source, made_folder(root, to))
        return
    place = PurePosixPath(to)
    is_folder = to.endswith("/") or (root / place.relative_to("/")).is_dir()
    folder, name = (to, source.name) if is_folder else (str(place.parent), place.name)
    _lay_file(source, made_folder(root, folder) / name)


def lay_over(source: Path, to: Path) -> None:
    """Everything in `source` into the folder `to`. A link that lies there is never written through. Blocking."""
    for entry in sorted(os.scandir(source), key=lambda one: one.name):
        place = to / entry.name
        if not entry.is_dir(follow_symlinks=False):
            _lay_file(Path(entry), place)
            continue
        if os.path.lexists(place) and (place.is_symlink() or not place.is_dir()):
            raise TaskError(f"the folder {entry.name} would come where a link or file of that name is")
        place.mkdir(exist_ok=True)
        lay_over(Path(entry), place)
        shutil.copystat(entry, place)


def _lay_file(source: Path, place: Path) -> None:
    if place.is_symlink() or place.is_dir():
        raise TaskError(f"the file {source.name} would come where a link or folder of that name is")
    shutil.copy(source, place, follow_symlinks=False)
