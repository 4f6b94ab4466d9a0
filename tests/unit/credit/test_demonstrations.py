"""Demonstrations: what is asked, what is worth learning, where they are kept, and with what they go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from openclaw_rl.credit.demonstrations import Demonstrator
from openclaw_rl.credit.loop import CreditLoop
from openclaw_rl.errors import EngineUnavailable
from openclaw_rl.protocols import Renderer
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import BACKGROUND, Delta, GenerateRequest, Lesson, Sample, ToolCall, Turn, VersionSpan
from tests.factories.conversations import (
    HINT,
    MODEL,
    USER,
    credits_of,
    judge,
    make_turn,
    put_conversation,
    scored,
    settings,
)
from tests.factories.samples import sample_of
from tests.factories.turns import SESSION
from tests.fakes.release import FakeEngine
from tests.unit.credit.child import conversation

GOOD = "Dear landlord, the heating in my flat broke last night; please send somebody today."
USELESS = ("", "I am sorry, but I cannot help with that.", "What do you want to know? Which one? When?", "Yes.")


class Teller(FakeEngine):
    """Says one answer after the other, each to its end."""

    def __init__(self, renderer: Renderer, *answers: str, finish: str = "stop", error: Exception | None = None) -> None:
        super().__init__()
        self.asked: list[GenerateRequest] = []
        self._answers = [(*renderer.encode(text), renderer.stop_token_ids[0]) for text in answers]
        self._finish: Any = finish
        self._error = error

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        self.asked.append(request)
        if self._error is not None:
            raise self._error
        ids = self._answers[min(len(self.asked), len(self._answers)) - 1]
        for at in range(0, len(ids), 3):
            part = ids[at : at + 3]
            finish = self._finish if at + 3 >= len(ids) else None
            yield Delta(token_ids=part, logprobs=(-0.5,) * len(part), version="v0", finish_reason=finish)


class Silent(FakeEngine):
    """Never answers."""

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        await asyncio.Event().wait()
        yield Delta(token_ids=(), logprobs=(), version="v0")


def demonstrator(engine: FakeEngine, renderer: Renderer, store: SqliteStore, **changes: Any) -> Demonstrator:
    return Demonstrator(engine, renderer, store.lessons, MODEL, **changes)


def ids_of(renderer: Renderer, text: str) -> tuple[int, ...]:
    return (*renderer.encode(text), renderer.stop_token_ids[0])


async def shown(
    store: SqliteStore, renderer: Renderer, *answers: str, turn: Turn | None = None, **changes: Any
) -> tuple[Teller, Sample | None]:
    turn = turn or make_turn()
    engine = Teller(renderer, *answers, finish=changes.pop("finish", "stop"))
    found = await demonstrator(engine, renderer, store).demonstrate(turn, sample_of(turn, **changes))
    return engine, found


async def test_the_base_model_answers_with_the_hint_and_it_is_learned_without(
    store: SqliteStore, renderer: Renderer
) -> None:
    engine, found = await shown(store, renderer, GOOD)
    assert found is not None
    turn = make_turn()
    lesson = sample_of(turn)
    (request,) = engine.asked
    assert tuple(request.token_ids) == lesson.teacher_prompt(lesson.candidates[0]) != lesson.prompt_ids
    assert (request.version, request.priority, request.exact) == ("v0", BACKGROUND, True)
    assert request.sampling.max_tokens == 2 * len(turn.completion.token_ids)
    assert (found.prompt_ids, found.response_ids) == (lesson.prompt_ids, ids_of(renderer, GOOD))
    assert (found.id, found.kind, found.w_rl, found.w_opd) == (f"{SESSION}.0+demonstration", "demonstration", 0.0, 0.5)
    assert (found.logprobs, found.on_policy, found.candidates) == (None, False, lesson.candidates)
    assert found.version_spans == (VersionSpan("v0", 0, len(found.response_ids)),)


@pytest.mark.parametrize("useless", USELESS)
async def test_what_is_no_answer_is_drawn_once_more_and_then_left_out(
    store: SqliteStore, renderer: Renderer, useless: str
) -> None:
    engine, found = await shown(store, renderer, useless, GOOD)
    assert found is not None
    assert found.response_ids == ids_of(renderer, GOOD)
    first, second = engine.asked
    assert first.sampling.seed != second.sampling.seed
    assert (await shown(store, renderer, useless))[1] is None


async def test_an_answer_that_is_cut_is_left_out(store: SqliteStore, renderer: Renderer) -> None:
    assert (await shown(store, renderer, GOOD, finish="length"))[1] is None


@pytest.mark.parametrize(
    "changes",
    [{"candidates": (), "w_opd": 0.0}, {"w_opd": 0.0}],
    ids=["no hint", "hints weigh nothing"],
)
async def test_nobody_is_asked_where_there_is_nothing_to_show(
    store: SqliteStore, renderer: Renderer, changes: dict[str, Any]
) -> None:
    engine, found = await shown(store, renderer, GOOD, **changes)
    assert (engine.asked, found) == ([], None)


async def test_calls_of_tools_are_not_demonstrated(store: SqliteStore, renderer: Renderer) -> None:
    turn = make_turn()
    calling = replace(turn, message=replace(turn.message, tool_calls=(ToolCall(id="c", name="ls", arguments="{}"),)))
    engine, found = await shown(store, renderer, GOOD, turn=calling)
    assert (engine.asked, found) == ([], None)


async def test_it_is_no_longer_than_twice_what_the_person_is_used_to(store: SqliteStore, renderer: Renderer) -> None:
    lengths = (4, 40, 6)
    turns = [make_turn(at, token_ids=(*range(11, 10 + length), 2)) for at, length in enumerate(lengths)]
    await put_conversation(store, turns)
    for turn in turns:
        await store.mark_delivered(SESSION, turn.index)
    await judge(store, {})
    engine, _ = await shown(store, renderer, GOOD, turn=turns[1], line=USER)
    usual = await store.lessons.replayed_turns(USER, model=MODEL, limit=8, max_tokens=4096)
    assert sorted(len(one.response_ids) for one in usual) == sorted(lengths)
    assert engine.asked[0].sampling.max_tokens == 2 * 6


@pytest.mark.parametrize("engine", [Silent(), None])
async def test_an_engine_that_is_away_or_has_no_time_costs_the_demonstration_alone(
    store: SqliteStore, renderer: Renderer, engine: FakeEngine | None
) -> None:
    away = engine or Teller(renderer, GOOD, error=EngineUnavailable("not ready"))
    await put_conversation(store, conversation(2))
    await judge(store, {0: scored(-1, HINT)})
    shows = demonstrator(away, renderer, store, timeout_s=0.05)
    assert await CreditLoop(store.lessons, renderer, settings(), MODEL, demonstrator=shows).work() == 1
    (sample,) = (await credits_of(store))[0].samples
    assert sample.kind == "turn"


async def credited(store: SqliteStore, renderer: Renderer) -> Sequence[Sample]:
    await put_conversation(store, conversation(2))
    await judge(store, {0: scored(-1, HINT)})
    shows = demonstrator(Teller(renderer, GOOD), renderer, store)
    await CreditLoop(store.lessons, renderer, settings(), MODEL, demonstrator=shows).work()
    return (await credits_of(store))[0].samples


async def test_it_is_a_row_beside_its_lesson(store: SqliteStore, renderer: Renderer) -> None:
    samples = await credited(store, renderer)
    assert [one.kind for one in samples] == ["turn", "demonstration"]
    assert samples[1].response_ids == ids_of(renderer, GOOD)
    assert samples[1].candidates[0].hint == HINT
    assert await store.lessons.waiting_samples(USER, 10) == list(samples)


async def test_it_is_undone_with_its_lesson(store: SqliteStore, renderer: Renderer) -> None:
    await credited(store, renderer)
    await store.lessons.undo(Lesson(line=USER, turn=(SESSION, 0)), reason="it was a joke")
    assert await store.lessons.waiting_samples(USER, 10) == []
