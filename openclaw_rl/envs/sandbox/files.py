"""Files into a box and out of it, as the event loop asks for them. A porter goes in and hands them over.

What is copied out was made by programs that may mean harm: nothing of it is followed, run or believed here.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from openclaw_rl.envs.sandbox.warden import wire
from openclaw_rl.envs.sandbox.warden_link import WardenLink
from openclaw_rl.errors import EnvError, TaskError

_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO)
_MAX_PATH = 4095
_COPY_S = 60.0
_ENTRY_BYTES = 512
"""What an entry counts for, however little is in it."""
_CHUNK = 1 << 20


class BoxFiles:
    """The part of a box that has to do with files."""

    def __init__(self, warden: WardenLink, number: int, *, has_layers: bool) -> None:
        self._warden = warden
        self._number = number
        self._has_layers = has_layers
        self._upper: int | None = None
        """The folder that its writes go to."""

    async def read(self, path: str, *, max_bytes: int) -> bytes | None:
        said, files = await self._send("read", path)
        if "failed" in said:
            if said["errno"] in _NO_FILE:
                return None
            raise TaskError(f"{path} cannot be read: {said['failed']}")
        size = int(str(said["size"]))
        try:
            if size > max_bytes:
                raise TaskError(f"{path} has {size} bytes; at most {max_bytes} are read")
            return await asyncio.to_thread(_content, files[0], max_bytes)
        finally:
            os.close(files[0])

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        content = await asyncio.to_thread(as_file, data)
        try:
            said, _ = await self._send("write", path, (content,), mode=mode)
        finally:
            os.close(content)
        if "failed" in said:
            raise TaskError(f"{path} cannot be written: {said['failed']}")

    async def copy_out(self, path: str, to: Path, *, max_bytes: int) -> None:
        answers = await self._warden.call({"do": "copy", "box": self._number, "path": checked_path(path)})
        answers.settimeout(_COPY_S)
        copying = asyncio.ensure_future(asyncio.to_thread(_receive, answers, path, to, max_bytes))
        try:
            await asyncio.shield(copying)
        except asyncio.CancelledError:
            answers.shutdown(socket.SHUT_RDWR)  # which ends both, the porter and our thread
            await asyncio.wait((copying,))
            raise
        finally:
            answers.close()

    async def keep_layer(self, to: Path) -> None:
        if self._upper is None:
            raise EnvError("the box is closed")
        if not self._has_layers:
            raise TaskError("a box without layers shows the programs of this machine, and has no layer to keep")
        place = await asyncio.to_thread(_new_folder, to)
        said, _ = await self._warden.ask({"do": "layer", "box": self._number, "to": place}, (self._upper,))
        if "failed" in _unless_gone(said):
            await asyncio.to_thread(shutil.rmtree, to, ignore_errors=True)
            raise EnvError(f"the layer could not be kept: {said['failed']}")

    def close_files(self) -> None:
        if self._upper is not None:
            os.close(self._upper)
            self._upper = None

    async def _send(
        self, errand: str, path: str, brought: Sequence[int] = (), **more: object
    ) -> tuple[dict[str, object], list[int]]:
        request = {"do": errand, "box": self._number, "path": checked_path(path), **more}
        said, files = await self._warden.ask(request, brought)
        return _unless_gone(said), files


def as_file(data: bytes) -> int:
    """A file that exists nowhere, and reads as `data`."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    file = os.memfd_create("input")
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
    os.lseek(file, 0, os.SEEK_SET)
    return file


def checked_path(path: str) -> str:
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        size = _MAX_PATH + 1
    if not path.startswith("/") or "\0" in path or size > _MAX_PATH:
        raise TaskError(f"a path in a box is absolute, and at most {_MAX_PATH} bytes of text, got {path[:100]!r}")
    return path


def _unless_gone(said: dict[str, object]) -> dict[str, object]:
    if "gone" in said:
        raise EnvError("the box is gone")
    return said


def _new_folder(folder: Path) -> str:
    folder.mkdir(parents=True)
    return str(folder.absolute())


def _content(file: int, max_bytes: int) -> bytes:
    found = bytearray()
    while len(found) <= max_bytes and (data := os.read(file, min(_CHUNK, max_bytes + 1 - len(found)))):
        found += data
    if len(found) > max_bytes:
        raise TaskError(f"a file grew beyond {max_bytes} bytes while it was read")
    return bytes(found)


def _receive(answers: socket.socket, path: str, to: Path, max_bytes: int) -> None:
    """All that the porter hands over, below `to`. Of a copy that fails nothing is left."""
    to.parent.mkdir(parents=True, exist_ok=True)
    copy = TreeCopy(to, max_bytes)
    try:
        while True:
            got = wire.receive(answers)
            if got is None:
                raise EnvError("the box is gone: its files could not be copied to the end")
            said, files = got
            if "failed" in _unless_gone(said):
                raise TaskError(f"{path} cannot be copied out of the box: {said['failed']}")
            if "done" in said:
                return copy.finish()
            try:
                copy.add(said, _reader(files))
            finally:
                for file in files:
                    os.close(file)
    except BaseException as error:
        copy.remove()
        if isinstance(error, OSError):
            raise EnvError(f"{path} could not be copied out of the box: {error.strerror or error}") from None
        raise


def _reader(files: Sequence[int]) -> Callable[[int], bytes]:
    return lambda size: os.read(files[0], size)


class TreeCopy:
    """A tree that grows below `to`, by folders and files that are new: nothing that lies there is ever opened."""

    def __init__(self, to: Path, max_bytes: int) -> None:
        self._to = to
        self._max_bytes = max_bytes
        self._size = 0
        self._modes: list[tuple[str, int]] = []

    def add(self, said: Mapping[str, object], read: Callable[[int], bytes]) -> None:
        """`read` gives the next of a file's content, at most so much."""
        self._count(_ENTRY_BYTES)
        match said:
            case {"folder": str(place), "mode": int(mode)}:
                at = self._at(place)
                if place or not at.is_dir():
                    at.mkdir(0o700)
                self._modes.append((place, mode & 0o777))
            case {"link": str(place), "to": str(to)} if _stays_inside(place, to):
                self._at(place).symlink_to(to)
            case {"file": str(place), "mode": int(mode), "mtime": int(mtime)}:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                copy = os.open(self._at(place), flags, 0o600)
                try:
                    while data := read(_CHUNK):
                        self._count(len(data))
                        os.write(copy, data)
                    os.fchmod(copy, mode & 0o777)
                    os.utime(copy, ns=(mtime, mtime))
                finally:
                    os.close(copy)

    def finish(self) -> None:
        """Modes of folders come last: one may forbid to write in it."""
        for place, mode in reversed(self._modes):
            self._at(place).chmod(mode)

    def remove(self) -> None:
        if self._to.is_dir() and not self._to.is_symlink():
            shutil.rmtree(self._to, ignore_errors=True)
        else:
            self._to.unlink(missing_ok=True)

    def _at(self, place: str) -> Path:
        return self._to / place if place else self._to

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._max_bytes:
            raise TaskError(f"what is copied out of the box is larger than {self._max_bytes} bytes")


def _stays_inside(place: str, target: str) -> bool:
    """Whether a link leads nowhere but into the copy. Steps upwards after one downwards could lead through another."""
    parts = target.split("/")
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    return not target.startswith("/") and up <= place.count("/") and ".." not in parts[up:]
