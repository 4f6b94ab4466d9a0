"""What this machine lacks for boxes of bubblewrap, with the remedy."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from openclaw_rl.envs.sandbox.warden import wire
from openclaw_rl.envs.sandbox.warden.plan import BoxPlan
from openclaw_rl.envs.sandbox.warden.uids import RANGES, subordinate_range
from openclaw_rl.envs.sandbox.warden_link import WardenLink

_TRY_S = 30.0
_TUNNEL = "/dev/net/tun"
_SWITCHES = {
    "kernel/unprivileged_userns_clone": ("0", "1"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
    "user/max_user_namespaces": ("0", "16384"),
}
"""Settings of the kernel that forbid user namespaces: the value that does, and one that does not."""


def missing_programs() -> str:
    """Empty where nothing speaks against trying."""
    if not sys.platform.startswith("linux"):
        return "bubblewrap needs Linux; remedy: `openclaw-rl env serve` on a machine that has it"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed; remedy: apt-get install bubblewrap (dnf install, pacman -S, apk add)"
    return ""


def missing_network(tunnel: str = _TUNNEL) -> str:
    """Why no box can have a network; empty where nothing speaks against it."""
    if shutil.which("slirp4netns") is None:
        return "a box with a network needs slirp4netns; remedy: apt-get install slirp4netns"
    if not os.access(tunnel, os.R_OK | os.W_OK):
        return f"a box with a network needs {tunnel}, which this account cannot open; remedy: chmod 666 {tunnel}"
    return ""


def missing_users(*, uid: int | None = None, ranges: Sequence[str] = RANGES) -> str:
    """Why there is nobody in a box but its root; empty where there are others. `uid`: of whom, if not of this account;
    `ranges`: the files that say who has which ids."""
    uid = os.geteuid() if uid is None else uid
    if uid == 0:
        return ""
    lack = "boxes of this account have no user but root, so that files cannot be given to others there; remedy: "
    if shutil.which("newuidmap") is None:
        return f"{lack}apt-get install uidmap"
    if all(subordinate_range(file, uid) for file in ranges):
        return ""
    return f"{lack}usermod --add-subuids 100000-165535 --add-subgids 100000-165535 NAME, for the name of this account"


def unmakeable(warden: WardenLink) -> str:
    """Why no box comes up; empty if one does. Blocking, for a tenth of a second."""
    try:
        with _asked(warden, {"do": "make", "box": 0, "plan": BoxPlan(disk_mb=1).to_json()}) as box:
            got = wire.receive(box)
            with _asked(warden, {"do": "end", "box": 0}) as end:
                wire.receive(end)
    except TimeoutError:
        return f"bubblewrap made no box within {_TRY_S:g} s"
    except OSError:
        got = None
    if got is None:
        return "the process that makes boxes died; its log is on our standard error"
    return _with_remedy(str(got[0]["failed"])) if "failed" in got[0] else ""


def _asked(warden: WardenLink, message: Mapping[str, object]) -> socket.socket:
    """Where the answers come."""
    ours, theirs = wire.pair()
    ours.settimeout(_TRY_S)
    try:
        warden.send_blocking(message, theirs.fileno())
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return ours


def _with_remedy(reason: str) -> str:
    switches = [
        f"sysctl -w {name.replace('/', '.')}={free}"
        for name, (forbids, free) in _SWITCHES.items()
        if _setting(name) == forbids and os.geteuid() != 0
    ]
    if switches:
        return f"{reason}; remedy: {' and '.join(switches)}"
    return (
        f"{reason}; remedy: user namespaces and mounts must be allowed; of a container, start it with "
        "--cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
    )


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""
