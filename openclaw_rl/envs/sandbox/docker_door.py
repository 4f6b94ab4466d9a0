"""The way from a container to the gateway, and to nothing else: a second container in its network, and a Unix socket.

The second one runs `forwarder.py` with the Python of this machine. What connects to the box's loopback there comes out
at a socket that is bound into it, where a `GatewayDoor` accepts it; the box itself sees nothing of either.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from openclaw_rl.envs.sandbox.box import GATEWAY_IN_THE_BOX
from openclaw_rl.envs.sandbox.docker_cli import ASK_S
from openclaw_rl.envs.sandbox.docker_images import machine_image
from openclaw_rl.envs.sandbox.docker_options import door_options
from openclaw_rl.envs.sandbox.door import GatewayDoor
from openclaw_rl.errors import EnvError

_START_S = 60.0
_PLACE = "/run/openclaw-rl"
_SOCKET = "gateway"
_TAIL = 2000
_PYTHON = Path(sys.executable).resolve()
_FORWARDER = Path(__file__).with_name("forwarder.py")


class DockerDoor:
    """Of one container. `open` it once it runs, and `close` it whatever happens."""

    def __init__(self, beside: str) -> None:
        self._beside = beside
        self._folder = Path(tempfile.mkdtemp(prefix="openclaw-rl-"))
        self._life: asyncio.subprocess.Process | None = None
        self._out: GatewayDoor | None = None

    async def open(self, gateway: str) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._folder / _SOCKET))
        listener.listen(128)
        self._folder.chmod(0o711)
        (self._folder / _SOCKET).chmod(0o666)  # root of a container need not be root here
        self._out = await GatewayDoor.open(gateway, listener)
        shown = {_PLACE: self._folder}
        if not _PYTHON.is_relative_to("/usr"):
            shown[str(_PYTHON.parent.parent)] = _PYTHON.parent.parent
        options = door_options(f"{self._beside}-door", beside=self._beside, shown=shown)
        image, port = await asyncio.to_thread(machine_image), urlsplit(GATEWAY_IN_THE_BOX).port
        code = await asyncio.to_thread(_FORWARDER.read_text)
        run = ['exec "$@"', "door", str(_PYTHON), "-I", "-S", "-B", "-c", code, str(port), f"{_PLACE}/{_SOCKET}"]
        self._life = await asyncio.create_subprocess_exec(
            *("docker", *options, image, "-c", *run),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._life.stdout is not None
        try:
            async with asyncio.timeout(_START_S):
                if (said := await self._life.stdout.readline()) != b"ready\n":
                    said += await self._life.stdout.read(_TAIL)
                    raise EnvError(f"no way to the gateway could be made: {said.decode(errors='replace').strip()}")
        except TimeoutError:
            raise EnvError(f"no way to the gateway came up within {_START_S:g} s") from None

    async def close(self) -> None:
        """It ends with the pipe that it reads from."""
        if self._out is not None:
            await self._out.close()
        if self._life is not None and self._life.stdin is not None:
            self._life.stdin.close()
            try:
                async with asyncio.timeout(ASK_S):
                    await self._life.wait()
            except TimeoutError:
                self._life.kill()
                await self._life.wait()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
