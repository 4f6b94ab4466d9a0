"""A `BoxSpec` -> the options of `docker run` for its container, and for the one beside it that is its door."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from openclaw_rl.envs.sandbox.box import BoxLimits, BoxSpec
from openclaw_rl.envs.sandbox.commands import ENV
from openclaw_rl.envs.sandbox.warden.base import PROGRAMS

LABEL = "openclaw-rl.maker"
"""Says which process of which machine a container belongs to."""

_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")
_DOOR_LIMITS = BoxLimits(memory_mb=256, processes=32)


def maker_of(process: int | str) -> str:
    return f"{socket.gethostname()}:{process}"


def box_options(spec: BoxSpec, container: str) -> list[str]:
    """Up to the image. `spec` without an image shows the programs of this machine."""
    options = [*_options(container, spec.limits), "--hostname", "box"]
    options += ["--network", "none" if spec.network == "none" else "bridge"]
    options += ["--ulimit", f"fsize={spec.limits.disk_mb << 20}"]  # of each file: only some engines can limit a disk
    for name in _CAPABILITIES:
        options += ["--cap-add", name]
    for name, value in {**ENV, **spec.env}.items():
        options += ["--env", f"{name}={value}"]
    is_of_machine = not (spec.image or spec.layers)
    return options + _shown({**(machine_programs() if is_of_machine else {}), **spec.read_only})


def door_options(container: str, *, beside: str, shown: Mapping[str, Path]) -> list[str]:
    """Of a container in the network of another. It takes no name of its own there."""
    options = [*_options(container, _DOOR_LIMITS), "--network", f"container:{beside}"]
    return options + _shown({**machine_programs(), **shown})


def machine_programs() -> dict[str, Path]:
    """What a box shows of this machine, if it is made of this machine's programs."""
    tops = (Path("/", name) for name in PROGRAMS)
    return {"/usr": Path("/usr"), **{str(top): top for top in tops if top.is_dir() and not top.is_symlink()}}


def _options(container: str, limits: BoxLimits) -> list[str]:
    options = ["run", "--rm", "--interactive", "--init", "--pull", "never", "--entrypoint", "/bin/sh"]
    options += ["--name", container, "--label", f"{LABEL}={maker_of(os.getpid())}", "--user", "0:0", "--workdir", "/"]
    options += ["--memory", f"{limits.memory_mb}m", "--memory-swap", f"{limits.memory_mb}m"]
    options += ["--pids-limit", str(limits.processes), "--ulimit", "core=0"]
    return [*options, "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]


def _shown(folders: Mapping[str, Path]) -> list[str]:
    mounts = (f"type=bind,source={path.resolve()},target={place},readonly" for place, path in folders.items())
    return [part for mount in mounts for part in ("--mount", mount)]
