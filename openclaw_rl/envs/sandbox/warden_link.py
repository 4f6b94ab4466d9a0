"""The warden, seen from the event loop: requests to it, and its life.

Sockets here belong to no event loop; whoever waits for one does so in the loop that is running.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import openclaw_rl
from openclaw_rl.envs.sandbox.warden import wire
from openclaw_rl.errors import EnvError, TaskError

_PACKAGES = str(Path(openclaw_rl.__file__).parents[1])
_START = """
import sys
sys.path.append(sys.argv[1])
from openclaw_rl.envs.sandbox.warden.service import main
main(sys.argv[2], sys.argv[3])
"""


class WardenLink:
    """A warden that runs. It ends when this is no longer referred to, with all its boxes."""

    def __init__(self, scratch: Path) -> None:
        bubblewrap = shutil.which("bwrap")
        if bubblewrap is None:
            raise EnvError("bubblewrap is not there any more")
        wire.open_more_files()
        ours, theirs = wire.pair()
        try:
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", _START, _PACKAGES, bubblewrap, str(scratch.absolute())],
                {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ},
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)],
                setsid=True,  # a Ctrl-C is for us
            )
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._close = weakref.finalize(self, _end, ours, self.pid)

    @property
    def has_died(self) -> bool:
        """Whether it is known to be gone: nobody but the warden has the other end."""
        if self._close.alive:
            with suppress(BlockingIOError, OSError):
                if not self._socket.recv(1, socket.MSG_PEEK):
                    self._close()
        return not self._close.alive

    def close(self) -> None:
        self._close()

    def send_blocking(self, message: Mapping[str, object], answers: int) -> None:
        """To a warden that was just started, and nobody else asks."""
        wire.send(self._socket, message, (answers,))

    async def ask(
        self, message: Mapping[str, object], descriptors: Sequence[int] = ()
    ) -> tuple[dict[str, object], list[int]]:
        """What is answered first."""
        answers = await self.call(message, descriptors)
        try:
            return await answered(answers)
        finally:
            answers.close()

    async def call(self, message: Mapping[str, object], descriptors: Sequence[int] = ()) -> socket.socket:
        """Sends a request; the socket is where its answers come."""
        ours, theirs = wire.pair()
        ours.setblocking(False)
        try:
            await sent(self._socket, message, (theirs.fileno(), *descriptors))
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours


async def answered(answers: socket.socket) -> tuple[dict[str, object], list[int]]:
    """The next answer; `EnvError` where none can come any more."""
    while True:
        try:
            if (got := wire.receive(answers)) is not None:
                return got
        except BlockingIOError:
            await readable(answers.fileno())
            continue
        except ConnectionError:
            pass  # it went while it was about to say something
        raise EnvError("the box is gone: something outside of it ended its processes")


async def sent(end: socket.socket, message: Mapping[str, object], descriptors: Sequence[int]) -> None:
    while True:
        try:
            return wire.send(end, message, descriptors)
        except BlockingIOError:
            await writable(end.fileno())
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise TaskError(f"a command and its environment take at most {wire.MAX_PACKET} bytes") from None
            raise EnvError(f"the box is gone: {error.strerror}") from None


async def readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(descriptor, _note, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(descriptor, _note, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


def _note(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _end(link: socket.socket, pid: int) -> None:
    """It notices, ends its boxes, and goes; nothing waits for that here."""
    link.close()
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
