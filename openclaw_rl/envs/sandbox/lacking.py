"""What this machine lacks for boxes of bubblewrap, with the remedy."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from openclaw_rl.envs.sandbox.warden import wire
from openclaw_rl.envs.sandbox.warden.plan import BoxPlan
from openclaw_rl.envs.sandbox.warden_link import WardenLink

_TRY_S = 30.0
_SWITCHES = {
    "kernel/unprivileged_userns_clone": ("0", "1"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
    "user/max_user_namespaces": ("0", "16384"),
}
"""Settings of the kernel that forbid user namespaces: the value that does, and one that does not."""


def missing() -> str:
    """Empty where a box can be made, which is tried. Blocking, a tenth of a second."""
    if not sys.platform.startswith("linux"):
        return "bubblewrap needs Linux; where Docker runs, set rollout.sandbox to docker"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed: apt-get install bubblewrap (or dnf, pacman -S, apk add)"
    if not (reason := _try_one()):
        return ""
    switches = [
        f"sysctl -w {name.replace('/', '.')}={free}"
        for name, (forbids, free) in _SWITCHES.items()
        if _setting(name) == forbids and os.geteuid() != 0
    ]
    remedy = " and ".join(switches) or (
        "in a container, start it with --privileged, or with --security-opt seccomp=unconfined --cap-add SYS_ADMIN"
    )
    return f"{reason}; remedy: {remedy}"


def _try_one() -> str:
    """Why no box comes up; empty if one does."""
    warden = WardenLink()
    ours, theirs = wire.pair()
    try:
        ours.settimeout(_TRY_S)
        warden.send_blocking({"do": "make", "box": 0, "plan": BoxPlan(disk_mb=1).to_json()}, theirs.fileno())
        theirs.close()
        got = wire.receive(ours)
    except TimeoutError:
        return f"bubblewrap made no box within {_TRY_S:g} s"
    finally:
        ours.close()
        theirs.close()
        warden.close()
    if got is None:
        return "the process that makes boxes died"
    return str(got[0].get("failed", ""))


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""
