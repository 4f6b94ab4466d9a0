"""The root of boxes that show the programs of this machine: a folder made once, which is their lowest layer.

Its /etc is what programs look up and nobody minds: no shadow, no keys, nothing that names the people of this machine.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from openclaw_rl.envs.sandbox.warden.uids import Uids

RESOLVER = "nameserver 10.0.2.3\n"
"""Who knows names in the network of slirp4netns; in a box without a network it cannot be reached."""

PREFIX = "base-"
PROGRAMS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Of /usr, wherever a machine still has them at the top."""

_FOLDERS = {
    **dict.fromkeys(("dev", "etc", "home", "mnt", "opt", "proc", "run", "srv", "usr", "var", "work"), 0o755),
    **dict.fromkeys(("var/cache", "var/lib", "var/log", "var/mail", "var/spool"), 0o755),
    "root": 0o700,
    "tmp": 0o1777,
    "var/tmp": 0o1777,
}
_ETC = {
    "group": "root:x:0:\ntty:x:5:\nmail:x:8:\nusers:x:100:\nnogroup:x:65534:\n",
    "gshadow": "root:*::\ntty:!::\nmail:!::\nusers:!::\nnogroup:*::\n",
    "hostname": "box\n",
    "hosts": "127.0.0.1 localhost box\n::1 localhost\n",
    "passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "resolv.conf": RESOLVER,
    "shadow": "root:*:20000:0:99999:7:::\nnobody:*:20000:0:99999:7:::\n",
}
_FROM_ETC = (
    *("alternatives", "bash.bashrc", "ca-certificates", "debian_version", "fonts", "gai.conf", "java", "ld.so.cache"),
    *("ld.so.conf", "ld.so.conf.d", "localtime", "login.defs", "mime.types", "nsswitch.conf", "os-release", "pam.d"),
    *("perl", "pki/tls/certs", "profile", "protocols", "python3", "security/limits.conf", "services", "shells", "skel"),
    *("ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone"),
)


def make_base(folder: Path, uids: Uids) -> None:
    """Blocking: some hundred small files. Only what everybody on this machine may read gets in."""
    folder.mkdir(parents=True)
    for name, mode in _FOLDERS.items():
        (folder / name).mkdir()
        (folder / name).chmod(mode)
    for name, text in _ETC.items():
        (folder / "etc" / name).write_text(text)
        (folder / "etc" / name).chmod(0o640 if "shadow" in name else 0o644)
    for name in PROGRAMS:
        if os.path.islink(f"/{name}"):
            (folder / name).symlink_to(os.readlink(f"/{name}"))
        elif os.path.isdir(f"/{name}"):
            (folder / name).mkdir()
    for name in _FROM_ETC:
        _take(Path("/etc", name), folder / "etc" / name)
    folder.chmod(0o755)
    if uids.is_shifted:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, *uids.root, follow_symlinks=False)


def _take(source: Path, to: Path) -> None:
    with suppress(FileNotFoundError):
        kind = source.stat().st_mode
        to.parent.mkdir(mode=0o755, exist_ok=True, parents=True)
        if stat.S_ISREG(kind) and kind & stat.S_IROTH:
            to.write_bytes(source.read_bytes())
            to.chmod(0o644)
        elif stat.S_ISDIR(kind):
            to.mkdir(mode=0o755)
            for inner in source.iterdir():
                if inner.is_symlink():
                    (to / inner.name).symlink_to(os.readlink(inner))
                else:
                    _take(inner, to / inner.name)


def remove_base(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def sweep_bases(scratch: Path) -> None:
    """Removes those whose warden is gone; their names end in its process id."""
    for folder in scratch.glob(f"{PREFIX}*"):
        if not os.path.exists(f"/proc/{folder.name.removeprefix(PREFIX)}"):
            remove_base(folder)
