"""When the answer that a user kept also answers the request as it was first put."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from openclaw_rl.credit.loop import CreditLoop
from openclaw_rl.credit.rewrites import asks_for_change
from openclaw_rl.protocols import Renderer
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Message, Sample, Skip, Turn, Verdict, Vote
from tests.factories.conversations import (
    CALL,
    HINT,
    MODEL,
    abstained,
    credits_of,
    judge,
    make_child,
    make_turn,
    put_conversation,
    scored,
    settings,
    thumb,
)

RESULT = Message(role="tool", content="a.txt", tool_call_id="c1")
CHANGE, ACCEPTED = scored(-1, HINT), scored(1)


def three_changes() -> list[Turn]:
    """Two changes of one request; then it was right, and the user moves on."""
    first = make_turn(0)
    second = make_child(first, "No, shorter please.")
    third = make_child(second, "And friendlier.")
    return [first, second, third, make_child(third, "Thanks! Now the invoice.")]


async def rewrites_of(
    store: SqliteStore, renderer: Renderer, turns: list[Turn], verdicts: dict[int, Verdict], **training: Any
) -> list[Sample]:
    await put_conversation(store, turns)
    await judge(store, verdicts)
    await CreditLoop(store.lessons, renderer, settings(**training), MODEL).work()
    made = await credits_of(store)
    assert list(made) == sorted(verdicts)
    return [sample for credit in made.values() for sample in credit.samples if sample.kind == "rewrite"]


@pytest.mark.parametrize("method", ["combine", "binary", "opd"])
async def test_the_accepted_answer_answers_the_first_request(
    store: SqliteStore, renderer: Renderer, method: str
) -> None:
    turns = three_changes()
    verdicts = {0: CHANGE, 1: CHANGE, 2: ACCEPTED}
    (sample,) = await rewrites_of(store, renderer, turns, verdicts, method=method, binary_weight=0.5)
    assert (sample.index, sample.prompt_index, sample.w_rl) == (2, 0, 0.5)
    assert (sample.prompt_ids, sample.response_ids) == (turns[0].prompt_ids, turns[2].completion.token_ids)
    assert (sample.reward, sample.advantages, sample.logprobs) == (1.0, (1.0,) * 3, None)
    # It stands beside what the turn itself teaches, or alone where the method takes nothing from a score.
    credit = (await credits_of(store))[2]
    assert [one.kind for one in credit.samples] == (["rewrite"] if method == "opd" else ["turn", "rewrite"])
    assert credit.reward == 1.0


async def test_an_answer_that_stands_on_a_claim_answers_no_earlier_request(
    store: SqliteStore, renderer: Renderer
) -> None:
    told = (Vote(question="claim", score=1, raw="it is 48"),)
    verdicts = {0: CHANGE, 1: CHANGE, 2: scored(1, votes=told)}
    assert await rewrites_of(store, renderer, three_changes(), verdicts) == []


@pytest.mark.parametrize("number", [0, 2])
async def test_a_reward_of_another_size_accepts_nothing_and_asks_for_no_change(
    store: SqliteStore, renderer: Renderer, number: int
) -> None:
    verdicts = {0: CHANGE, 1: CHANGE, 2: ACCEPTED}
    verdicts[number] = replace(verdicts[number], value=0.01 if number == 2 else -0.01)
    made = await rewrites_of(store, renderer, three_changes(), verdicts)
    assert [(one.index, one.prompt_index) for one in made] == ([(2, 1)] if number == 0 else [])


async def test_only_what_was_changed_without_a_break_counts(store: SqliteStore, renderer: Renderer) -> None:
    (sample,) = await rewrites_of(store, renderer, three_changes(), {0: ACCEPTED, 1: CHANGE, 2: ACCEPTED})
    assert (sample.index, sample.prompt_index) == (2, 1)


@pytest.mark.parametrize(
    "verdicts",
    [
        {0: CHANGE, 1: scored(-1), 2: ACCEPTED},  # displeasure, and then perhaps another subject
        {0: CHANGE, 1: CHANGE, 2: scored(0)},
        {0: CHANGE, 1: CHANGE, 2: abstained(HINT)},
        {0: CHANGE, 1: CHANGE, 2: CHANGE},
        {0: scored(1, HINT), 1: scored(1, HINT), 2: ACCEPTED},
        {0: CHANGE, 1: scored(0, HINT), 2: ACCEPTED},
        {0: CHANGE, 2: ACCEPTED},
    ],
)
async def test_there_must_be_a_change_and_its_acceptance(
    store: SqliteStore, renderer: Renderer, verdicts: dict[int, Verdict]
) -> None:
    assert await rewrites_of(store, renderer, three_changes(), verdicts) == []


def _cut_off(turn: Turn) -> Turn:
    return replace(turn, completion=replace(turn.completion, finish_reason="length"))


@pytest.mark.parametrize(
    ("index", "change"),
    [
        (2, lambda turn: replace(turn, message=CALL)),
        (2, _cut_off),
        (2, lambda turn: replace(turn, skip=Skip.OPTED_OUT)),
        (2, lambda turn: replace(turn, model="other#1")),
        (2, lambda turn: replace(turn, num_prefill=1)),
        (1, lambda turn: replace(turn, message=CALL)),
        (1, lambda turn: replace(turn, skip=Skip.OPTED_OUT)),
        (1, lambda turn: replace(turn, model="other#1")),
        (1, lambda turn: replace(turn, num_prefill=1)),
        (1, lambda turn: replace(turn, kind="side")),
    ],
)
@pytest.mark.parametrize("truncated", ["skip", "score"])
async def test_not_from_every_answer(
    store: SqliteStore, renderer: Renderer, index: int, change: Callable[[Turn], Turn], truncated: str
) -> None:
    turns = three_changes()
    turns[index] = change(turns[index])
    verdicts = {0: CHANGE, 1: CHANGE, 2: ACCEPTED}
    assert await rewrites_of(store, renderer, turns, verdicts, truncated=truncated) == []


async def test_a_first_answer_that_was_cut_off_may_be_rewritten(store: SqliteStore, renderer: Renderer) -> None:
    turns = three_changes()
    turns[1] = _cut_off(turns[1])
    (sample,) = await rewrites_of(store, renderer, turns, {0: ACCEPTED, 1: CHANGE, 2: ACCEPTED})
    assert sample.prompt_index == 1


async def test_not_across_tool_results(store: SqliteStore, renderer: Renderer) -> None:
    first = make_turn()
    second = make_child(first, [RESULT, Message(role="user", content="No, look into the file.")])
    turns = [first, second, make_child(second, "Thanks!")]
    assert await rewrites_of(store, renderer, turns, {0: CHANGE, 1: ACCEPTED}) == []


async def test_not_for_another_reaction_than_the_one_that_was_judged(store: SqliteStore, renderer: Renderer) -> None:
    """The user edited the correction into something else: the second child answers that."""
    first = make_turn()
    judged, edited = make_child(first, "No, shorter."), make_child(first, "Which day is it?", index=2)
    turns = [first, judged, edited, make_child(edited, "Thanks!", index=3)]
    assert await rewrites_of(store, renderer, turns, {0: CHANGE, 2: ACCEPTED}) == []


async def test_it_can_be_switched_off(store: SqliteStore, renderer: Renderer) -> None:
    verdicts = {0: CHANGE, 1: ACCEPTED}
    assert await rewrites_of(store, renderer, three_changes(), verdicts, accepted_rewrites=False) == []


async def test_a_rewrite_that_is_no_longer_accepted_is_taken_back(store: SqliteStore, renderer: Renderer) -> None:
    assert await rewrites_of(store, renderer, three_changes(), {0: CHANGE, 1: ACCEPTED})
    await thumb(store, 1)
    await judge(store, {1: scored(-1)})
    await CreditLoop(store.lessons, renderer, settings(), MODEL).work()
    assert [sample.kind for sample in await store.lessons.waiting_samples(None, 10)] == ["turn", "turn"]


def _hint_votes(*scores: int | None) -> tuple[Vote, ...]:
    return tuple(
        Vote(question="hint", score=score, failure="" if score else "timeout")  # type: ignore[arg-type]
        for score in scores
    )


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (scored(-1, HINT), True),
        (scored(-1), False),
        (scored(1, HINT), False),
        (abstained(HINT), False),
        (scored(-1, votes=_hint_votes(1)), True),  # a correction, though too short for a hint
        (scored(-1, votes=_hint_votes(1, 1, -1)), True),
        (scored(-1, votes=_hint_votes(1, -1, None)), False),
        (scored(-1, votes=(Vote(question="score", score=1),)), False),
    ],
)
def test_what_counts_as_a_change(verdict: Verdict, expected: bool) -> None:
    assert asks_for_change(verdict) is expected
