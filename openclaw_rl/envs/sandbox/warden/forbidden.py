"""The system calls that no program of a box may make, as a program for the kernel (classic BPF).

Namespaces and missing capabilities are the first wall and forbid nearly all of this; here is the second. Programs may
trace each other: debuggers are tools of the trade, and what is not in the box is not there to be traced.
"""

from __future__ import annotations

import errno
import os
import struct

_DENIED = {  # (x86_64, aarch64); -1: not there
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "ioperm": (173, -1),
    "iopl": (172, -1),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
_ABSENT = {  # answered as by a kernel that never had them: their callers know what to do then
    "clone3": (435, 435),  # its flags lie in memory, where no filter can look
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
}
_HIDDEN_MEMORY = {  # what they make is of no process, so that only a control group counts it
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
}
_CLONE, _UNSHARE, _SOCKET, _IOCTL, _PRLIMIT = (56, 220), (272, 97), (41, 198), (16, 29), (302, 261)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # the column above, and the kernel's own name

_NAMESPACES = 0x7E020080
"""Every flag that makes a namespace (NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWTIME)."""
_SOCKET_FAMILIES = (1, 2, 10, 16)
"""Unix, IPv4, IPv6, netlink: these have namespaces. Others reach the machine (vsock) or much of its kernel (alg)."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_X32_BIT = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _MACHINE_AT, _FIRST_AT, _SECOND_AT, _THIRD_AT = 0, 4, 16, 24, 32


def filter_program(*, hides_memory: bool) -> bytes:
    """The program for this machine; empty for one that is neither x86_64 nor aarch64. `hides_memory`: whether programs
    may have memory that is of no process."""
    if (machine := _MACHINES.get(os.uname().machine)) is None:
        return b""
    column, name = machine
    lines = [_line(_LOAD, _MACHINE_AT), _line(_EQUAL, name, 1, 0), _refuse(errno.ENOSYS)]
    lines += [_line(_LOAD, _NUMBER_AT), _line(_AT_LEAST, _X32_BIT, 0, 1), _refuse(errno.ENOSYS)]
    absent = _ABSENT if hides_memory else _ABSENT | _HIDDEN_MEMORY
    for calls, answer in ((_DENIED, errno.EPERM), (absent, errno.ENOSYS)):
        for numbers in calls.values():
            if numbers[column] >= 0:
                lines += [_line(_EQUAL, numbers[column], 0, 1), _refuse(answer)]
    no_namespace = [_line(_LOAD, _FIRST_AT), _line(_ANY_BIT, _NAMESPACES, 0, 1), _refuse(errno.EPERM)]
    for call in (_CLONE, _UNSHARE):
        lines += _when(call[column], no_namespace)
    left = len(_SOCKET_FAMILIES)
    families = [_line(_EQUAL, family, left - number, 0) for number, family in enumerate(_SOCKET_FAMILIES)]
    lines += _when(_SOCKET[column], [_line(_LOAD, _FIRST_AT), *families, _refuse(errno.EAFNOSUPPORT)])
    terminal = [_line(_EQUAL, _TIOCSTI, 1, 0), _line(_EQUAL, _TIOCLINUX, 0, 1), _refuse(errno.EPERM)]
    lines += _when(_IOCTL[column], [_line(_LOAD, _SECOND_AT), *terminal])
    lines += _when(_PRLIMIT[column], _limits_of_others())
    return b"".join((*lines, _line(_RETURN, _ALLOW)))


def _limits_of_others() -> list[bytes]:
    """A program may set its own limits (process 0), and look at those of others. Process 1 is root as programs are,
    which is all that the kernel asks of whoever sets another's: with a limit of processor time it would be killed."""
    reads = [_line(_LOAD, _THIRD_AT), _line(_EQUAL, 0, 0, 2), _line(_LOAD, _THIRD_AT + 4), _line(_EQUAL, 0, 1, 0)]
    return [_line(_LOAD, _FIRST_AT), _line(_EQUAL, 0, len(reads) + 1, 0), *reads, _refuse(errno.EPERM)]


def _when(number: int, body: list[bytes]) -> list[bytes]:
    """`body` for one call alone; it ends in permission."""
    return [_line(_EQUAL, number, 0, len(body) + 1), *body, _line(_RETURN, _ALLOW)]


def _refuse(error: int) -> bytes:
    return _line(_RETURN, _ERRNO | error)


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
