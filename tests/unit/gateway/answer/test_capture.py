"""Answers as they are sampled: text, stop strings, tool calls, and an engine that dies in the middle."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.engine.scripted import ScriptedAnswer, ScriptedEngine, ScriptedOptions
from openclaw_rl.errors import EngineLost
from openclaw_rl.gateway.answer.capture import MAX_RESUMES, Capture, StopScanner
from openclaw_rl.protocols import Engine, Renderer
from openclaw_rl.types import (
    Delta,
    EngineState,
    GenerateRequest,
    Message,
    Publication,
    Request,
    Sampling,
    Scored,
    ScoreRequest,
    Tool,
)

TOOL = Tool(name="run")


def engine_that_says(reply: str, model: Path, **options: object) -> ScriptedEngine:
    return ScriptedEngine(model, ScriptedOptions(replies=(ScriptedAnswer(match="", reply=reply),), **options))  # type: ignore[arg-type]


def capture_of(renderer: Renderer, *, prefill: str = "", max_tokens: int = 500, **request: object) -> Capture:
    asked = Request(
        messages=(Message(role="user", content="go"),),
        sampling=Sampling(max_tokens=max_tokens),
        **request,  # type: ignore[arg-type]
    )
    prompt = renderer.render(asked.messages, asked.tools, {}) + (renderer.prefill_ids("run") if prefill else [])
    return Capture(
        renderer=renderer,
        request=asked,
        tools=asked.tools,
        request_id="r",
        prompt_ids=prompt,
        prefill=prefill,
        sampling=asked.sampling,
        version=None,
    )


async def sampled(capture: Capture, engine: Engine) -> None:
    token_ids: list[int] = []
    async for piece in capture.pieces(engine):
        token_ids += piece.token_ids
    assert tuple(token_ids) == capture.completion.token_ids


@pytest.mark.parametrize("text", ["Hello.", "naïve 你好 👩‍👩‍👧 \n\n end", "", " leading and trailing "])
async def test_the_message_is_the_decoding_of_the_ids(renderer: Renderer, model: Path, text: str) -> None:
    capture = capture_of(renderer)
    await sampled(capture, engine_that_says(text, model))
    assert capture.message.content == text == renderer.decode(capture.completion.token_ids)
    assert capture.completion.finish_reason == "stop"
    assert capture.completion.versions == ("v0",)


async def test_what_no_request_may_hold_is_not_said(renderer: Renderer, model: Path) -> None:
    capture = capture_of(renderer, stop=("never",))
    await sampled(capture, engine_that_says("one\x00two", model))
    assert capture.message.content == "onetwo", "a client could not send NUL back"
    assert renderer.decode(capture.completion.token_ids) == "one\x00two", "what was sampled stays as it is"


async def test_an_answer_ends_at_max_tokens(renderer: Renderer, model: Path) -> None:
    capture = capture_of(renderer, max_tokens=3)
    await sampled(capture, engine_that_says("one two three four five", model))
    assert (len(capture.completion.token_ids), capture.completion.finish_reason) == (3, "length")


async def test_a_stop_string_ends_the_answer_at_the_token_that_completes_it(renderer: Renderer, model: Path) -> None:
    capture = capture_of(renderer, stop=("STOP", "never"))
    await sampled(capture, engine_that_says("one two STOP three four", model))
    assert (capture.message.content, capture.completion.finish_reason) == ("one two ", "stop")
    text = renderer.decode(capture.completion.token_ids)
    assert text.startswith("one two STOP")
    assert "STOP" not in renderer.decode(capture.completion.token_ids[:-1])


async def test_a_stop_string_that_never_comes_holds_nothing_back_at_the_end(renderer: Renderer, model: Path) -> None:
    capture = capture_of(renderer, stop=("four!",))
    await sampled(capture, engine_that_says("three four", model))
    assert capture.message.content == "three four"


async def test_a_tool_call_is_the_reason_to_finish(renderer: Renderer, model: Path) -> None:
    capture = capture_of(renderer, tools=(TOOL,))
    await sampled(capture, engine_that_says('<tool_call>\n{"name": "run", "arguments": {"x": 1}}\n</tool_call>', model))
    assert capture.completion.finish_reason == "tool_calls"
    assert [(c.name, c.arguments) for c in capture.message.tool_calls] == [("run", '{"x": 1}')]


async def test_without_parallel_calls_sampling_ends_with_the_first(renderer: Renderer, model: Path) -> None:
    call = '<tool_call>\n{"name": "run", "arguments": {"x": 1}}\n</tool_call>'
    capture = capture_of(renderer, tools=(TOOL,), parallel_tool_calls=False)
    await sampled(capture, engine_that_says(call + "\n" + call, model))
    assert len(capture.message.tool_calls) == 1
    assert renderer.decode(capture.completion.token_ids).strip() == call


async def test_a_forced_call_begins_with_what_was_given(renderer: Renderer, model: Path) -> None:
    prefill = renderer.prefill("run")
    capture = capture_of(renderer, prefill=prefill, tools=(TOOL,), tool_choice="required", forced_tool="run")
    await sampled(capture, engine_that_says('{"x": 2}}\n</tool_call>', model))
    assert [(c.name, c.arguments) for c in capture.message.tool_calls] == [("run", '{"x": 2}')]
    assert renderer.decode(capture.completion.token_ids) == '{"x": 2}}\n</tool_call>'


class Mortal:
    """An engine that dies after each `lifetime` tokens and comes back under the next version."""

    def __init__(self, inner: ScriptedEngine, lifetime: int) -> None:
        self._inner = inner
        self._lifetime = lifetime
        self.deaths = 0

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        num_tokens = 0
        async for delta in self._inner.generate(request):
            num_tokens += len(delta.token_ids)
            yield Delta(
                token_ids=delta.token_ids,
                logprobs=delta.logprobs,
                version=f"v{self.deaths}",
                finish_reason=delta.finish_reason,
            )
            if num_tokens >= self._lifetime and delta.finish_reason is None:
                self.deaths += 1
                raise EngineLost("died")

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        return await self._inner.score(request)

    async def publish(self, publication: Publication) -> None:
        await self._inner.publish(publication)

    async def retire(self, version: str) -> None:
        await self._inner.retire(version)

    async def forget_cache(self, salts: Collection[str]) -> None:
        await self._inner.forget_cache(salts)

    async def state(self) -> EngineState:
        return await self._inner.state()

    async def close(self) -> None:
        await self._inner.close()


async def test_an_answer_goes_on_where_a_dead_engine_left_it(renderer: Renderer, model: Path) -> None:
    text = "one two three four five six seven eight nine ten"
    capture, whole = capture_of(renderer), capture_of(renderer)
    engine = Mortal(engine_that_says(text, model), lifetime=4)
    await sampled(capture, engine)
    await sampled(whole, engine_that_says(text, model))
    assert engine.deaths >= 1
    assert capture.message.content == text
    assert capture.completion.token_ids == whole.completion.token_ids
    assert capture.completion.logprobs == whole.completion.logprobs
    assert len(capture.completion.version_spans) == engine.deaths + 1


async def test_an_engine_that_keeps_dying_fails_the_answer(renderer: Renderer, model: Path) -> None:
    capture = capture_of(renderer)
    engine = Mortal(engine_that_says("word " * 200, model), lifetime=1)
    with pytest.raises(EngineLost):
        await sampled(capture, engine)
    assert engine.deaths == MAX_RESUMES + 1
    assert capture.completion.finish_reason == "abort"
    assert len(capture.completion.token_ids) == engine.deaths


@given(
    text=st.text(alphabet="abc", max_size=40),
    stops=st.lists(st.text(alphabet="abc", min_size=1, max_size=4), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 40), max_size=10),
)
def test_a_stop_string_is_found_however_the_text_arrives(text: str, stops: list[str], cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(c for c in cuts if c < len(text))})
    scanner = StopScanner(stops)
    out = ""
    for start, end in itertools.pairwise(edges):
        certain, stopped = scanner.feed(text[start:end])
        out += certain
        if stopped:
            break
    else:
        out += scanner.held
    # The stop string that is complete first wins; of those complete at the same character, the one that begins first.
    ends = [(at + len(s), at) for s in stops for at in [text.find(s)] if at >= 0]
    assert scanner.stopped == bool(ends)
    if not ends:
        assert out == text
    else:
        assert text.startswith(out)
        assert not any(s in out for s in stops)
