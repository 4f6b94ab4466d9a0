"""A `BoxSpec` -> a container of Docker, by its command line. Nothing else of Docker is used.

A box of this machine's programs is a container too: of an image that holds next to nothing, with /usr bound into it.

A container lives as long as a `docker run` of ours that it reads from: whoever kills this process ends it too, as the
pipe closes. What is left by an engine that was away is removed when the next sandbox is made.

It was written against the documented behaviour of the command line, and tested against a program that stands in for it;
no engine has run it yet.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from openclaw_rl.envs.sandbox.box import BoxSpec
from openclaw_rl.envs.sandbox.commands import BoxCommands
from openclaw_rl.envs.sandbox.docker_cli import ASK_S, docker, told
from openclaw_rl.envs.sandbox.docker_door import DockerDoor
from openclaw_rl.envs.sandbox.docker_files import FILE_S, copy_tree_out, read_file
from openclaw_rl.envs.sandbox.docker_images import has_machine_programs, image_of
from openclaw_rl.envs.sandbox.docker_options import LABEL, box_options, maker_of
from openclaw_rl.envs.sandbox.files import checked_path
from openclaw_rl.envs.sandbox.output import Output, output_pipe
from openclaw_rl.errors import EnvError, TaskError

_START_S = 120.0
_TAIL = 2000

_LIVE = 'mkdir -p -- "$1" && echo ready && exec cat >/dev/null'
_BEGIN = 'echo $$; exec "$@"'
"""A command says which process it is, so that it can be ended: killing `docker exec` leaves it running."""
_END = """
for about in /proc/[0-9]*/stat; do
  { read -r line <"$about"; } 2>/dev/null || continue
  process=${about#/proc/}
  set -- "$1" ${line##*) }
  [ "$5" = "$1" ] && kill -9 "${process%/stat}"
done
"""
_WRITE = """
mkdir -p -- "$(dirname -- "$1")" || exit
[ -f "$1" ] || [ ! -e "$1" ] || { echo "it is not a regular file" >&2; exit 1; }
cat >"$1" && chmod "$2" "$1"
"""


class DockerSandbox:
    """Makes boxes with the `docker` that is on the path."""

    name = "docker"

    def __init__(self) -> None:
        self._is_proven = False

    def lacks(self) -> str:
        """Asks the engine; and removes what it has of makers that are gone."""
        if self._is_proven:
            return ""
        if shutil.which("docker") is None:
            return "Docker is not installed; remedy: install it"
        try:
            asked = docker("version", "--format", "{{.Server.Version}}", timeout_s=ASK_S)
            if asked.returncode:
                return f"no Docker engine answers: {told(asked)}; remedy: start it, or allow this account to use it"
            _sweep()
        except subprocess.TimeoutExpired:
            return f"no Docker engine answered within {ASK_S:g} s; remedy: start it anew"
        self._is_proven = True
        return ""

    async def start(self, spec: BoxSpec) -> DockerBox:
        if reason := await asyncio.to_thread(self.lacks):
            raise EnvError(f"no box can be made here: {reason}")
        image = await asyncio.to_thread(image_of, spec)
        box = DockerBox(spec, f"openclaw-rl-{os.getpid()}-{secrets.token_hex(6)}")
        try:
            await box.open(image)
        except BaseException:
            await box.close()
            raise
        return box


class DockerBox(BoxCommands):
    """A container that runs, until it is closed."""

    def __init__(self, spec: BoxSpec, container: str) -> None:
        super().__init__("/bin/sh", spec.limits.output_bytes)
        self._spec = spec
        self.container = container
        self._life: asyncio.subprocess.Process | None = None
        self._door: DockerDoor | None = None
        self._closing: asyncio.Task[None] | None = None

    async def open(self, image: str) -> None:
        for place, tree in self._spec.trees.items():
            if not await asyncio.to_thread(tree.is_dir):
                raise TaskError(f"{tree} is to be in a box at {place}, and is no folder")
        arguments = [*box_options(self._spec, self.container), image, "-c", _LIVE, "live", self._spec.workdir]
        self._life = await asyncio.create_subprocess_exec(
            *("docker", *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self._life.stdout is not None
        try:
            async with asyncio.timeout(_START_S):
                if (said := await self._life.stdout.readline()) != b"ready\n":
                    more = await self._life.stdout.read(_TAIL)
                    raise EnvError(f"no box could be made: {(said + more).decode(errors='replace').strip()}")
        except TimeoutError:
            raise EnvError(f"no box came up within {_START_S:g} s") from None
        for place, tree in self._spec.trees.items():
            await self._ask("exec", self.container, "mkdir", "-p", "--", place)
            await self._ask("cp", f"{tree}/.", f"{self.container}:{place}")
        if (await asyncio.to_thread(docker, "exec", self.container, "test", "-x", "/bin/bash")).returncode == 0:
            self._program = "/bin/bash"
        if self._spec.gateway and has_machine_programs():
            self._door = DockerDoor(self.container)
            await self._door.open(self._spec.gateway)

    async def read(self, path: str, *, max_bytes: int) -> bytes | None:
        self.check_open()
        return await asyncio.to_thread(read_file, self.container, checked_path(path), max_bytes)

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        self.check_open()
        command = ("exec", "-i", self.container, "/bin/sh", "-c", _WRITE, "write", checked_path(path), f"{mode:o}")
        try:
            done = await asyncio.to_thread(docker, *command, data=data, timeout_s=FILE_S)
        except subprocess.TimeoutExpired:
            raise TaskError(f"{path} was not written within {FILE_S:g} s") from None
        if done.returncode:
            raise TaskError(f"{path} cannot be written: {told(done)}")

    async def copy_out(self, path: str, to: Path, *, max_bytes: int) -> None:
        self.check_open()
        await asyncio.to_thread(copy_tree_out, self.container, checked_path(path), to, max_bytes)

    async def keep_layer(self, to: Path) -> None:
        """An image of the engine; the file `to` says which."""
        self.check_open()
        image = await self._ask("commit", self.container)
        await asyncio.to_thread(to.parent.mkdir, parents=True, exist_ok=True)
        await asyncio.to_thread(to.write_text, image)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._door is not None:
            await self._door.close()
        if self._life is None:
            return
        with suppress(EnvError):  # it is gone, or the engine is
            await self._ask("rm", "--force", "--volumes", self.container)
        if self._life.stdin is not None:
            self._life.stdin.close()
        try:
            async with asyncio.timeout(ASK_S):
                await self._life.wait()
        except TimeoutError:
            self._life.kill()
            await self._life.wait()
        await self._close_commands()

    def check_open(self) -> None:
        if self._closing is not None:
            raise EnvError("the box is closed")
        if self._life is None or self._life.returncode is not None:
            raise EnvError("the box is gone: its container ended")

    async def _begin(self, argv: Sequence[str], stdin: int, env: Mapping[str, str]) -> DockerCommand:
        variables = [part for name, value in env.items() for part in ("--env", f"{name}={value}")]
        command = ["exec", "-i", *variables, "--workdir", self._spec.workdir, self.container]
        command += ["/bin/sh", "-c", _BEGIN, "begin", *argv]
        return await DockerCommand.start(self, command, stdin=stdin, max_kept=self._max_kept)

    async def _ask(self, *arguments: str) -> str:
        try:
            done = await asyncio.to_thread(docker, *arguments, timeout_s=_START_S)
        except subprocess.TimeoutExpired:
            raise EnvError(f"docker {arguments[0]} was not done within {_START_S:g} s") from None
        if done.returncode:
            raise EnvError(f"docker {arguments[0]} failed: {told(done)}")
        return done.stdout.decode(errors="replace").strip()


class DockerCommand:
    """A `RunningCommand`: one `docker exec`. `begun`: what it said first, which is its number in the container."""

    def __init__(self, box: DockerBox, process: asyncio.subprocess.Process, begun: str, output: Output) -> None:
        self.output = output
        self._box = box
        self._process = process
        self._number = begun if begun.isdecimal() else ""
        if not self._number:
            output.kept += f"{begun}\n".encode()
        self.ended = asyncio.create_task(self._wait())

    @classmethod
    async def start(cls, box: DockerBox, arguments: list[str], *, stdin: int, max_kept: int) -> DockerCommand:
        reads, writes = output_pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                "docker", *arguments, stdin=stdin, stdout=writes, stderr=writes, start_new_session=True
            )
        except OSError as error:  # such as more variables than a command may have
            os.close(reads)
            raise TaskError(f"no command could be started: {error.strerror}") from None
        finally:
            os.close(writes)
        begun = await asyncio.to_thread(_first_line, reads)
        return cls(box, process, begun, Output(reads, max_kept))

    async def stop(self) -> None:
        if self._number and not self.ended.done():
            end = ("exec", self._box.container, "/bin/sh", "-c", _END, "end", self._number)
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(docker, *end, timeout_s=ASK_S)
        await asyncio.wait((self.ended,), timeout=ASK_S)

    async def close(self) -> None:
        if not self.ended.done():
            await self.stop()
        if not self.ended.done():
            with suppress(ProcessLookupError):
                self._process.kill()
            await asyncio.wait((self.ended,))
        if not self.ended.cancelled():
            self.ended.exception()  # whoever wanted to know has asked
        self.output.forget()

    async def _wait(self) -> int:
        code = await self._process.wait()
        self._box.check_open()
        return code


def _sweep() -> None:
    """Removes containers whose maker was a process of this machine that is gone."""
    listed = docker("ps", "--all", "--filter", f"label={LABEL}", "--format", f'{{{{.ID}}}} {{{{.Label "{LABEL}"}}}}')
    for line in listed.stdout.decode().splitlines():
        container, _, maker = line.partition(" ")
        process = maker.rpartition(":")[2]
        if maker == maker_of(process) and not _is_alive(int(process)):
            docker("rm", "--force", "--volumes", container)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is somebody else's
    return True


def _first_line(pipe: int) -> str:
    """What a command says before its own output; empty where it says nothing."""
    said = b""
    while not said.endswith(b"\n") and len(said) < 100 and (more := os.read(pipe, 1)):
        said += more
    return said.decode(errors="replace").strip()
