"""A plan -> mounts under `STAGE`, and what bubblewrap is told to make of them. It runs in a mount namespace of the box.

Everything that a box writes lies in one tmpfs with a limit: its root, the upper folders of its trees, its /dev/shm.
What it is shown of this machine is bound read-only. Where we are root, owners are shifted on the way, so that whoever
owns a folder here is root of it in the box, and root here is nobody in there.
"""

from __future__ import annotations

import errno
import os
import stat

from openclaw_rl.envs.sandbox.warden import kernel
from openclaw_rl.envs.sandbox.warden.base import PROGRAMS
from openclaw_rl.envs.sandbox.warden.layer import copy_tree
from openclaw_rl.envs.sandbox.warden.plan import BoxPlan
from openclaw_rl.envs.sandbox.warden.uids import NUM_IDS, IdMap, Uids, user_namespace

STAGE = "/tmp"  # noqa: S108 - every machine has it, and only the box's own namespace sees it covered
ROOT = f"{STAGE}/root"
UPPER = f"{ROOT}/upper"
"""What a box wrote, but for its trees."""
_INODES_PER_MB = 256


def stage(plan: BoxPlan, base: str, uids: Uids, namespace: int) -> list[str]:
    """Mounts all that the box is made of; returns the arguments for bubblewrap. `namespace`: of the box's users."""
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    layers = [_Shown(path, uids, namespace) for path in plan.layers or (base,)]
    trees = [(place, _Shown(path, uids, namespace)) for place, path in plan.trees]
    read_only = [(place, _Shown(path, uids, namespace)) for place, path in plan.read_only]
    if plan.layers and plan.network == "full":
        read_only.append(("/etc/resolv.conf", _Shown(f"{base}/etc/resolv.conf", uids, namespace)))
    if strange := [shown.path for shown in layers if not shown.is_ours]:
        raise OSError(errno.EINVAL, f"the file system of {strange[0]} cannot show root there as another")
    room = f"size={plan.disk_mb}m,nr_inodes={_INODES_PER_MB * plan.disk_mb}"
    owner = f"uid={uids.root[0]},gid={uids.root[1]}"
    kernel.mount("box", STAGE, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"{room},mode=755,{owner}")
    arguments = ["--bind", _overlay(ROOT, layers, uids), "/"]
    if not plan.layers:
        arguments += _machine_programs()
    shared_memory = _folder(f"{STAGE}/shm", uids, 0o1777)
    arguments += ["--dev", "/dev", "--bind", shared_memory, "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    arguments += ["--proc", "/proc"]
    binds: list[tuple[str, str, str]] = []
    for number, (place, tree) in enumerate(trees):
        at = f"{STAGE}/tree{number}"
        binds.append((place, "--bind", _overlay(at, [tree], uids) if tree.is_ours else _copy(at, tree, uids)))
    for number, (place, shown) in enumerate(read_only):
        at = f"{STAGE}/shown{number}"
        shown.attach(at)
        binds.append((place, "--ro-bind", at))
    for place, how, source in sorted(binds):  # a folder before what lies in it
        arguments += [how, source, place]
    return arguments


class _Shown:
    """A folder or file of this machine as a read-only mount that is nowhere yet.

    `is_ours`: its owner is root of the box there. Where that is not to be had, root of the box is a stranger to it.
    """

    def __init__(self, path: str, uids: Uids, namespace: int) -> None:
        self.path = path
        try:
            self._tree = kernel.open_tree(path, recursive=False)
            self._is_recursive = False
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._tree = kernel.open_tree(path, recursive=True)  # what others mounted in it cannot be taken away
            self._is_recursive = True
        self.is_ours = self._belongs_to_root(uids, namespace)
        kernel.harden(self._tree, recursive=self._is_recursive)

    def _belongs_to_root(self, uids: Uids, namespace: int) -> bool:
        owner = os.fstat(self._tree)
        if not uids.is_shifted:
            return owner.st_uid == 0
        if owner.st_uid == uids.root[0]:
            return True  # it is of boxes already
        uid_map, gid_map = _swapped(owner.st_uid, uids.root[0]), _swapped(owner.st_gid, uids.root[1])
        is_plain = (uid_map, gid_map) == (uids.uid_map, uids.gid_map)
        mapping = os.dup(namespace) if is_plain else user_namespace(uid_map, gid_map)
        try:
            kernel.map_owners(self._tree, mapping)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
        finally:
            os.close(mapping)
        return True

    def attach(self, at: str) -> None:
        if stat.S_ISDIR(os.fstat(self._tree).st_mode):
            os.mkdir(at)
        else:
            os.close(os.open(at, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        kernel.move_mount(self._tree, at)
        os.close(self._tree)


def _swapped(owner: int, first: int) -> IdMap:
    """Ids of files -> ids outside. `owner` becomes the box's root, and root what `owner` was; all others stay."""
    if owner >= NUM_IDS:
        return ((owner, first, 1), (1, first + 1, NUM_IDS - 1))
    if owner == 0:
        return ((0, first, NUM_IDS),)
    parts = (
        (0, first + owner, 1),
        (1, first + 1, owner - 1),
        (owner, first, 1),
        (owner + 1, first + owner + 1, NUM_IDS - 1 - owner),
    )
    return tuple(part for part in parts if part[2])


def _overlay(at: str, lowers: list[_Shown], uids: Uids) -> str:
    """A folder that shows `lowers`, the lowest first, and keeps what is written in `at`/upper."""
    _folder(at, uids)
    below: list[str] = []
    for number, lower in enumerate(lowers):
        below.append(f"{at}/{number}")
        lower.attach(below[-1])
    mode = stat.S_IMODE(os.stat(below[-1]).st_mode)
    upper, work = _folder(f"{at}/upper", uids, mode), _folder(f"{at}/work", uids)
    options = f"lowerdir={':'.join(reversed(below))},upperdir={upper},workdir={work}"
    options += ",redirect_dir=nofollow,index=off,metacopy=off" if uids.is_shifted else ",userxattr"
    merged = _folder(f"{at}/merged", uids)
    kernel.mount("box", merged, "overlay", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    return merged


def _copy(at: str, tree: _Shown, uids: Uids) -> str:
    """For a file system that cannot show its files as root's."""
    below = f"{at}-below"
    tree.attach(below)
    copy_tree(below, _folder(at, uids), owner=lambda _: uids.root)
    return at


def _machine_programs() -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in PROGRAMS:
        if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}"):
            arguments += ["--ro-bind", f"/{name}", f"/{name}"]
    return arguments


def _folder(path: str, uids: Uids, mode: int = 0o755) -> str:
    os.mkdir(path)
    os.chmod(path, mode)  # whatever our umask is
    os.chown(path, *uids.root)
    return path
