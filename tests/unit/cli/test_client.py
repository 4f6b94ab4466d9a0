"""HTTP to values, and its failures to errors that say what to do."""

from __future__ import annotations

import itertools
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.cli.address import ServerGone
from openclaw_rl.cli.client import ChatAnswer, GatewayClient, ServerRefused
from openclaw_rl.types import ReasoningDelta, TextDelta
from tests.unit.cli.gateway import DROP, KEY, FakeGateway, chunk, end, event, text

ASKED = [{"role": "user", "content": "hi"}]


async def ask(gateway: FakeGateway, answer: ChatAnswer) -> list[TextDelta | ReasoningDelta]:
    async with GatewayClient(gateway.url, KEY) as client:
        return [delta async for delta in client.ask(ASKED, model="tiny", session="s", answer=answer)]


async def test_an_answer_comes_piece_by_piece_and_as_a_whole() -> None:
    answer = ChatAnswer()
    thought = chunk({"reasoning_content": "hm"})
    async with FakeGateway([[b": ping\n\n", thought, *text("Hel", "lo"), *end(5, "length")]]).running() as gateway:
        deltas = await ask(gateway, answer)
    assert deltas == [ReasoningDelta("hm"), TextDelta("Hel"), TextDelta("lo")]
    assert answer == ChatAnswer("v3", "s.0", "Hello", 5, "length")
    assert gateway.sessions == ["s"]
    assert gateway.requests[0]["messages"] == ASKED
    assert gateway.requests[0]["stream"] is True


@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 400), max_size=8))
async def test_it_does_not_matter_where_the_network_cuts(cuts: list[int]) -> None:
    whole = b"".join([*text("grün", "\n\ndata: 👍"), b": ping\n\n", *end(3)])
    places = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    pieces = [whole[a:b] for a, b in itertools.pairwise(places)]
    answer = ChatAnswer()
    async with FakeGateway([pieces]).running() as gateway:
        await ask(gateway, answer)
    assert (answer.text, answer.num_tokens, answer.finish_reason) == ("grün\n\ndata: 👍", 3, "stop")


@pytest.mark.parametrize("last", [[], [DROP]])
async def test_an_answer_that_breaks_off_is_no_answer(last: list[bytes]) -> None:
    answer = ChatAnswer()
    async with FakeGateway([[*text("half"), *last]]).running() as gateway:
        with pytest.raises(ServerGone, match="broke off"):
            await ask(gateway, answer)
    assert (answer.text, answer.finish_reason) == ("half", None)


async def test_an_error_in_the_middle_of_a_stream_is_told_in_its_words() -> None:
    broken = event({"error": {"message": "the engine died", "code": "engine_failed"}})
    async with FakeGateway([[*text("half"), broken]]).running() as gateway:
        with pytest.raises(ServerRefused, match="the engine died") as caught:
            await ask(gateway, ChatAnswer())
    assert caught.value.code == "engine_failed"


async def test_a_refusal_is_told_in_its_words() -> None:
    async with FakeGateway([(503, "no engine came up")]).running() as gateway:
        with pytest.raises(ServerRefused, match="no engine came up") as caught:
            await ask(gateway, ChatAnswer())
    assert caught.value.status == 503


@pytest.mark.parametrize("nonsense", [b"data: {\n\n", b"data: []\n\n", b'data: {"choices": [{}]}\n\n'])
async def test_a_stranger_is_told_from_a_server_of_ours(nonsense: bytes) -> None:
    async with FakeGateway([[nonsense]]).running() as gateway:
        with pytest.raises(ServerGone, match="OpenClaw-RL server"):
            await ask(gateway, ChatAnswer())


async def test_readiness_and_its_reason() -> None:
    async with FakeGateway().running() as gateway, GatewayClient(gateway.url) as client:
        assert await client.why_not_ready() is None
        gateway.waiting_for = "the engine is starting"
        assert await client.why_not_ready() == "the engine is starting"


async def test_the_key_is_needed_and_the_first_model_is_the_server_s_own() -> None:
    async with FakeGateway().running() as gateway:
        async with GatewayClient(gateway.url, KEY) as client:
            assert await client.models() == ["tiny", "tiny@v0"]
        async with GatewayClient(gateway.url) as client:
            with pytest.raises(ServerRefused, match="not known"):
                await client.models()


async def test_nobody_there_says_how_to_start_somebody() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with GatewayClient(f"http://127.0.0.1:{unused.getsockname()[1]}") as client:
            with pytest.raises(ServerGone, match=r"Connection refused.*openclaw-rl up"):
                await client.why_not_ready()
