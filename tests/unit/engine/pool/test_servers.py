"""A pool over servers that run elsewhere: real scripted workers behind TCP."""

from __future__ import annotations

import asyncio
import signal
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from tokenizers import Tokenizer

from openclaw_rl.config import EngineConfig
from openclaw_rl.engine.pool.hosts import pool_of_servers
from openclaw_rl.engine.worker.client import SocketEngine
from openclaw_rl.engine.worker.hosts import SCRIPTED
from openclaw_rl.errors import EngineError, EngineUnavailable
from openclaw_rl.protocols import Engine
from openclaw_rl.types import EngineState, Publication
from tests.fakes.pools import settled
from tests.unit.engine.prompts import ask, chat, saved, until_error, whole
from tests.unit.engine.worker.test_process import command, ready, start

TEXT = "one two three four five six seven eight nine ten eleven twelve"


class _Server(SocketEngine):
    """Its host knows what it has loaded, as hosts do."""

    def __init__(self, url: str, host: Attached) -> None:
        super().__init__(url)
        self._attached = host

    async def publish(self, publication: Publication) -> None:
        await super().publish(publication)
        self._attached.state = await self.state()


class Attached:
    """A host of a server that somebody else runs: asks it until it answers, and again when it was lost."""

    capabilities = SCRIPTED
    num_restarts = 0

    def __init__(self, url: str, name: str) -> None:
        self.engine: Engine = _Server(url, self)
        self.name, self.state, self.last_error = name, None, None
        self.is_ready = False
        self._over = asyncio.Event()

    state: EngineState | None
    last_error: str | None

    async def wait_ready(self, timeout_s: float | None = None) -> EngineState:
        for _ in range(500):
            with suppress(EngineError):
                self.state, self.is_ready = await self.engine.state(), True
                return self.state
            await asyncio.sleep(0.01)
        raise EngineUnavailable("it does not answer")

    async def run(self) -> None:
        await self._over.wait()
        await self.engine.close()

    async def stop(self) -> None:
        self._over.set()


@asynccontextmanager
async def served_on_tcp(socket: Path, folder: Path, options: str) -> AsyncIterator[tuple[Process, str]]:
    """A scripted worker, and the URL of a door to its socket."""
    process = await start(*command(socket, folder, options))
    await ready(process)
    open_ends: set[StreamWriter] = set()

    async def pump(reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def enter(reader: StreamReader, writer: StreamWriter) -> None:
        open_ends.add(writer)
        try:
            to_worker = await asyncio.open_unix_connection(str(socket))
        except OSError:
            writer.close()
            return
        open_ends.add(to_worker[1])
        await asyncio.gather(pump(reader, to_worker[1]), pump(to_worker[0], writer))

    door = await asyncio.start_server(enter, "127.0.0.1", 0)
    try:
        yield process, f"http://127.0.0.1:{door.sockets[0].getsockname()[1]}"
    finally:
        for end in open_ends:
            end.close()
        door.close()
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def test_servers_answer_as_one_and_one_may_die(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    request = replace(ask(chat(tokenizer, TEXT)), conversation="s-1")
    async with AsyncExitStack() as cleanup:
        made = [
            await cleanup.enter_async_context(
                served_on_tcp(tmp_path / f"{number}.sock", tokenizer_folder, '{"tokens_per_s": 100}')
            )
            for number in range(2)
        ]
        urls = tuple(url for _, url in made)
        config = EngineConfig(silent_s=5, urls=urls)
        pool = pool_of_servers(config, tmp_path, lambda one, _, name: Attached(str(one.url), name), name="engine")
        running = asyncio.create_task(pool.run())
        try:
            await settled(pool)
            expected = await whole(pool.engine, request)
            await pool.engine.publish(saved(tmp_path, "v1"))
            assert set(pool.scorers(["v1"])) == {url.removeprefix("http://") for url in urls}
            home = pool.roster.choose("ann\0s-1", None, [])
            assert home is not None
            asking = asyncio.create_task(until_error(pool.engine, request))
            await asyncio.sleep(0.05)
            made[pool.members.index(home)][0].send_signal(signal.SIGKILL)
            told, error = await asking
            assert error is not None, "its caller goes on"
            rest = await whole(pool.engine, replace(request, token_ids=[*request.token_ids, *told]))
            assert (*told, *rest.token_ids) == expected.token_ids
            assert rest.version == "v1"
            assert (await whole(pool.engine, request)).token_ids == expected.token_ids
        finally:
            await pool.stop()
            assert running.done()
