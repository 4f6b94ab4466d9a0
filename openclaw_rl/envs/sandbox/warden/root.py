"""A plan -> mounts under `STAGE`, and what bubblewrap is told to make of them. It runs in a mount namespace of the box.

Everything that a box writes lies in one tmpfs with a limit: its root, the upper folders of its trees, its /dev/shm.
What it is shown of this machine is bound read-only. Where we are root, owners are shifted on the way, so that whoever
owns a folder here is root of it in the box, and root here is nobody in there.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from openclaw_rl.envs.sandbox.warden import kernel
from openclaw_rl.envs.sandbox.warden.layer import copy_tree
from openclaw_rl.envs.sandbox.warden.plan import BoxPlan
from openclaw_rl.envs.sandbox.warden.uids import NUM_IDS, IdMap, Uids, user_namespace

STAGE = "/tmp"  # noqa: S108 - every machine has it, and only the box's own namespace sees it covered
ROOT = f"{STAGE}/root"
UPPER = f"{ROOT}/upper"
"""What a box with layers wrote."""
RESOLVER = "nameserver 10.0.2.3\n"
"""Who knows names in the network of `slirp4netns`."""

_INODES_PER_MB = 256

_PROGRAMS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FROM_ETC = (
    *("alternatives", "ca-certificates", "debian_version", "gai.conf", "java", "ld.so.cache", "ld.so.conf"),
    *("ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "os-release", "perl", "pki/tls/certs"),
    *("protocols", "python3", "services", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone"),
)
"""What programs look up and nobody minds. Never shadow, never keys, never what names the people of this machine."""
_ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
    "shadow": "root:*:20000:0:99999:7:::\nnobody:*:20000:0:99999:7:::\n",
    "gshadow": "root:*::\ntty:!::\nnogroup:*::\n",
    "hostname": "box\n",
    "hosts": "127.0.0.1 localhost box\n::1 localhost\n",
}
_FOLDERS = {
    **dict.fromkeys(("etc", "home", "mnt", "opt", "run", "srv", "var", "var/cache", "var/lib", "var/log"), 0o755),
    "root": 0o700,
    "work": 0o755,
    "tmp": 0o1777,
    "var/tmp": 0o1777,
}


def stage(plan: BoxPlan, uids: Uids) -> list[str]:
    """Mounts all that the box is made of; returns the arguments for bubblewrap."""
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    layers = [_Shown(path, uids) for path in plan.layers]
    trees = [(place, _Shown(path, uids)) for place, path in plan.trees]
    read_only = [(place, _Shown(path, uids)) for place, path in plan.read_only]
    if strange := [shown.path for shown in layers if not shown.is_ours]:
        raise OSError(errno.EINVAL, f"the file system of {strange[0]} cannot show root there as another")
    room = f"size={plan.disk_mb}m,nr_inodes={_INODES_PER_MB * plan.disk_mb}"
    owner = f"uid={uids.root[0]},gid={uids.root[1]}"
    kernel.mount("box", STAGE, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"{room},mode=755,{owner}")
    arguments = ["--bind", _overlay(ROOT, layers, uids), "/"] if layers else _root_of_this_machine(ROOT, plan, uids)
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

    def __init__(self, path: str, uids: Uids) -> None:
        self.path = path
        try:
            self._tree = kernel.open_tree(path, recursive=False)
            self._is_recursive = False
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._tree = kernel.open_tree(path, recursive=True)  # what others mounted in it cannot be taken away
            self._is_recursive = True
        self.is_ours = self._belongs_to_root(uids)
        kernel.harden(self._tree, recursive=self._is_recursive)

    def _belongs_to_root(self, uids: Uids) -> bool:
        is_owned_by = os.fstat(self._tree)
        if not uids.is_shifted:
            return is_owned_by.st_uid == 0
        first_uid, first_gid = uids.root
        uid_map, gid_map = _swapped(is_owned_by.st_uid, first_uid), _swapped(is_owned_by.st_gid, first_gid)
        namespace = user_namespace(uid_map, gid_map)
        try:
            kernel.map_owners(self._tree, namespace)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
        finally:
            os.close(namespace)
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


def _root_of_this_machine(at: str, plan: BoxPlan, uids: Uids) -> list[str]:
    """A root with the programs of this machine, and an /etc that knows nobody."""
    _folder(at, uids)
    for name, mode in _FOLDERS.items():
        _folder(f"{at}/{name}", uids, mode)
    for name, text in _ETC.items():
        _file(f"{at}/etc/{name}", text.encode(), uids, mode=0o640 if "shadow" in name else 0o644)
    if plan.network == "full":
        _file(f"{at}/etc/resolv.conf", RESOLVER.encode(), uids)
    arguments = ["--bind", at, "/", "--ro-bind", "/usr", "/usr"]
    for name in _PROGRAMS:
        if os.path.islink(f"/{name}"):
            arguments += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            arguments += ["--ro-bind", f"/{name}", f"/{name}"]
    for name in _FROM_ETC:
        place = f"/etc/{name}"
        with suppress(FileNotFoundError):
            kind = os.stat(place).st_mode
            if stat.S_ISDIR(kind):
                arguments += ["--ro-bind", place, place]
            elif stat.S_ISREG(kind) and kind & stat.S_IROTH:
                with open(place, "rb") as file:
                    _file(f"{at}{place}", file.read(), uids)
    return arguments


def _folder(path: str, uids: Uids, mode: int = 0o755) -> str:
    os.mkdir(path)
    os.chmod(path, mode)  # whatever our umask is
    os.chown(path, *uids.root)
    return path


def _file(path: str, content: bytes, uids: Uids, *, mode: int = 0o644) -> None:
    if not os.path.isdir(parent := os.path.dirname(path)):
        _folder(parent, uids)
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, mode)
    os.chown(path, *uids.root)
