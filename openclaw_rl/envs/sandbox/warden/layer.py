"""A folder of a box -> the same folder elsewhere: owners, modes, times, links, holes, and what an overlay notes.

Programs of the box may change the folder meanwhile. No link of theirs is followed, whatever they put where.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20
MAX_DEPTH = 256
"""Folders in folders, in what is copied. Those who walk through a copy do so by calls in calls."""

Owner = Callable[[os.stat_result], tuple[int, int]]


def copy_tree(source: str | int, target: str, *, owner: Owner) -> None:
    """Into the empty folder `target`; `owner` says whose a copy is. Pipes and sockets are left behind."""
    below = os.open(source, _FOLDER) if isinstance(source, str) else source
    above = os.open(target, _FOLDER)
    try:
        _copy_folder(below, above, owner, {}, above)
    finally:
        os.close(above)
        if isinstance(source, str):
            os.close(below)


def _copy_folder(
    below: int, above: int, owner: Owner, links: dict[tuple[int, int], str], top: int, path: str = ""
) -> None:
    if path.count("/") > MAX_DEPTH:
        raise OSError(errno.ENAMETOOLONG, f"a folder lies in more than {MAX_DEPTH} others")
    for name in os.listdir(below):
        with suppress(FileNotFoundError):  # it was there a moment ago
            found = os.stat(name, dir_fd=below, follow_symlinks=False)
            place = f"{path}{name}"
            inode = (found.st_dev, found.st_ino)
            if inode in links:
                os.link(links[inode], place, src_dir_fd=top, dst_dir_fd=top, follow_symlinks=False)
                continue
            if stat.S_ISDIR(found.st_mode):
                inner = os.open(name, _FOLDER, dir_fd=below)
                try:
                    os.mkdir(name, 0o700, dir_fd=above)
                    outer = os.open(name, _FOLDER, dir_fd=above)
                    try:
                        _copy_folder(inner, outer, owner, links, top, f"{place}/")
                    finally:
                        os.close(outer)
                finally:
                    os.close(inner)
                continue
            if stat.S_ISREG(found.st_mode):
                _copy_file(name, below, above)
            elif stat.S_ISLNK(found.st_mode):
                os.symlink(os.readlink(name, dir_fd=below), name, dir_fd=above)
            elif stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
                os.mknod(name, stat.S_IFCHR | 0o600, 0, dir_fd=above)  # an overlay's "this was deleted"
            else:
                continue
            if found.st_nlink > 1:
                links[inode] = place
            _dress(name, above, found, owner)
    _copy_notes(below, above)
    _dress(".", above, os.fstat(below), owner)


def _copy_file(name: str, below: int, above: int) -> None:
    source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=below)
    try:
        if not stat.S_ISREG(os.fstat(source).st_mode):
            return
        target = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=above)
        try:
            end = os.fstat(source).st_size
            _copy_data(source, target, end)
            os.ftruncate(target, end)
            _copy_notes(source, target)
        finally:
            os.close(target)
    finally:
        os.close(source)


def _copy_data(source: int, target: int, end: int) -> None:
    """What is not a hole, up to `end`."""
    at = 0
    while at < end:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError:
            return  # only a hole is left
        hole = min(end, os.lseek(source, at, os.SEEK_HOLE))
        while at < hole:
            data = os.pread(source, min(_CHUNK, hole - at), at)
            if not data:
                return
            os.pwrite(target, data, at)
            at += len(data)


def _copy_notes(source: int, target: int) -> None:
    """What an overlay writes about a folder ("nothing below shows through")."""
    for name in os.listxattr(source):
        if name.startswith(("trusted.overlay.", "user.overlay.")):
            os.setxattr(target, name, os.getxattr(source, name))


def _dress(name: str, folder: int, found: os.stat_result, owner: Owner) -> None:
    os.chown(name, *owner(found), dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        os.chmod(name, stat.S_IMODE(found.st_mode), dir_fd=folder)
    times = (found.st_atime_ns, found.st_mtime_ns)
    os.utime(name, ns=times, dir_fd=folder, follow_symlinks=False)
