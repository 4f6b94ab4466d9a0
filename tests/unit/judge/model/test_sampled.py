"""A model of ours as the judge: what the engine is asked, and every way in which it may not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from pathlib import Path

import pytest

from openclaw_rl.engine.scripted import ScriptedAnswer, ScriptedEngine, ScriptedOptions
from openclaw_rl.errors import EngineLost, RequestError
from openclaw_rl.judge.model.panel import AskFailed, PanelJudge
from openclaw_rl.judge.model.sampled import EngineAsker
from openclaw_rl.protocols import Engine, Renderer
from openclaw_rl.types import (
    BACKGROUND,
    Delta,
    EngineState,
    GenerateRequest,
    Message,
    Publication,
    Scored,
    ScoreRequest,
)
from tests.unit.judge.talk import hinting, said, talk

ASKED = (said("system", "judge"), said("user", "the evidence"))


class FakeEngine:
    """Yields what it was given, and remembers what it was asked."""

    def __init__(self, *script: Delta | BaseException | float) -> None:
        self.script = script
        self.requests: list[GenerateRequest] = []
        self.num_running = self.max_running = 0
        self.started = asyncio.Event()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        self.started.set()
        self.num_running += 1
        self.max_running = max(self.max_running, self.num_running)
        try:
            for step in self.script:
                if isinstance(step, BaseException):
                    raise step
                elif isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    yield step
        finally:
            self.num_running -= 1

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        raise NotImplementedError

    async def publish(self, publication: Publication) -> None:
        raise NotImplementedError

    async def retire(self, version: str) -> None:
        raise NotImplementedError

    async def forget_cache(self, salts: Collection[str]) -> None:
        raise NotImplementedError

    async def state(self) -> EngineState:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError("the asker does not own the engine")


def delta(renderer: Renderer, text: str, *, finish_reason: str | None = "stop") -> Delta:
    ids = tuple(renderer.encode(text))
    return Delta(token_ids=ids, logprobs=(-0.1,) * len(ids), version="v0", finish_reason=finish_reason)  # type: ignore[arg-type]


async def ask(asker: EngineAsker, *, seed: int = 0) -> str:
    return await asker.ask(ASKED, question="score", seed=seed)


async def test_what_the_engine_is_asked(renderer: Renderer) -> None:
    engine = FakeEngine(delta(renderer, "Fine.\n", finish_reason=None), delta(renderer, "\\boxed{1}"))
    asker = EngineAsker(engine, renderer, name="self", version="v0", max_tokens=70, temperature=0.4)
    assert await ask(asker, seed=2) == "Fine.\n\\boxed{1}"
    await asker.close()
    (request,) = engine.requests
    assert request.token_ids == renderer.render(ASKED, (), {})
    assert (request.version, request.priority, request.stop_token_ids) == ("v0", BACKGROUND, renderer.stop_token_ids)
    assert (request.sampling.max_tokens, request.sampling.temperature, request.sampling.seed) == (70, 0.4, 2)
    await ask(asker)
    assert engine.requests[0].request_id != engine.requests[1].request_id


async def test_the_end_of_the_message_is_no_text(renderer: Renderer) -> None:
    spoken = delta(renderer, "\\boxed{0}", finish_reason=None)
    stop = Delta(token_ids=renderer.stop_token_ids[:1], logprobs=(-0.1,), version="v0", finish_reason="stop")
    assert await ask(EngineAsker(FakeEngine(spoken, stop), renderer, name="self")) == "\\boxed{0}"


async def test_thinking_is_not_the_answer(renderer: Renderer) -> None:
    engine = FakeEngine(delta(renderer, "<think>\\boxed{1}?</think>\n\n\\boxed{-1}"))
    verdict = await PanelJudge(EngineAsker(engine, renderer, name="self")).judge(talk("no"))
    assert (verdict.outcome, verdict.score) == ("scored", -1)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ((EngineLost("gone"),), "the engine gave no answer: gone"),
        ((5.0,), "the engine gave no answer within 0.05 s"),
        ((), "the engine broke the answer off"),
        (("abort",), "the engine broke the answer off"),
        (("length",), "cut after 5 tokens; raise evaluation.judge_max_tokens"),
    ],
)
async def test_no_answer_is_a_failed_vote(renderer: Renderer, script: Sequence[object], reason: str) -> None:
    steps = [delta(renderer, "\\boxed{1}", finish_reason=s) if isinstance(s, str) else s for s in script]
    engine = FakeEngine(*steps)  # type: ignore[arg-type]
    with pytest.raises(AskFailed, match=reason.replace("5 tokens", r"\d+ tokens")):
        await ask(EngineAsker(engine, renderer, name="self", timeout_s=0.05))
    assert engine.num_running == 0


async def test_a_template_that_refuses_our_messages_is_a_failed_vote(renderer: Renderer) -> None:
    class Refusing:
        def __getattr__(self, name: str) -> object:
            return getattr(renderer, name)

        def render(self, messages: Sequence[Message], tools: object, sampled: object) -> list[int]:
            raise RequestError("no system message, please")

    with pytest.raises(AskFailed, match="no system message, please"):
        await ask(EngineAsker(FakeEngine(), Refusing(), name="self"))  # type: ignore[arg-type]


async def test_only_so_many_at_once(renderer: Renderer) -> None:
    engine = FakeEngine(0.005, delta(renderer, "\\boxed{1}"))
    asker = EngineAsker(engine, renderer, name="self", concurrency=2)
    await asyncio.gather(*(ask(asker, seed=seed) for seed in range(6)))
    assert engine.max_running == 2


async def test_a_cancelled_vote_cancels_the_sampling(renderer: Renderer) -> None:
    engine = FakeEngine(30.0)
    vote = asyncio.create_task(ask(EngineAsker(engine, renderer, name="self")))
    await engine.started.wait()
    vote.cancel()
    with pytest.raises(asyncio.CancelledError):
        await vote
    assert engine.num_running == 0


async def test_a_panel_over_the_scripted_engine(renderer: Renderer, model: Path) -> None:
    replies = (
        ScriptedAnswer(match="Does the next state hold a correction", reply=hinting("Answer in one sentence.")),
        ScriptedAnswer(match="Score the reply", reply="They want a change.\n\\boxed{-1}"),
    )
    engine: Engine = ScriptedEngine(model, ScriptedOptions(replies=replies))
    judge = PanelJudge(EngineAsker(engine, renderer, name="self", version="v0"))
    verdict = await judge.judge(talk("shorter please"))
    assert (verdict.outcome, verdict.score, verdict.hints) == ("scored", -1, ("Answer in one sentence.",))
    await judge.close()


async def test_an_unknown_version_and_a_full_window_are_failed_votes(renderer: Renderer, model: Path) -> None:
    engine = ScriptedEngine(model, ScriptedOptions(context_window=20))
    with pytest.raises(AskFailed, match="v9"):
        await ask(EngineAsker(engine, renderer, name="self", version="v9"))
    with pytest.raises(AskFailed, match="context window"):
        await EngineAsker(engine, renderer, name="self").ask((said("user", "long " * 99),), question="score", seed=0)
