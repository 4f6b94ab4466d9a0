"""A `BoxSpec` -> a box of bubblewrap: namespaces and a root of its own, over the programs of this machine or an image.

It does not know what a box is for.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from openclaw_rl.envs.sandbox.box import BoxSpec
from openclaw_rl.errors import EnvError, TaskError
from openclaw_rl.types import Ran

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_LISTEN = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 8780))
socket.send_fds(socket.socket(fileno=int(sys.argv[1])), [b"."], [listener.fileno()])
"""


class BubblewrapSandbox:
    """Makes boxes with bubblewrap."""

    name = "bubblewrap"

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def lacks(self) -> str:
        if shutil.which("bwrap") is None:
            return "bubblewrap is not installed; `apt-get install bubblewrap`"
        return ""

    async def start(self, spec: BoxSpec) -> BubblewrapBox:
        if lacks := self.lacks():
            raise EnvError(lacks)
        await asyncio.to_thread(self._scratch.mkdir, parents=True, exist_ok=True)
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self._scratch))
        box = BubblewrapBox(spec, folder)
        try:
            await box.open()
        except BaseException:
            await box.close()
            raise
        return box


class BubblewrapBox:
    def __init__(self, spec: BoxSpec, folder: Path) -> None:
        self._spec = spec
        self._folder = folder
        self._init: Process | None = None
        self._pid = 0
        self._shell: Process | None = None
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._mounted: list[Path] = []

    async def open(self) -> None:
        arguments = await asyncio.to_thread(self._arguments)
        ours, theirs = os.pipe()
        try:
            self._init = await asyncio.create_subprocess_exec(
                "bwrap",
                *arguments,
                "--info-fd",
                str(theirs),
                "/bin/bash",
                "-c",
                "while read -r; do :; done",
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=PIPE,
                pass_fds=(theirs,),
                env={},
            )
        finally:
            os.close(theirs)
        with os.fdopen(ours) as info:
            said = await asyncio.to_thread(info.read)
        if not said:
            assert self._init.stderr is not None
            raise EnvError(f"bubblewrap made no box: {(await self._init.stderr.read()).decode(errors='replace')}")
        self._pid = json.loads(said)["child-pid"]
        for _ in range(500):
            ran = await self.run("true", timeout_s=10.0)  # until the root is in place
            if ran.exit_code == 0:
                break
            await asyncio.sleep(0.01)
        if self._spec.gateway and self._spec.network == "none":
            await self._open_door(self._spec.gateway)

    def _arguments(self) -> list[str]:
        spec, root = self._spec, self._folder
        root.chmod(0o755)
        arguments = ["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        arguments += ["--hostname", "box", "--new-session", "--clearenv"]
        if spec.network == "none":
            arguments += ["--unshare-net"]
        if spec.layers:
            upper, work, merged = root / "upper", root / "overlay", root / "merged"
            for made in (upper, work, merged):
                made.mkdir()
            lower = ":".join(str(layer) for layer in reversed(spec.layers))
            options = f"lowerdir={lower},upperdir={upper},workdir={work}"
            done = subprocess.run(
                ["mount", "-t", "overlay", "overlay", "-o", options, str(merged)], capture_output=True, text=True
            )
            if done.returncode:
                raise EnvError(f"the layers of an image cannot be mounted: {done.stderr}")
            self._mounted.append(merged)
            arguments += ["--bind", str(merged), "/"]
            arguments += ["--dev", "/dev", "--proc", "/proc"]
        else:
            arguments += ["--ro-bind", "/usr", "/usr"]
            for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
                if Path("/", name).exists():
                    arguments += ["--symlink", f"usr/{name}", f"/{name}"]
            etc = root / "etc"
            etc.mkdir()
            (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\n")
            (etc / "group").write_text("root:x:0:\nnogroup:x:65534:\n")
            (etc / "hosts").write_text("127.0.0.1 localhost box\n")
            for name in ("ld.so.cache", "nsswitch.conf", "services", "protocols"):
                if Path("/etc", name).exists():
                    shutil.copy(Path("/etc", name), etc / name)
            if spec.network == "full":
                shutil.copy("/etc/resolv.conf", etc / "resolv.conf")
            arguments += ["--bind", str(etc), "/etc"]
            for name in ("alternatives", "ssl"):
                if Path("/etc", name).exists():
                    arguments += ["--ro-bind", f"/etc/{name}", f"/etc/{name}"]
            arguments += ["--dev", "/dev", "--proc", "/proc"]
            for name in ("root", "home", "work", "var"):
                (root / name).mkdir()
                arguments += ["--bind", str(root / name), f"/{name}"]
        arguments += ["--perms", "1777", "--tmpfs", "/tmp"]
        for place, source in spec.read_only.items():
            arguments += ["--ro-bind", str(source), place]
        for number, (place, source) in enumerate(spec.trees.items()):
            copy = root / f"tree{number}"
            subprocess.run(["cp", "-a", "--no-preserve=ownership", str(source), str(copy)], check=True)
            arguments += ["--bind", str(copy), place]
        if not any(spec.workdir == place or spec.workdir.startswith(place + "/") for place in spec.trees):
            arguments += ["--dir", spec.workdir]
        arguments += ["--chdir", spec.workdir]
        return arguments

    def _enter(self, *command: str) -> list[str]:
        go = ("/bin/bash", "-c", 'cd -- "$0" && exec "$@"', self._spec.workdir)
        return ["nsenter", "-t", str(self._pid), "-a", *go, *command]

    def _env(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        return (
            {"PATH": _PATH, "HOME": "/root", "TERM": "dumb", "LANG": "C.UTF-8"} | dict(self._spec.env) | dict(env or {})
        )

    async def shell(self, command: str, *, timeout_s: float) -> Ran:
        if self._shell is None or self._shell.returncode is not None:
            self._shell = await asyncio.create_subprocess_exec(
                *self._enter("/bin/bash", "--noprofile", "--norc"),
                stdin=PIPE,
                stdout=PIPE,
                stderr=STDOUT,
                env=self._env(),
                start_new_session=True,
            )
        shell = self._shell
        assert shell.stdin is not None
        assert shell.stdout is not None
        sentinel = secrets.token_hex(16)
        shell.stdin.write(f"{{ eval {_quoted(command)}\n}} </dev/null; printf '\\n%s %d\\n' {sentinel} $?\n".encode())
        kept, total = bytearray(), 0
        marker = f"\n{sentinel} ".encode()
        tail = b""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    data = await shell.stdout.read(65536)
                    if not data:
                        return self._ran(await shell.wait(), kept, total)
                    tail = (tail + data)[-65536 - 128 :]
                    kept += data[: self._spec.limits.output_bytes + 128 - len(kept)]
                    total += len(data)
                    at = tail.rfind(marker)
                    if at >= 0 and tail.endswith(b"\n"):
                        code = int(tail[at + len(marker) :])
                        total -= len(tail) - at
                        return self._ran(code, kept[:total], total)
        except TimeoutError:
            os.killpg(shell.pid, signal.SIGKILL)
            await shell.wait()
            self._shell = None
            return self._ran(None, kept, total)

    def _ran(self, code: int | None, kept: bytes | bytearray, total: int) -> Ran:
        limit = self._spec.limits.output_bytes
        return Ran(exit_code=code, output=bytes(kept[:limit]).decode(errors="replace"), is_cut=total > limit)

    async def run(
        self, command: str, *, timeout_s: float, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> Ran:
        code, kept, total = await self._run(
            ["/bin/bash", "-c", command],
            timeout_s=timeout_s,
            env=env,
            stdin=stdin,
            limit=self._spec.limits.output_bytes,
        )
        return self._ran(code, kept, total)

    async def _run(
        self, command: list[str], *, timeout_s: float, env: Mapping[str, str] | None = None, stdin: bytes, limit: int
    ) -> tuple[int | None, bytes, int]:
        process = await asyncio.create_subprocess_exec(
            *self._enter(*command), stdin=PIPE, stdout=PIPE, stderr=STDOUT, env=self._env(env), start_new_session=True
        )
        kept, total = bytearray(), 0

        async def read() -> None:
            nonlocal total
            assert process.stdout is not None
            while data := await process.stdout.read(65536):
                kept.extend(data[: max(0, limit - len(kept))])
                total += len(data)

        async def feed() -> None:
            assert process.stdin is not None
            with suppress(ConnectionError):
                process.stdin.write(stdin)
                await process.stdin.drain()
            process.stdin.close()

        reading, feeding = asyncio.create_task(read()), asyncio.create_task(feed())
        try:
            async with asyncio.timeout(timeout_s):
                code: int | None = await process.wait()
            await asyncio.wait((reading,), timeout=0.1)
        except TimeoutError:
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            for task in (reading, feeding):
                task.cancel()
            await asyncio.wait((reading, feeding))
            await process.wait()
        return code, bytes(kept), total

    async def read(self, path: str, *, max_bytes: int) -> bytes | None:
        code, data, total = await self._run(
            ["/bin/bash", "-c", '[ -f "$0" ] && exec cat -- "$0" 2>/dev/null', path],
            timeout_s=60.0,
            stdin=b"",
            limit=max_bytes,
        )
        if code != 0:
            return None
        if total > max_bytes:
            raise TaskError(f"{path} is larger than {max_bytes} bytes")
        return data

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        code, said, _ = await self._run(
            ["/bin/bash", "-c", f'mkdir -p -- "$(dirname -- "$0")" && cat >"$0" && chmod {mode:o} -- "$0"', path],
            timeout_s=60.0,
            stdin=data,
            limit=4096,
        )
        if code != 0:
            raise EnvError(f"{path} cannot be written in the box: {said.decode(errors='replace')}")

    async def copy_out(self, path: str, to: Path, *, max_bytes: int) -> None:
        await asyncio.to_thread(to.parent.mkdir, parents=True, exist_ok=True)
        source = f"/proc/{self._pid}/root{path}"
        done = await asyncio.to_thread(
            subprocess.run,
            ["cp", "-a", "--no-preserve=ownership", "-T", source, str(to)],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise EnvError(f"{path} cannot be copied out of the box: {done.stderr}")

    async def keep_layer(self, to: Path) -> None:
        await asyncio.to_thread(shutil.copytree, self._folder / "upper", to, symlinks=True)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in tuple(self._links):
            link.cancel()
        if self._links:
            await asyncio.wait(self._links)
        if self._init is not None and self._init.returncode is None:
            self._init.kill()
            assert self._init.stdin is not None
            self._init.stdin.close()
            await self._init.wait()
        if self._shell is not None:
            await self._shell.wait()
        for mounted in self._mounted:
            await asyncio.to_thread(subprocess.run, ["umount", "-l", str(mounted)], check=False)
        self._mounted.clear()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _open_door(self, gateway: str) -> None:
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *("nsenter", "-t", str(self._pid), "-n", sys.executable, "-I", "-c", _LISTEN, str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
            )
            theirs.close()
            _, descriptors, _, _ = await asyncio.to_thread(socket.recv_fds, ours, 1, 1)
            await process.wait()
        finally:
            ours.close()
        listener = socket.socket(fileno=descriptors[0])
        listener.setblocking(False)
        where = urlsplit(gateway)

        async def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._links.add(task)
            task.add_done_callback(self._links.discard)
            try:
                there_reader, there_writer = await asyncio.open_connection(where.hostname, where.port or 80)
            except OSError:
                writer.close()
                return
            try:
                one = asyncio.create_task(_pump(reader, there_writer))
                other = asyncio.create_task(_pump(there_reader, writer))
                try:
                    await asyncio.wait((one, other))
                finally:
                    one.cancel()
                    other.cancel()
            finally:
                writer.close()
                there_writer.close()

        self._server = await asyncio.start_server(link, sock=listener)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
