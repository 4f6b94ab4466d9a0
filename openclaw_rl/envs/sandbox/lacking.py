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


def missing_programs() -> str:
    """Empty where nothing speaks against trying."""
    if not sys.platform.startswith("linux"):
        return "bubblewrap needs Linux; remedy: run environments where Docker runs"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed; remedy: apt-get install bubblewrap (dnf install, pacman -S, apk add)"
    return ""


def unmakeable(warden: WardenLink) -> str:
    """Why no box comes up; empty if one does. Blocking, for a tenth of a second."""
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
    if got is None:
        return "the process that makes boxes died; its log is on our standard error"
    return _with_remedy(str(got[0]["failed"])) if "failed" in got[0] else ""


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
