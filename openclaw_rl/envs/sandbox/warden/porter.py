"""Files into a box and out of it, by a fork of the warden that goes in for one errand.

It has the box's root and its root's rights, but is not among its processes: nobody in there sees it or can stop it. A
path leads wherever the box's own programs would be led, which is never out of the box.

`read` answers with an open regular file. `write` answers when nobody has the file open any more: a program that
somebody has open for writing cannot be started. `copy` writes packets into the answer's socket:
    {"folder": "a", "mode": 493}   {"link": "a/l", "to": "b"}   {"file": "a/b", "mode": 420, "mtime": …} and the file
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from openclaw_rl.envs.sandbox.warden import kernel, wire
from openclaw_rl.envs.sandbox.warden.layer import MAX_DEPTH
from openclaw_rl.envs.sandbox.warden.uids import become_root

_CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_PLACE = 2048
"""Of a path in a copy: half of what the kernel takes, as the copy lies somewhere."""
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def run_errand(
    errand: dict[str, object], namespaces: tuple[int, int], answers: socket.socket, brought: Sequence[int]
) -> NoReturn:
    """In a fork; `namespaces` are the box's: users, mounts. `brought`: what is to be written, as an open file."""
    try:
        kernel.die_with_parent()
        kernel.setns(namespaces[0], kernel.CLONE_NEWUSER)
        become_root()
        kernel.setns(namespaces[1], kernel.CLONE_NEWNS)
        path = str(errand["path"])
        match errand["do"]:
            case "read":
                _hand_over(_opened(path), answers)
            case "write":
                _write(path, int(str(errand["mode"])), brought[0])
                wire.send(answers, {"done": True})
            case "copy":
                _copy(path, answers)
    except OSError as error:
        with suppress(OSError):
            wire.send(answers, {"errno": error.errno, "failed": error.strerror or str(error)})
    finally:
        os._exit(0)


def _hand_over(file: int, answers: socket.socket) -> None:
    wire.send(answers, {"size": os.fstat(file).st_size}, [file])


def _opened(path: str) -> int:
    return _regular(os.open(path, _FILE))


def _write(path: str, mode: int, content: int) -> None:
    """With the folders that lead to it. Its content is whole before anybody hears of it."""
    os.umask(0o022)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = _regular(os.open(path, flags, mode))
    try:
        os.ftruncate(file, 0)
        os.fchmod(file, mode)
        while data := os.read(content, _CHUNK):
            while data:
                data = data[os.write(file, data) :]
    finally:
        os.close(file)


def _regular(file: int) -> int:
    """No pipe, no device, and nothing of /proc."""
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_dev == os.stat("/proc").st_dev:
        raise OSError(errno.EINVAL, "it is not a regular file")
    return file


def _copy(path: str, answers: socket.socket) -> None:
    top = os.open(path, os.O_PATH | os.O_CLOEXEC)
    found = os.fstat(top)
    if stat.S_ISREG(found.st_mode):
        _send_file("", _opened(path), answers)
    elif stat.S_ISDIR(found.st_mode):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        wire.send(answers, {"folder": "", "mode": stat.S_IMODE(os.fstat(folder).st_mode)})
        _copy_folder(folder, "", os.fstat(folder).st_dev, answers)
    else:
        raise OSError(errno.EINVAL, "it is neither a file nor a folder")
    wire.send(answers, {"done": True})


def _copy_folder(folder: int, path: str, device: int, answers: socket.socket) -> None:
    if path.count("/") > MAX_DEPTH or len(os.fsencode(path)) > _MAX_PLACE:
        raise OSError(errno.ENAMETOOLONG, f"a folder lies in more than {MAX_DEPTH} others, or its path is too long")
    for name in os.listdir(folder):
        place = f"{path}{name}"
        with suppress(FileNotFoundError, NotADirectoryError):  # changed since we looked
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                inner = os.open(name, _FOLDER, dir_fd=folder)
                try:
                    if os.fstat(inner).st_dev == device:  # else something else is mounted there
                        wire.send(answers, {"folder": place, "mode": stat.S_IMODE(found.st_mode)})
                        _copy_folder(inner, f"{place}/", device, answers)
                finally:
                    os.close(inner)
            elif stat.S_ISLNK(found.st_mode):
                wire.send(answers, {"link": place, "to": os.readlink(name, dir_fd=folder)})
            elif stat.S_ISREG(found.st_mode):
                _send_file(place, os.open(name, _FILE | os.O_NOFOLLOW, dir_fd=folder), answers)


def _send_file(place: str, file: int, answers: socket.socket) -> None:
    try:
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode):
            about = {"file": place, "mode": stat.S_IMODE(found.st_mode), "mtime": found.st_mtime_ns}
            wire.send(answers, about, [file])
    finally:
        os.close(file)
