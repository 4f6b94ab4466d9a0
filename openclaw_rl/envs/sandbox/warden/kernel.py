"""System calls that Python 3.11 has no names for. It knows no box. A failure is an `OSError` that names the call."""

from __future__ import annotations

import ctypes
import os
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV = 1, 2, 4
MS_REC, MS_PRIVATE = 0x4000, 0x40000
MNT_DETACH = 2

CAPABILITIES = {
    name: 1 << number
    for name, number in {
        "CHOWN": 0,
        "DAC_OVERRIDE": 1,
        "FOWNER": 3,
        "KILL": 5,
        "SETGID": 6,
        "SETUID": 7,
        "NET_BIND_SERVICE": 10,
        "SYS_ADMIN": 21,
        "SYS_RESOURCE": 24,
    }.items()
}

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same numbers on every architecture
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH = 4
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV, _MOUNT_ATTR_IDMAP = 1, 2, 4, 0x100000

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def setns(descriptor: int, flags: int) -> None:
    """Into the namespaces of a process (a pidfd), or the one that the descriptor is."""
    _checked(_libc.setns(descriptor, flags), "setns")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    done = _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), os.fsencode(options))
    _checked(done, f"mount of {kind or 'a change'} on {target}")


def open_tree(path: str, *, recursive: bool) -> int:
    """A mount of what is at `path`, not yet anywhere."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | (_AT_RECURSIVE if recursive else 0)
    made = _libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags)
    return _checked(made, f"open_tree of {path}")


def move_mount(tree: int, target: str) -> None:
    done = _libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
    _checked(done, f"move_mount to {target}")


def map_owners(tree: int, user_namespace: int) -> None:
    """Owners in this mount are shown as the namespace maps them. `EINVAL`: the file system cannot do it."""
    _set_attributes(tree, _MOUNT_ATTR_IDMAP, user_namespace, recursive=False)


def harden(tree: int, *, recursive: bool) -> None:
    """Read-only, without devices and without set-user-id."""
    _set_attributes(tree, _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV, 0, recursive=recursive)


def _set_attributes(tree: int, attributes: int, user_namespace: int, *, recursive: bool) -> None:
    packed = struct.pack("QQQQ", attributes, 0, 0, user_namespace)
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    _checked(_libc.syscall(_MOUNT_SETATTR, tree, b"", flags, packed, len(packed)), "mount_setattr")


def die_with_parent() -> None:
    """SIGKILL when the thread that forked us ends. Nobody but a process with a single thread may rely on it."""
    _checked(_prctl(_PR_SET_PDEATHSIG, 9), "prctl")


def set_dumpable(is_dumpable: bool) -> None:
    """What is not dumpable cannot be traced, nor looked into through /proc, by its equals."""
    _checked(_prctl(_PR_SET_DUMPABLE, int(is_dumpable)), "prctl")


def may(capability: str) -> bool:
    """Whether this process has it."""
    effective = int(_read("/proc/self/status").partition(b"CapEff:")[2].split()[0], 16)
    return bool(effective & CAPABILITIES[capability])


def keep_capabilities(kept: int) -> None:
    """Gives up, for good, all capabilities but these."""
    for number in range(64):
        if not kept >> number & 1 and _prctl(_PR_CAPBSET_DROP, number) < 0:
            break  # the first that this kernel does not have
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    _checked(_libc.capset(header, struct.pack("6I", low, low, 0, high, high, 0)), "capset")


def forbid(program: bytes) -> None:
    """From here on the seccomp filter `program` judges every system call, and no exec gives new privileges."""
    _checked(_prctl(_PR_SET_NO_NEW_PRIVS, 1), "prctl")
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HP", len(program) // 8, ctypes.addressof(code)))
    _checked(_prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(header)), "seccomp")


def wipe_command_line() -> None:
    """Programs of a box see process 1; what it was called with names a folder of this machine."""
    fields = _read("/proc/self/stat").rpartition(b")")[2].split()
    first, end = int(fields[45]), int(fields[46])
    ctypes.memset(first, 0, end - first)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _prctl(option: int, first: int = 0, second: int = 0) -> int:
    done: int = _libc.prctl(option, *map(ctypes.c_ulong, (first, second, 0, 0)))
    return done


def _checked(answer: int, call: str) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return answer
