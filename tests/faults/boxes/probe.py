"""An attempt to do harm from inside a box. What it may come to: a `Ran`, or an `EnvError` where the box is gone."""

from __future__ import annotations

import secrets
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from openclaw_rl.envs.sandbox.box import BoxLimits, BoxSpec
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapBox, BubblewrapSandbox
from openclaw_rl.types import Ran

SECRET = f"secret-{secrets.token_hex(8)}"
SECRET_VARIABLE = "OPENCLAW_RL_PROBED_SECRET"
PATIENCE_S = 60.0
"""More than anything here takes; a probe that is to be stopped says so."""

DAEMONS = """
setsid sleep 1000 & nohup sleep 1000 >/dev/null 2>&1 & (sleep 1000 &)
(setsid sh -c 'setsid sleep 1000 & trap "" HUP INT TERM; sleep 1000 & wait' >/dev/null 2>&1 &)
until [ $(pgrep -c sleep) = 5 ]; do sleep 0.02; done
"""
"""Five processes that would outlive nearly anything."""


class Probe:
    """`box` is the one that does harm; `neighbour` is there to be harmed."""

    LIMITS: ClassVar = BoxLimits(memory_mb=128, processes=48, disk_mb=16, output_bytes=64 * 1024)
    NEIGHBOUR: ClassVar = BoxSpec(limits=BoxLimits(memory_mb=64, processes=16, disk_mb=4))

    def __init__(self, sandbox: BubblewrapSandbox, folder: Path) -> None:
        self.sandbox = sandbox
        self.folder = folder
        self.secret_file = folder / "secret"
        self.secret_file.write_text(SECRET)
        self._opened: list[BubblewrapBox] = []

    async def __aenter__(self) -> Self:
        self.neighbour = await self.sandbox.start(self.NEIGHBOUR)
        self._opened.append(self.neighbour)
        self.box = await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            assert await self.neighbour.run("echo well", timeout_s=PATIENCE_S) == Ran(exit_code=0, output="well\n")
        finally:
            for box in self._opened:
                await box.close()

    async def open(self, **spec: Any) -> BubblewrapBox:
        """Another box with the same limits."""
        box = await self.sandbox.start(BoxSpec(**{"limits": self.LIMITS, **spec}))
        self._opened.append(box)
        return box

    async def sh(self, command: str, *, timeout_s: float = PATIENCE_S) -> Ran:
        return self._told(await self.box.run(command, timeout_s=timeout_s))

    async def shell(self, command: str, *, timeout_s: float = PATIENCE_S) -> Ran:
        """In the shell that lasts."""
        return self._told(await self.box.shell(command, timeout_s=timeout_s))

    async def python(self, code: str, *, timeout_s: float = PATIENCE_S) -> Ran:
        return self._told(await self.box.run("python3 -", timeout_s=timeout_s, stdin=(PRELUDE + code).encode()))

    async def refusals(self, code: str) -> dict[str, str]:
        """What became of each `attempt(NAME, …)` of `code`: the name of the error, or "done"."""
        ran = await self.python(code)
        assert ran.exit_code == 0, ran
        return dict(line.split("=", 1) for line in ran.output.splitlines())

    async def is_well(self) -> bool:
        """Whether the box itself still works."""
        return (await self.sh("echo well")).output == "well\n"

    @staticmethod
    def _told(ran: Ran) -> Ran:
        assert SECRET not in ran.output
        return ran


PRELUDE = """
import ctypes, errno, os, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(number, *arguments):
    '''A system call; `number` is None where this kind of machine has none.'''
    if number is None:
        raise OSError(errno.ENOSYS, "none")
    done = libc.syscall(number, *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def numbered(x86_64, aarch64):
    return {"x86_64": x86_64, "aarch64": aarch64}.get(os.uname().machine)


def attempt(name, act):
    try:
        act()
    except OSError as error:
        print(f"{name}={errno.errorcode.get(error.errno, error)}", flush=True)
    else:
        print(f"{name}=done", flush=True)


def write(path, text):
    with open(path, "w") as file:
        file.write(text)
"""
