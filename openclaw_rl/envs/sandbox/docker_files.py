"""A path in a container -> its content, or a copy of it: what `docker cp` says, as it comes.

The archive is the engine's, and what is in it was made by programs that may mean harm: nothing of it is followed.
"""

from __future__ import annotations

import os
import select
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from openclaw_rl.envs.sandbox.files import TreeCopy
from openclaw_rl.envs.sandbox.warden.layer import MAX_DEPTH
from openclaw_rl.errors import EnvError, TaskError

FILE_S = 60.0
_TAIL = 2000


def read_file(container: str, path: str, max_bytes: int) -> bytes | None:
    with _archive(container, path) as (archive, _):
        member = None if archive is None else archive.next()
        if archive is None or member is None or not member.isreg():
            return None
        if member.size > max_bytes:
            raise TaskError(f"{path} has {member.size} bytes; at most {max_bytes} are read")
        return _content_of(archive, member).read()


def copy_tree_out(container: str, path: str, to: Path, max_bytes: int) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    copy = TreeCopy(to, max_bytes)
    try:
        with _archive(container, path) as (archive, told):
            if archive is None:
                raise TaskError(f"{path} cannot be copied out of the box: {told}")
            for member in archive:
                _copy_member(archive, member, to, copy)
        if not os.path.lexists(to):
            raise TaskError(f"{path} cannot be copied out of the box: it is neither a file nor a folder")
        copy.finish()
    except BaseException as error:
        copy.remove()
        if isinstance(error, OSError | tarfile.TarError):
            raise EnvError(f"{path} could not be copied out of the box: {error}") from None
        raise


def _copy_member(archive: tarfile.TarFile, member: tarfile.TarInfo, to: Path, copy: TreeCopy) -> None:
    """Names begin with that of the top, which is not part of the copy. Devices and pipes are left behind."""
    place = member.name.partition("/")[2]
    if place.count("/") > MAX_DEPTH or ".." in place.split("/"):
        raise TaskError(f"a folder lies in more than {MAX_DEPTH} others, or above the top: {place[:100]}")
    if member.isdir():
        copy.add({"folder": place, "mode": member.mode}, _nothing)
    elif member.issym():
        copy.add({"link": place, "to": member.linkname}, _nothing)
    elif member.isreg() or member.islnk():
        about = {"file": place, "mode": member.mode, "mtime": int(member.mtime) * 10**9}
        if member.isreg():
            copy.add(about, _content_of(archive, member).read)
        elif (first := to / member.linkname.partition("/")[2]).is_file() and not first.is_symlink():
            with first.open("rb") as file:
                copy.add(about, file.read)


def _nothing(_: int) -> bytes:
    return b""


def _content_of(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    file = archive.extractfile(member)
    assert file is not None, "it is a regular file"
    return file


@contextmanager
def _archive(container: str, path: str) -> Iterator[tuple[tarfile.TarFile | None, str]]:
    """What `docker cp` says of a path, as it comes; or none, and why."""
    command = ("docker", "cp", "--follow-link", f"{container}:{path}", "-")
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdout is not None
        try:
            stream = _TimedPipe(process.stdout.fileno(), time.monotonic() + FILE_S)
            if not stream.begin():
                errors.seek(0)
                yield None, errors.read(_TAIL).decode(errors="replace").strip()
                return
            with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as archive:
                yield archive, ""
        finally:
            process.kill()


class _TimedPipe:
    """A pipe that is read until a deadline."""

    def __init__(self, pipe: int, deadline: float) -> None:
        self._pipe = pipe
        self._deadline = deadline
        self._begun = b""

    def begin(self) -> bool:
        """Whether there is anything to read."""
        self._begun = self.read(tarfile.BLOCKSIZE)
        return bool(self._begun)

    def read(self, size: int) -> bytes:
        if begun := self._begun[:size]:
            self._begun = self._begun[size:]
            return begun
        left = self._deadline - time.monotonic()
        if left <= 0 or not select.select([self._pipe], [], [], left)[0]:
            raise TaskError(f"what is copied out of the box did not come within {FILE_S:g} s")
        return os.read(self._pipe, size)
