"""What may be wrong with a server at `engine.url`: one sentence that names what to change; and what it may do later."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from openclaw_rl.engine.worker.wire import merge
from openclaw_rl.errors import ConfigError, EngineError, EngineLost, EngineUnavailable
from openclaw_rl.types import Delta
from tests.engines.bench import Bench, files, make, protocol_server, running
from tests.engines.test_conformance import ask
from tests.fakes.foreign_servers import ForeignServer, SglangServer


def wrong(**facts: Any) -> Callable[[ForeignServer], None]:
    def spoil(server: ForeignServer) -> None:
        for name, value in facts.items():
            assert hasattr(server, name)
            setattr(server, name, value)

    return spoil


WRONG = [
    ("vllm", wrong(version="0.31.1"), "version 0.31.1, and 0.32 or newer is needed: pip install 'vllm>=0.32'"),
    ("sglang", wrong(version="0.5.9"), "version 0.5.9, and 0.5.23 or newer is needed"),
    ("vllm", wrong(key="k"), "asks for a key: set engine.api_key"),
    ("sglang", wrong(key="k"), "asks for a key: set engine.api_key"),
    ("vllm", wrong(name="big", origin="Org/Big"), "serves Org/Big, and model.name=tiny is what would be trained"),
    ("sglang", wrong(rotate=1), "has another tokenizer than tiny"),
    ("vllm", wrong(scale_out=False), "--enable-scale-out"),
    ("vllm", wrong(priorities=False), "--scheduling-policy priority"),
    ("vllm", wrong(max_logprobs=20), "--max-logprobs 21"),
    ("vllm", wrong(at_temperature=False), "--logprobs-mode processed_logprobs"),
    ("sglang", wrong(at_temperature=False), "SGLANG_RETURN_ORIGINAL_LOGPROB"),
    ("vllm", wrong(has_lora=False), "start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"),
    ("sglang", wrong(has_lora=False), "start it with --enable-lora"),
    ("vllm", wrong(max_rank=8), "--max-lora-rank 16"),
]


@pytest.mark.parametrize(("kind", "spoil", "says"), WRONG)
async def test_a_server_that_cannot_be_used_is_refused_with_the_flag(
    tiny: Path, tmp_path: Path, kind: str, spoil: Callable[[ForeignServer], None], says: str
) -> None:
    server = protocol_server(kind, tiny)
    spoil(server)
    await server.start()
    try:
        with pytest.raises(ConfigError, match=re.escape(says)) as error:
            async with running(make(kind, files(tiny), tmp_path, f"engine.url={server.url}")):
                raise AssertionError("it was taken")
        assert "\n" not in str(error.value)
    finally:
        await server.close()


@pytest.fixture
async def website() -> AsyncIterator[str]:
    """A server that is no engine."""
    runner = web.AppRunner(web.Application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_an_address_of_something_else_is_refused(website: str, tiny: Path, tmp_path: Path, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"engine.url={website} is no (vLLM|SGLang) server"):
        async with running(make(kind, files(tiny), tmp_path, f"engine.url={website}")):
            pass


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - nobody tells when
        await asyncio.sleep(0.01)


async def test_a_server_that_is_not_there_yet_is_waited_for(tiny: Path, tmp_path: Path) -> None:
    server = protocol_server("vllm", tiny)
    await server.start()
    await server.kill()  # its port is known now, and free
    host = make("vllm", files(tiny), tmp_path, f"engine.url={server.url}")
    task = asyncio.create_task(host.run())
    try:
        with pytest.raises(EngineUnavailable):
            await host.wait_ready(0.2)
        await server.start()
        assert (await host.wait_ready(30.0)).versions == ("v0",)
    finally:
        await host.engine.close()
        await task
        await server.close()


async def test_a_key_and_another_name_are_sent(tiny: Path, tmp_path: Path) -> None:
    server = protocol_server("vllm", tiny)
    server.key, server.name, server.origin = "k", "big", "Org/Big"
    await server.start()
    settings = (f"engine.url={server.url}/", "engine.api_key=k", "engine.served_model=big")
    try:
        async with running(make("vllm", files(tiny), tmp_path, *settings)) as host:
            deltas = [delta async for delta in host.engine.generate(ask())]
            assert merge(deltas).finish_reason == "length"
            assert len(server.adapters) == 1, "the marker"
        assert server.adapters == {}, "nothing of ours stays in a server that goes on"
    finally:
        await server.close()


async def test_answers_of_a_server_that_changed_are_not_taken_for_the_models(tiny: Path, tmp_path: Path) -> None:
    """It loses what we know it by in mid-answer, as one that was started again with another model would."""
    server = protocol_server("vllm", tiny)
    await server.start()
    try:
        async with running(make("vllm", files(tiny), tmp_path, f"engine.url={server.url}")) as host:
            with pytest.raises(EngineError, match="is another one"):
                await _forget_in_the_middle(host, server)
            server.name, server.origin = "other", "Org/Other"
            await until(lambda: "Org/Other" in (host.last_error or ""))
            assert not host.is_ready, "chat waits for an engine; it is not answered by another model"
    finally:
        await server.close()


@pytest.mark.parametrize(("is_dying", "error"), [(True, EngineLost), (False, EngineError)])
async def test_a_server_whose_model_dies_is_told_from_one_that_fails_over_an_answer(
    tiny: Path, tmp_path: Path, is_dying: bool, error: type[EngineError]
) -> None:
    """What was lost goes on with the next server; what failed would fail again."""
    server = protocol_server("vllm", tiny)
    await server.start()
    try:
        async with running(make("vllm", files(tiny), tmp_path, f"engine.url={server.url}")) as host:
            server.is_failing = True
            async with aclosing(host.engine.generate(ask(max_tokens=60))) as stream:
                await anext(stream)
                server.is_dying = is_dying
                with pytest.raises(EngineError) as told:
                    await _to_its_end(stream)
            assert type(told.value) is error
    finally:
        await server.close()


async def _to_its_end(stream: AsyncIterator[Delta]) -> None:
    async for _ in stream:
        pass


async def _forget_in_the_middle(host: Any, server: ForeignServer) -> None:
    async with aclosing(host.engine.generate(ask(max_tokens=40))) as stream:
        async for _ in stream:
            server.adapters.clear()


async def test_a_version_is_loaded_under_a_name_of_its_own_and_goes_with_its_last_request(
    tiny: Path, tmp_path: Path
) -> None:
    server = protocol_server("vllm", tiny)
    await server.start()
    try:
        async with running(make("vllm", files(tiny), tmp_path, f"engine.url={server.url}")) as host:

            async def kill() -> None: ...

            model = files(tiny)
            bench = Bench(host=host, model=model, adapters=tmp_path / "made", kill=kill, tolerance=1e-4, window=255)
            (marker,) = server.adapters
            await host.engine.publish(bench.version("v1", 1))
            await host.engine.publish(replace(bench.version("v1", 1), live=True))
            await host.engine.publish(bench.version("v2", 2, live=True))
            first, second = (name for name in server.adapters if name != marker)
            assert len({first, second, *server.adapters.values()}) == 5, "a name and a folder each"
            assert server.num_loads == 3, "making a loaded version live loads nothing"
            async with aclosing(host.engine.generate(ask(version="v1", max_tokens=60))) as stream:
                await anext(stream)
                await host.engine.retire("v1")
                assert first in server.adapters
            await until(lambda: first not in server.adapters)
            assert second in server.adapters
    finally:
        await server.close()


async def test_chunks_of_sglang_may_be_new_tokens_or_all(tiny: Path, tmp_path: Path) -> None:
    said = []
    for incremental in (False, True):
        server = protocol_server("sglang", tiny)
        assert isinstance(server, SglangServer)
        server.incremental = incremental
        await server.start()
        try:
            async with running(make("sglang", files(tiny), tmp_path, f"engine.url={server.url}")) as host:
                said.append(merge([delta async for delta in host.engine.generate(ask(top_logprobs=2))]))
        finally:
            await server.close()
    assert said[0] == said[1]
