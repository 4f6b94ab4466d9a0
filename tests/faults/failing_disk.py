"""Makes the kernel fail what this process does to one file: a real errno from a real system call, without root.

A seccomp filter answers the named calls on one file descriptor with an error. It cannot be taken back, so the disk
"heals" when the descriptor's number is taken by another file and the database is opened under a new one.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from pathlib import Path

# fsync, fdatasync, write, pwrite64 and seccomp itself, per architecture.
_CALLS = {
    "x86_64": {"fsync": 74, "fdatasync": 75, "write": 1, "pwrite64": 18, "seccomp": 317},
    "aarch64": {"fsync": 82, "fdatasync": 83, "write": 64, "pwrite64": 68, "seccomp": 277},
}
SYNCS = ("fsync", "fdatasync")
WRITES = ("write", "pwrite64")

_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_PR_SET_NO_NEW_PRIVS, _SET_MODE_FILTER, _ALL_THREADS = 38, 1, 1


def descriptor_of(path: Path) -> int:
    """The number under which this process has the file open."""
    (number,) = [int(n) for n in os.listdir("/proc/self/fd") if _target(n) == str(path.resolve())]
    return number


def fail(calls: tuple[str, str], descriptor: int, errno: int) -> None:
    """From now on, in all threads, these calls on this descriptor return this error."""
    numbers = _CALLS[platform.machine()]
    first, second = (numbers[call] for call in calls)
    program = (
        (_LOAD, 0, 0, 0),  # the number of the call
        (_JUMP_IF_EQUAL, 1, 0, first),
        (_JUMP_IF_EQUAL, 0, 3, second),
        (_LOAD, 0, 0, 16),  # its first argument
        (_JUMP_IF_EQUAL, 0, 1, descriptor),
        (_RETURN, 0, 0, _ERRNO | errno),
        (_RETURN, 0, 0, _ALLOW),
    )
    packed = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(packed)))
    libc = ctypes.CDLL(None, use_errno=True)
    for result in (
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        libc.syscall(numbers["seccomp"], _SET_MODE_FILTER, _ALL_THREADS, header),
    ):
        if result != 0:
            raise OSError(ctypes.get_errno(), "this kernel does not let the test install a seccomp filter")


def heal(descriptor: int) -> None:
    """Take the failing number, and all below it, so that the next file gets a sound one."""
    while os.open(os.devnull, os.O_RDONLY) <= descriptor:
        pass


def _target(number: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except FileNotFoundError:
        return ""
