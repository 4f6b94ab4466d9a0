"""The server and its client over a real socket, in one process."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from openclaw_rl.engine.scripted import ScriptedAnswer, ScriptedEngine, ScriptedOptions
from openclaw_rl.engine.worker import wire
from openclaw_rl.engine.worker.client import SocketEngine
from openclaw_rl.engine.worker.server import EngineServer
from openclaw_rl.errors import EngineError, EngineLost, EngineRefused, EngineUnavailable
from openclaw_rl.types import Delta, EngineState, GenerateRequest, Publication, Scored, ScoreRequest
from tests.unit.engine.prompts import BASE_AGAIN, all_deltas, ask, chat, saved, until_error, whole

SCORE = "/inference/v1/score"
SLOW = ScriptedAnswer(match="slow", reply="word " * 200)


class WatchedEngine(ScriptedEngine):
    """Scripted; says when an answer begins and ends, changes version after 2 tokens, fails where it is told to."""

    def __init__(self, folder: Path, *replies: ScriptedAnswer, **options: Any) -> None:
        super().__init__(folder, ScriptedOptions(replies=replies, **options))
        self.begun, self.ended = asyncio.Event(), asyncio.Event()
        self.failure: Exception | None = None
        self.fail_at = 0

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        num_sent = 0
        try:
            self.begun.set()
            async with aclosing(super().generate(request)) as deltas:
                async for delta in deltas:
                    if self.failure is not None and num_sent >= self.fail_at:
                        raise self.failure
                    yield delta
                    num_sent += len(delta.token_ids)
        finally:
            self.ended.set()

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        try:
            self.begun.set()
            if self.failure is not None:
                raise self.failure
            return await super().score(request)
        finally:
            self.ended.set()


class SlowToLoad(ScriptedEngine):
    """Scripted; a publication waits until it may go on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ScriptedOptions())
        self.loads, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def publish(self, publication: Publication) -> None:
        self.loads.set()
        await self.may_go_on.wait()
        await super().publish(publication)


def scoring(*sequences: tuple[int, ...], request_id: str = "s", **options: Any) -> ScoreRequest:
    return ScoreRequest(request_id=request_id, sequences=sequences, starts=(1,) * len(sequences), **options)


def versions(state: EngineState) -> tuple[tuple[str, ...], str]:
    return state.versions, state.live_version


@asynccontextmanager
async def serving(engine: ScriptedEngine, tmp_path: Path, **limits: int) -> AsyncIterator[SocketEngine]:
    server = EngineServer(engine, tmp_path / "e.sock", **limits)
    await server.start()
    client = SocketEngine(tmp_path / "e.sock")
    try:
        yield client
    finally:
        await client.close()
        await server.close()


async def exchange(tmp_path: Path, data: bytes) -> tuple[int, Any]:
    """Sends raw bytes; the status and JSON body of the answer."""
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "e.sock"))
    writer.write(data)
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length"))
    body = json.loads(await reader.readexactly(length))
    writer.close()
    return int(head.split(" ")[1]), body


def post(path: str, value: Any) -> bytes:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return b"POST %b HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(body), body)


async def test_the_answer_over_the_socket_is_the_answer(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    engine = WatchedEngine(tokenizer_folder, versions=("v0", "v1"))
    async with serving(engine, tmp_path) as client:
        for number, version in enumerate((None, "v0")):
            request = ask(chat(tokenizer, "hello"), f"r{number}", version, top_logprobs=2, seed=3)
            assert await whole(client, request) == await whole(engine, request)
        assert await client.state() == await engine.state()


async def test_a_whole_answer_has_ids_spans_and_usage(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    engine = WatchedEngine(tokenizer_folder)
    request = ask(chat(tokenizer, "hello"))
    async with serving(engine, tmp_path):
        status, body = await exchange(
            tmp_path, post("/inference/v1/generate", wire.request_to_json(request, stream=False))
        )
    assert status == 200
    expected = await whole(engine, request)
    assert wire.delta_from_json(body) == expected
    num_tokens = len(expected.token_ids)
    assert body["choices"][0]["weight_versions"] == [{"version": "v0", "start": 0, "end": num_tokens}]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (len(request.token_ids), num_tokens)


async def test_a_stream_is_server_sent_events(tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    engine = WatchedEngine(tokenizer_folder)
    request = ask(chat(tokenizer, "hello"))
    async with serving(engine, tmp_path):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "e.sock"))
        writer.write(post("/inference/v1/generate", wire.request_to_json(request)))
        head = await reader.readuntil(b"\r\n\r\n")
        chunks = []
        while size := int(await reader.readline(), 16):
            chunks.append(await reader.readexactly(size))
            assert await reader.readexactly(2) == b"\r\n"
        writer.close()
    assert b"text/event-stream" in head
    events = b"".join(chunks).decode().removesuffix("\n\n").split("\n\n")
    assert events.pop() == "data: [DONE]"
    raws = [json.loads(event.removeprefix("data: ")) for event in events]
    assert len(raws) > 2
    assert ["usage" in raw for raw in raws] == [False] * (len(raws) - 1) + [True]
    assert wire.merge([wire.delta_from_json(raw) for raw in raws]) == await whole(engine, request)


async def test_connections_are_used_again(tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    server = EngineServer(WatchedEngine(tokenizer_folder), tmp_path / "e.sock")
    await server.start()
    client = SocketEngine(tmp_path / "e.sock")
    for number in range(5):
        # Leaving right after the last delta, as a caller that looks for the finish reason does.
        async with aclosing(client.generate(ask(chat(tokenizer, "hello"), f"r{number}"))) as deltas:
            async for delta in deltas:
                if delta.finish_reason is not None:
                    break
        assert len(server._connections) == 1
    await client.close()
    await server.close()


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (post("/inference/v1/generate", b"{nope"), 400, "invalid_request"),
        (post("/inference/v1/generate", []), 400, "invalid_request"),
        (post("/inference/v1/generate", b"\xff\xff"), 400, "invalid_request"),
        (post("/inference/v1/generate", wire.request_to_json(ask([1], version="v9"))), 404, "version_not_found"),
        (post("/inference/v1/generate", wire.request_to_json(ask([1] * 50))), 400, "context_length_exceeded"),
        (post("/inference/v1/abort_requests", {"request_ids": 3}), 400, "invalid_request"),
        (post("/inference/v1/generate", wire.request_to_json(ask([5000]))), 400, "token_out_of_vocabulary"),
        (post(SCORE, []), 400, "invalid_request"),
        (post(SCORE, wire.score_request_to_json(scoring((1,) * 51))), 400, "context_length_exceeded"),
        (
            post(SCORE, wire.score_request_to_json(scoring((1, 2), version="v9"))),
            404,
            "version_not_found",
        ),
        (post("/v1/versions/publish", {"version": "v1"}), 400, "invalid_request"),
        (post("/v1/versions/publish", {"version": "x", "weights": None}), 400, "invalid_version"),
        (
            post("/v1/versions/publish", {"version": "v0", "weights": {"uri": "file:/x", "sha256": "x"}}),
            409,
            "version_conflict",
        ),
        (post("/v1/versions/retire", {}), 400, "invalid_request"),
        (post("/v1/versions/retire", {"version": "v0"}), 409, "version_is_base"),
        (post("/v1/versions/retire", {"version": "v9"}), 404, "version_not_found"),
        (b"GET /v1/versions/publish HTTP/1.1\r\n\r\n", 404, "not_found"),
        (post("/elsewhere", {}), 404, "not_found"),
        (b"GET /inference/v1/generate HTTP/1.1\r\n\r\n", 404, "not_found"),
        (b"nonsense\r\n\r\n", 400, "bad_request"),
        (post("/health", b"x" * 2001), 413, "bad_request"),
    ],
)
async def test_a_wrong_request_gets_its_status(
    tokenizer_folder: Path, tmp_path: Path, data: bytes, status: int, code: str
) -> None:
    engine = WatchedEngine(tokenizer_folder, context_window=50)
    async with serving(engine, tmp_path, max_body_bytes=2000) as client:
        got, body = await exchange(tmp_path, data)
        assert (got, body["error"]["code"]) == (status, code)
        assert await client.state() == await engine.state()


async def test_a_refusal_reaches_the_caller_as_one(tokenizer_folder: Path, tmp_path: Path) -> None:
    async with serving(WatchedEngine(tokenizer_folder, context_window=5), tmp_path) as client:
        _, error = await until_error(client, ask([1] * 5))
        assert isinstance(error, EngineRefused)
        assert (error.status, error.code) == (400, "context_length_exceeded")
        assert "5 tokens" in str(error)


async def test_too_many_requests_are_turned_away(tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    engine = WatchedEngine(tokenizer_folder, SLOW, tokens_per_s=100.0)
    async with serving(engine, tmp_path, max_requests=1) as client:
        async with aclosing(client.generate(ask(chat(tokenizer, "slow"), "first"))) as first:
            await anext(first)
            _, error = await until_error(client, ask(chat(tokenizer, "hello"), "second"))
            assert isinstance(error, EngineUnavailable)
        await engine.ended.wait()


async def test_only_the_owner_may_connect(tokenizer_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "e.sock"
    path.write_text("stale")
    async with serving(WatchedEngine(tokenizer_folder), tmp_path) as client:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        await client.state()
    assert not path.exists()


async def test_closing_the_iterator_cancels(tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    engine = WatchedEngine(tokenizer_folder, SLOW, tokens_per_s=100.0)
    async with serving(engine, tmp_path) as client:
        async with aclosing(client.generate(ask(chat(tokenizer, "slow")))) as deltas:
            await anext(deltas)
        await engine.ended.wait()


async def test_a_peer_that_leaves_before_the_first_token_cancels(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    engine = WatchedEngine(tokenizer_folder, first_token_delay_s=3600.0)
    async with serving(engine, tmp_path) as client:
        task = asyncio.ensure_future(all_deltas(client, ask(chat(tokenizer, "hello"))))
        await engine.begun.wait()
        task.cancel()
        await engine.ended.wait()


async def test_abort_ends_the_named_request(tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    engine = WatchedEngine(tokenizer_folder, SLOW, first_token_delay_s=3600.0, versions=("v5",))
    async with serving(engine, tmp_path) as client:
        task = asyncio.ensure_future(all_deltas(client, ask(chat(tokenizer, "slow"), "this")))
        await engine.begun.wait()
        abort = post("/inference/v1/abort_requests", {"request_ids": ["this", "other", 3]})
        assert await exchange(tmp_path, abort) == (200, {"aborted": 1})
        assert await task == [Delta(token_ids=(), logprobs=(), version="v5", finish_reason="abort")]
        assert await exchange(tmp_path, abort) == (200, {"aborted": 0})


@pytest.mark.parametrize(
    ("failure", "message"),
    [(EngineError("out of memory"), "out of memory"), (ZeroDivisionError(), "ZeroDivisionError")],
)
@pytest.mark.parametrize("fail_at", [0, 3])
async def test_a_failure_costs_one_request(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path, failure: Exception, message: str, fail_at: int
) -> None:
    engine = WatchedEngine(tokenizer_folder)
    engine.failure, engine.fail_at = failure, fail_at
    request = ask(chat(tokenizer, "hello"))
    async with serving(engine, tmp_path) as client:
        got, error = await until_error(client, request)
        engine.failure = None
        answer = await whole(client, request)
    assert error is not None
    assert message in str(error)
    assert not isinstance(error, EngineLost), "the worker lives: nothing is to be resumed"
    assert bool(got) == bool(fail_at)
    assert got == list(answer.token_ids[: len(got)])


async def test_the_score_over_the_socket_is_the_score(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    engine = WatchedEngine(tokenizer_folder, versions=("v0", "v1"))
    text = tuple(chat(tokenizer, "hello"))
    async with serving(engine, tmp_path) as client:
        for request in (
            scoring(text),
            scoring(text, text[:2], text[3:9], top_logprobs=3, temperature=0.5, version="v0"),
        ):
            assert await client.score(request) == await engine.score(request)


async def test_every_part_of_a_score_request_reaches_the_engine(tokenizer_folder: Path, tmp_path: Path) -> None:
    seen: list[object] = []

    class Watching(ScriptedEngine):
        async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
            seen.append(request)
            return await super().score(request)

        async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
            seen.append(request)
            async for delta in super().generate(request):
                yield delta

        async def publish(self, publication: Publication) -> None:
            seen.append(publication)
            await super().publish(publication)

        async def forget_cache(self, salts: Collection[str]) -> None:
            seen.append(salts)

    request = ScoreRequest(
        request_id="j", sequences=((1, 2), (3, 4, 5)), starts=(1, 2), temperature=0.25, version="v0", priority=-1
    )
    asked = GenerateRequest(request_id="g", token_ids=[1], sampling=ask([1]).sampling, priority=7)
    published = saved(tmp_path, "v1", live=False)
    async with serving(Watching(tokenizer_folder, ScriptedOptions()), tmp_path) as client:
        await client.score(request)
        await whole(client, asked)
        await client.publish(published)
        await client.forget_cache({"5a17", "5a18"})
    assert seen == [request, asked, published, {"5a17", "5a18"}]


async def test_a_score_is_one_json_object(tokenizer_folder: Path, tmp_path: Path) -> None:
    engine = WatchedEngine(tokenizer_folder)
    request = scoring((1, 2, 3), (4, 5), request_id='a "quoted" é', top_logprobs=1)
    async with serving(engine, tmp_path):
        status, body = await exchange(tmp_path, post(SCORE, wire.score_request_to_json(request)))
    assert status == 200
    assert body["request_id"] == 'a "quoted" é'
    assert [len(entry["logprobs"]) for entry in body["scores"]] == [2, 1]
    assert wire.scores_from_json(body) == await engine.score(request)


async def test_a_caller_that_leaves_cancels_its_score(tokenizer_folder: Path, tmp_path: Path) -> None:
    engine = WatchedEngine(tokenizer_folder, first_token_delay_s=3600.0)
    async with serving(engine, tmp_path) as client:
        task = asyncio.ensure_future(client.score(scoring((1, 2))))
        await engine.begun.wait()
        assert not engine.ended.is_set()
        task.cancel()
        await engine.ended.wait()


async def test_abort_ends_a_score_too(tokenizer_folder: Path, tmp_path: Path) -> None:
    engine = WatchedEngine(tokenizer_folder, first_token_delay_s=3600.0)
    async with serving(engine, tmp_path) as client:
        task = asyncio.ensure_future(client.score(scoring((1, 2), request_id="this")))
        await engine.begun.wait()
        abort = post("/inference/v1/abort_requests", {"request_ids": ["this"]})
        assert await exchange(tmp_path, abort) == (200, {"aborted": 1})
        with pytest.raises(EngineRefused) as refusal:
            await task
        assert (refusal.value.status, refusal.value.code) == (409, "aborted")


async def test_scores_take_places_like_answers(tokenizer_folder: Path, tmp_path: Path) -> None:
    engine = WatchedEngine(tokenizer_folder, first_token_delay_s=3600.0)
    async with serving(engine, tmp_path, max_requests=1) as client:
        task = asyncio.ensure_future(client.score(scoring((1, 2))))
        await engine.begun.wait()
        with pytest.raises(EngineUnavailable):
            await client.score(scoring((1, 2)))
        task.cancel()


@pytest.mark.parametrize(
    ("failure", "message"),
    [(EngineError("out of memory"), "out of memory"), (ZeroDivisionError(), "ZeroDivisionError")],
)
async def test_a_failed_score_costs_one_request(
    tokenizer_folder: Path, tmp_path: Path, failure: Exception, message: str
) -> None:
    engine = WatchedEngine(tokenizer_folder)
    engine.failure = failure
    async with serving(engine, tmp_path) as client:
        with pytest.raises(EngineError, match=message) as error:
            await client.score(scoring((1, 2)))
        assert not isinstance(error.value, EngineLost | EngineRefused)
        engine.failure = None
        assert len(await client.score(scoring((1, 2)))) == 1


async def test_what_is_too_large_is_not_even_sent(tokenizer_folder: Path, tmp_path: Path) -> None:
    async with serving(WatchedEngine(tokenizer_folder), tmp_path) as client:
        with pytest.raises(EngineRefused, match="smaller parts") as refusal:
            await client.score(scoring((1,) * (17 << 20)))
        assert (refusal.value.status, refusal.value.code) == (413, "request_too_large")
        assert (await client.state()).live_version == "v0"


async def test_versions_come_and_go_over_the_socket(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    engine = WatchedEngine(tokenizer_folder)
    async with serving(engine, tmp_path) as client:
        for _ in range(2):
            await client.publish(saved(tmp_path, "v1"))
            assert versions(await client.state()) == (("v0", "v1"), "v1")
        await client.publish(saved(tmp_path, "v2", live=False))
        assert versions(await client.state()) == (("v0", "v1", "v2"), "v1")
        assert (await whole(client, ask(chat(tokenizer, "q"), version="v2"))).version == "v2"
        await client.publish(BASE_AGAIN)
        await client.retire("v1")
        assert versions(await client.state()) == (("v0", "v2"), "v0")


async def test_a_change_answers_with_the_state(tokenizer_folder: Path, tmp_path: Path) -> None:
    engine = WatchedEngine(tokenizer_folder)
    async with serving(engine, tmp_path):
        for path, value in (
            ("publish", wire.publication_to_json(saved(tmp_path, "v1", live=False))),
            ("retire", {"version": "v1"}),
        ):
            status, body = await exchange(tmp_path, post(f"/v1/versions/{path}", value))
            assert status == 200
            assert wire.state_from_json(body) == await engine.state()


async def test_refused_changes_reach_the_caller(tokenizer_folder: Path, tmp_path: Path) -> None:
    async with serving(WatchedEngine(tokenizer_folder), tmp_path) as client:
        await client.publish(saved(tmp_path, "v1"))
        await client.publish(saved(tmp_path, "v2", live=False))
        damaged = saved(tmp_path, "v3")
        (tmp_path / "v3" / "adapter_model.safetensors").write_text("half")
        other = Publication(version="v2", weights=damaged.weights)
        for change, status, code in (
            (client.publish(damaged), 400, "checksum_mismatch"),
            (client.publish(other), 409, "version_conflict"),
            (client.retire("v1"), 409, "version_is_live"),
            (client.retire("v0"), 409, "version_is_base"),
            (client.retire("v9"), 404, "version_not_found"),
        ):
            with pytest.raises(EngineRefused) as refusal:
                await change
            assert (refusal.value.status, refusal.value.code) == (status, code)
        assert versions(await client.state()) == (("v0", "v1", "v2"), "v1")


async def test_answers_go_on_while_a_version_loads(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    engine = SlowToLoad(tokenizer_folder)
    async with serving(engine, tmp_path) as client:
        loading = asyncio.ensure_future(client.publish(saved(tmp_path, "v1")))
        await engine.loads.wait()
        assert (await whole(client, ask(chat(tokenizer, "hello")))).version == "v0"
        assert len(await client.score(scoring((1, 2)))) == 1
        assert not loading.done()
        engine.may_go_on.set()
        await loading
        assert (await whole(client, ask(chat(tokenizer, "hello")))).version == "v1"
