"""Who is root in a box: a user namespace for it, and who that root is outside.

Three ways, the first that this machine allows:
    shifted       we are root: 65536 ids of a box are ids that nobody has
    subordinate   an ordinary user with a range of ids (`newuidmap`): root of a box is that user, the others the range
    single        root of a box is that user, and there is nobody else in it
"""

from __future__ import annotations

import errno
import os
import pwd
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from openclaw_rl.envs.sandbox.warden import kernel

NUM_IDS = 65536
_FIRST_ID = 2_000_000_000
"""Beyond the ranges that systemd-nspawn, Docker and `useradd` hand out."""

RANGES = ("/etc/subuid", "/etc/subgid")
"""Who may have which ids, of users and of groups."""

IdMap = tuple[tuple[int, int, int], ...]
"""(id in the namespace, id outside, how many)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uids:
    """`is_shifted`: we are root and mount for the box; else it mounts for itself."""

    uid_map: IdMap
    gid_map: IdMap
    is_shifted: bool = False

    @property
    def has_range(self) -> bool:
        return sum(count for _, _, count in self.uid_map) > 1

    @property
    def root(self) -> tuple[int, int]:
        """Who root of a box is for whoever mounts its files."""
        return (self.uid_map[0][1], self.gid_map[0][1]) if self.is_shifted else (0, 0)


def uids_here() -> Uids:
    """The best that this machine allows."""
    if os.geteuid() == 0 and kernel.may("SYS_ADMIN") and _holds("/proc/self/uid_map") and _holds("/proc/self/gid_map"):
        shifted = ((0, _FIRST_ID, NUM_IDS),)
        return Uids(uid_map=shifted, gid_map=shifted, is_shifted=True)
    uid, gid = os.geteuid(), os.getegid()
    uids, gids = (subordinate_range(file, uid) for file in RANGES)
    if uids and gids:
        ranged = Uids(uid_map=((0, uid, 1), (1, *uids)), gid_map=((0, gid, 1), (1, *gids)))
        with suppress(OSError):  # the programs that map them may be missing, or without the rights that they need
            os.close(user_namespace(ranged.uid_map, ranged.gid_map))
            return ranged
    return Uids(uid_map=((0, uid, 1),), gid_map=((0, gid, 1),))


def user_namespace(uid_map: IdMap, gid_map: IdMap) -> int:
    """A new user namespace with these maps, as a descriptor. It is empty, and lasts as long as the descriptor."""
    made, has_made = os.pipe()
    mapped, has_mapped = os.pipe()
    holder = os.fork()
    if holder == 0:
        os.close(has_mapped)
        _hold(has_made, mapped)
    try:
        os.close(has_made)
        os.close(mapped)
        error = int(os.read(made, 16) or b"5")
        if error:
            raise OSError(error, f"a user namespace: {os.strerror(error)}")
        _map(holder, "uid", uid_map)
        _map(holder, "gid", gid_map)
        return os.open(f"/proc/{holder}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(made)
        os.close(has_mapped)
        os.waitpid(holder, 0)


def become_root() -> None:
    """In a user namespace that was just entered."""
    with suppress(PermissionError):  # where there is a single group, those of the user stay, as nobody's
        os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def _hold(has_made: int, mapped: int) -> NoReturn:
    """In a child: makes the namespace, says so, and stays in it until it has its maps."""
    error = 0
    try:
        kernel.unshare(kernel.CLONE_NEWUSER)
    except OSError as failure:
        error = failure.errno or errno.EIO
    os.write(has_made, str(error).encode())
    os.read(mapped, 1)
    os._exit(0)


def _map(process: int, kind: Literal["uid", "gid"], extents: IdMap) -> None:
    if os.geteuid() != 0 and len(extents) > 1:
        numbers = [str(number) for extent in extents for number in extent]
        done = subprocess.run((f"new{kind}map", str(process), *numbers), capture_output=True, check=False)
        if done.returncode:
            raise OSError(errno.EPERM, f"new{kind}map: {done.stderr.decode(errors='replace').strip()}")
        return
    if kind == "gid" and os.geteuid() != 0:
        _write(f"/proc/{process}/setgroups", "deny")
    _write(f"/proc/{process}/{kind}_map", "\n".join(" ".join(map(str, extent)) for extent in extents))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _holds(map_file: str) -> bool:
    """Whether the ids that a box is shifted to exist in our own namespace."""
    extents = [tuple(map(int, line.split())) for line in Path(map_file).read_text().splitlines()]
    return any(first <= _FIRST_ID and first + count >= _FIRST_ID + NUM_IDS for first, _, count in extents)


def subordinate_range(file: str, uid: int) -> tuple[int, int] | None:
    """The first range of this user that has as many ids as a system needs."""
    names = {str(uid)}
    with suppress(KeyError):
        names.add(pwd.getpwuid(uid).pw_name)
    with suppress(OSError):
        for line in Path(file).read_text().splitlines():
            name, _, numbers = line.partition(":")
            first, _, count = numbers.partition(":")
            if name in names and count.isdecimal() and int(count) >= NUM_IDS - 1:
                return int(first), NUM_IDS - 1
    return None
