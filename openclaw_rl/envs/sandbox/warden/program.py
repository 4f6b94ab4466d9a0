"""One command of a box: from a fork of process 1 to its exec, it gives up all that a command must not have."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from openclaw_rl.envs.sandbox.warden import kernel
from openclaw_rl.envs.sandbox.warden.plan import BoxPlan

_ROOT_MAY = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "NET_BIND_SERVICE")
"""What root of a box needs to keep house in it: users, their files, their processes, and ports of its own network."""
_MAX_OPEN_FILES = 4096
_MAX_SIGNALS = 1024
_MAX_QUEUED_BYTES = 64 * 1024
"""These two are counted for whoever made a box as well, who has some ten times as much."""
_KILLED_FIRST = "1000"
"""When memory ends, a command dies before process 1, and before anything else of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What every command of a box is held to."""

    limits: Mapping[int, int]
    capabilities: int
    filter: bytes

    @classmethod
    def of(cls, plan: BoxPlan, *, has_range: bool, counts_memory: bool, filter_program: bytes) -> Confinement:
        """Without a range of ids there is nobody else in the box, and root needs no power over anybody."""
        limits = {
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_FSIZE: plan.disk_mb << 20,
            resource.RLIMIT_NOFILE: _MAX_OPEN_FILES,
            resource.RLIMIT_NPROC: plan.processes,
            resource.RLIMIT_SIGPENDING: _MAX_SIGNALS,
            resource.RLIMIT_MSGQUEUE: _MAX_QUEUED_BYTES,
        }
        if not counts_memory:  # of each process then, not of all
            limits[resource.RLIMIT_DATA] = plan.memory_mb << 20
        capabilities = sum(kernel.CAPABILITIES[name] for name in _ROOT_MAY) if has_range else 0
        return cls(limits=limits, capabilities=capabilities, filter=filter_program)


def become(
    argv: list[str], env: Mapping[str, str], cwd: str, stdin: int, output: int, confinement: Confinement
) -> NoReturn:
    """In a fork: the program itself, or an exit code as a shell gives it, with the reason as output."""
    code = 126
    try:
        os.setsid()
        os.umask(0o022)
        for number in range(1, signal.NSIG):
            if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):  # the last two are the C library's
                signal.signal(number, signal.SIG_DFL)
        os.dup2(stdin, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.closerange(3, 1 << 16)
        kernel.set_dumpable(True)  # else this file is not ours; nobody in the box can trace what has more capabilities
        _write("/proc/self/oom_score_adj", _KILLED_FIRST)
        for limit, value in confinement.limits.items():
            resource.setrlimit(limit, (value, value))
        kernel.keep_capabilities(confinement.capabilities)
        os.chdir(cwd)
        if confinement.filter:
            kernel.forbid(confinement.filter)
        try:
            os.execve(argv[0], argv, env)  # noqa: S606 - there is a shell to be started
        except FileNotFoundError:
            code = 127
            raise
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(code)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
