"""Groups of episodes through the real store and the credit loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.credit.loop import CreditLoop
from openclaw_rl.protocols import Renderer
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import (
    Baseline,
    Credit,
    Episode,
    FinishReason,
    JudgedTurn,
    Judgement,
    Outcome,
    Skip,
    Verdict,
)
from tests.factories.conversations import (
    HINT,
    MODEL,
    abstained,
    failed,
    make_child,
    make_turn,
    put_conversation,
    scored,
    settings,
)
from tests.factories.turns import make_session

NOW = 400.0
ENV = "env:terminal"
ENDS: tuple[float | None, ...] = (1.0, 0.0, 0.5, None)
"""How the four attempts of the group end; None is an environment that failed."""


def episode(number: int, size: int = 4) -> Episode:
    return Episode(id=f"e{number}", environment="terminal", task="count", group="g", attempt=number, group_size=size)


async def play(
    store: SqliteStore,
    number: int,
    reward: float | None,
    verdicts: Sequence[Verdict] = (),
    *,
    size: int = 4,
    finish: FinishReason = "stop",
) -> None:
    """An attempt of one step more than there are verdicts: nothing follows the last one but the outcome."""
    name = f"s{number}"
    turns = [make_turn(session=name)]
    for _ in verdicts:
        turns.append(make_child(turns[-1], "Go on.", session=name))
    turns[-1] = replace(turns[-1], completion=replace(turns[-1].completion, finish_reason=finish))
    await put_conversation(store, turns, make_session(name, key=name, episode=episode(number, size)))
    for held in await store.lessons.lease("judge", limit=100, ttl_s=60.0):
        judgement = Judgement(
            session=name,
            index=held.index,
            num_evidence=held.num_evidence,
            judge="hand",
            prompt_version="",
            judged_at=NOW,
            verdict=verdicts[held.index],
        )
        assert await store.lessons.put_judgement(held, judgement)
    await store.close_session(name, NOW)
    failure = "the box died" if reward is None else ""
    assert await store.lessons.put_outcome(Outcome(episode=f"e{number}", ended_at=NOW, reward=reward, failure=failure))


async def play_group(store: SqliteStore, ends: Sequence[float | None] = ENDS, **how: Any) -> None:
    for number, reward in enumerate(ends):
        await play(store, number, reward, size=len(ends), **how)


def make_loop(store: SqliteStore, renderer: Renderer, **training: Any) -> CreditLoop:
    return CreditLoop(store.lessons, renderer, settings(**training), MODEL)


async def learned(store: SqliteStore, num: int = 4) -> list[list[float | Skip]]:
    """By attempt and step: the advantage, or why there is none."""
    found: list[list[float | Skip]] = []
    for number in range(num):
        rows = await store.lessons.credits(f"s{number}")
        found.append([one.skip or round(one.samples[0].advantages[0], 4) for one in rows])
    return found


@pytest.mark.parametrize("advantage", ["group", "baseline"])
async def test_the_attempts_of_a_group_are_compared(store: SqliteStore, renderer: Renderer, advantage: str) -> None:
    await play_group(store, verdicts=[abstained()])
    assert await make_loop(store, renderer, advantage=advantage).work() == 8
    no = Skip.ENVIRONMENT_FAILED
    assert await learned(store) == [[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0], [no, no]]
    samples = await store.lessons.waiting_samples(ENV, 10)
    assert [(one.line, one.reward, one.w_rl) for one in samples[:2]] == [(ENV, 1.0, 0.2)] * 2
    assert {one.reward for one in samples} == {1.0, 0.0, 0.5}
    assert await store.lessons.waiting_samples("ann", 10) == [], "what agents do teaches no person's line"
    assert await store.lessons.baseline(ENV, "episode") == Baseline(line=ENV, turn_kind="episode", mean=0.5, count=3)


async def test_a_group_waits_until_its_last_attempt_has_an_outcome(store: SqliteStore, renderer: Renderer) -> None:
    loop = make_loop(store, renderer, advantage="group")
    for number, reward in enumerate(ENDS[:3]):
        await play(store, number, reward)
        assert await loop.work() == 0
    await play(store, 3, ENDS[3])
    assert await loop.work() == 4
    assert await learned(store) == [[1.0], [-1.0], [0.0], [Skip.ENVIRONMENT_FAILED]]
    assert await loop.work() == 0


@pytest.mark.parametrize("num_before", [1, 3])
@pytest.mark.parametrize("training", [{"advantage": "group"}, {"advantage": "step_wise"}])
async def test_a_crash_in_between_changes_nothing(
    tmp_path: Path, renderer: Renderer, num_before: int, training: dict[str, Any]
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        async with await SqliteStore.open(folder) as store:
            await play_group(store, verdicts=[scored(1, HINT)])

    class Stop(BaseException):
        pass

    def stop_after(_: JudgedTurn, __: Credit) -> None:
        nonlocal num_before
        num_before -= 1
        if not num_before:
            raise Stop

    async with await SqliteStore.open(cut) as store:
        dying = CreditLoop(store.lessons, renderer, settings(**training), MODEL, on_credit=stop_after)
        with pytest.raises(Stop):
            await dying.work()
    results = []
    for folder in (whole, cut):
        async with await SqliteStore.open(folder) as store:
            await store.lessons.release_earlier()  # as every start does
            await make_loop(store, renderer, **training).work()
            results.append((await learned(store), await store.lessons.baseline(ENV, "episode")))
    assert results[0] == results[1]


async def test_step_wise_is_outcome_and_process(store: SqliteStore, renderer: Renderer) -> None:
    await play(store, 0, 1.0, [scored(1), scored(-1)], size=3)
    await play(store, 1, 0.0, [scored(-1), failed()], size=3)
    await play(store, 2, 0.5, [abstained()], size=3)
    assert await make_loop(store, renderer, advantage="step_wise", method="binary").work() == 8
    # Step 0: 2, -1, 0.5; step 1: 0 and 0.5, the judge failed over the other; step 2: 1 and 0.
    assert await learned(store, 3) == [[1.2247, -1.0, 1.0], [-1.2247, Skip.JUDGE_FAILED, -1.0], [0.0, 1.0]]


async def test_a_constant_group_is_skipped_with_its_reason(store: SqliteStore, renderer: Renderer) -> None:
    await play_group(store, (0.0, 0.0, None))
    seen: list[Skip | None] = []
    loop = CreditLoop(
        store.lessons,
        renderer,
        settings(advantage="group"),
        MODEL,
        on_credit=lambda _, credit: seen.append(credit.skip),
    )
    await loop.work()
    same, no = Skip.SAME_OUTCOME, Skip.ENVIRONMENT_FAILED
    assert (await learned(store, 3), seen) == ([[same], [same], [no]], [same, same, no])


async def test_a_hint_teaches_also_where_the_outcomes_say_nothing(store: SqliteStore, renderer: Renderer) -> None:
    await play_group(store, (0.0, 0.0), verdicts=[scored(-1, HINT)])
    await make_loop(store, renderer, advantage="group").work()
    (sample,) = (await store.lessons.credits("s0"))[0].samples
    assert (sample.w_rl, sample.w_opd, [one.hint for one in sample.candidates]) == (0.0, 1.0, [HINT])


async def test_a_single_attempt_is_measured_against_the_mean_of_its_environment(
    store: SqliteStore, renderer: Renderer
) -> None:
    loop = make_loop(store, renderer)
    for number, reward in enumerate((1.0, 0.25)):
        of = replace(episode(0, 1), id=f"e{number}", group=f"g{number}")
        await put_conversation(
            store, [make_turn(session=f"s{number}")], make_session(f"s{number}", key=of.id, episode=of)
        )
        await store.close_session(f"s{number}", NOW)
        await store.lessons.put_outcome(Outcome(episode=of.id, ended_at=NOW, reward=reward))
        assert await loop.work() == 1
    assert await learned(store, 2) == [[1.0], [-0.75]]


async def test_a_step_that_was_cut_teaches_nothing(store: SqliteStore, renderer: Renderer) -> None:
    await play_group(store, (1.0, 0.0), finish="length")
    await make_loop(store, renderer, advantage="group").work()
    assert await learned(store, 2) == [[Skip.TRUNCATED], [Skip.TRUNCATED]]


CENTRED = """
from openclaw_rl.types import SignalWeights
class Centred:
    name = "centred"
    def __init__(self, training): ...
    def weigh(self, verdict):
        return SignalWeights(reward=verdict.reward or 0.0, w_rl=1.0, w_opd=0.0)
    def weigh_group(self, attempts):
        mean = sum(one.reward for one in attempts) / len(attempts)
        return [[one.reward - mean] * len(one.steps) for one in attempts]
"""


async def test_a_rule_of_ones_own_may_weigh_the_whole_group(
    store: SqliteStore, renderer: Renderer, tmp_path: Path
) -> None:
    (tmp_path / "centred.py").write_text(CENTRED)
    await play_group(store)
    await make_loop(store, renderer, method=f"{tmp_path}/centred.py:Centred").work()
    assert await learned(store) == [[0.5], [-0.5], [0.0], [Skip.ENVIRONMENT_FAILED]]


async def test_an_agents_turns_are_replayed_to_its_environments_versions(
    store: SqliteStore, renderer: Renderer
) -> None:
    await play(store, 0, 1.0)
    await put_conversation(store, [make_turn()])
    replayed = {
        line: [one.id for one in await store.lessons.replayed_turns(line, model=MODEL, limit=8, max_tokens=999)]
        for line in (ENV, "ann", "env:other")
    }
    assert replayed == {ENV: ["s0.0"], "ann": ["s-1.0"], "env:other": []}
