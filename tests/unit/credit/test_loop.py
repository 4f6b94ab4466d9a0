"""Credit against the real store, with verdicts given by hand."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.backoff import Backoff
from openclaw_rl.config.presets import preset_defaults
from openclaw_rl.credit import loop as credit_loop
from openclaw_rl.credit.loop import CreditLoop
from openclaw_rl.errors import StoreUnavailable
from openclaw_rl.protocols import Renderer
from openclaw_rl.store import SqliteStore
from openclaw_rl.store.learning_log import LearningLog
from openclaw_rl.types import (
    SIDE_ROLES_ONLY,
    Baseline,
    Credit,
    FinishReason,
    JudgedTurn,
    Lease,
    Message,
    Skip,
    Verdict,
    Vote,
)
from tests.factories.conversations import (
    CALL,
    HINT,
    MODEL,
    USER,
    abstained,
    credits_of,
    failed,
    judge,
    make_child,
    make_turn,
    put_conversation,
    scored,
    settings,
    thumb,
)
from tests.factories.stored import mark_trained
from tests.factories.turns import SESSION, make_session
from tests.unit.credit.child import conversation

ROOT = Path(__file__).parents[3]


def make_loop(lessons: LearningLog, renderer: Renderer, min_turns: int = 1, **training: Any) -> CreditLoop:
    return CreditLoop(lessons, renderer, settings(min_turns, **training), MODEL)


async def answers_baseline(store: SqliteStore) -> Baseline:
    return await store.lessons.baseline(USER, "answer")


async def test_a_conversation_becomes_samples_and_skips(store: SqliteStore, renderer: Renderer) -> None:
    verdicts = {0: scored(1), 1: scored(-1, HINT), 2: scored(0), 3: abstained(HINT), 4: abstained(), 5: failed()}
    await put_conversation(store, conversation(7))
    await judge(store, verdicts)
    loop = make_loop(store.lessons, renderer)
    assert await loop.work() == 6
    assert await loop.work() == 0
    credits_ = await credits_of(store)
    assert {i: credit.skip for i, credit in credits_.items()} == {
        0: None,
        1: None,
        3: None,
        2: Skip.NEUTRAL,
        4: Skip.ABSTAINED,
        5: Skip.JUDGE_FAILED,
    }
    assert [credit.reward for credit in credits_.values()] == [1.0, -1.0, 0.0, None, None, None]
    good, both, hint_only = (credits_[i].samples[0] for i in (0, 1, 3))
    # The first reward is measured against nothing, the second against it.
    assert (good.advantages, good.w_rl, good.w_opd, good.candidates) == ((1.0,) * 3, 0.2, 0.0, ())
    assert (both.advantages, both.w_rl, both.w_opd) == ((-2.0,) * 3, 0.2, 1.0)
    assert (hint_only.reward, hint_only.w_rl, hint_only.w_opd) == (0.0, 0.0, 1.0)
    assert [one.hint for one in both.candidates + hint_only.candidates] == [HINT, HINT]
    assert {sample.line for sample in (good, both, hint_only)} == {USER}
    # 1, -1 and the neutral 0; what nobody could say counts for nothing.
    assert await answers_baseline(store) == Baseline(line=USER, turn_kind="answer", mean=0.0, count=3)
    assert [sample.id for sample in await store.lessons.waiting_samples(USER, 10)] == ["s-1.0", "s-1.1", "s-1.3"]


@pytest.mark.parametrize(
    ("changes", "finish", "expected"),
    [
        ({}, "stop", None),
        ({"skip": Skip.NO_NEXT_STATE}, "stop", None),  # feedback came after all
        ({"skip": Skip.OPTED_OUT}, "stop", Skip.OPTED_OUT),
        ({"skip": Skip.REDACTED}, "stop", Skip.REDACTED),
        ({"kind": "side"}, "stop", Skip.SIDE_TURN),
        ({}, "abort", Skip.ABORTED),
        ({}, "error", Skip.ENGINE_FAILED),
        ({"model": "other#1"}, "stop", Skip.OTHER_MODEL),
        ({"model": f"scripted:{MODEL}"}, "stop", Skip.OTHER_MODEL),
    ],
)
async def test_turns_that_are_not_to_be_learned_from(
    store: SqliteStore, renderer: Renderer, changes: dict[str, Any], finish: FinishReason, expected: Skip | None
) -> None:
    await put_conversation(store, [make_turn(finish=finish, **changes)])
    await thumb(store, 0)
    await judge(store, {0: scored(1, HINT)})
    await make_loop(store.lessons, renderer).work()
    credit = (await credits_of(store))[0]
    assert (credit.skip, bool(credit.samples)) == (expected, expected is None)
    assert (await answers_baseline(store)).count == (expected is None)


async def test_an_answer_without_tokens_teaches_nothing(store: SqliteStore, renderer: Renderer) -> None:
    await put_conversation(store, [make_turn(token_ids=())])
    await thumb(store, 0)
    await judge(store, {0: scored(1)})
    await make_loop(store.lessons, renderer).work()
    assert (await credits_of(store))[0].skip is Skip.NOT_EXACT


async def test_a_scripted_run_credits_its_own_turns(store: SqliteStore, renderer: Renderer) -> None:
    await put_conversation(store, [make_turn(model="scripted:tiny#0")])
    await thumb(store, 0)
    await judge(store, {0: scored(1)})
    await CreditLoop(store.lessons, renderer, settings(), "scripted:tiny#0").work()
    assert (await credits_of(store))[0].skip is None


async def test_who_opted_out_meanwhile_is_not_learned_from(store: SqliteStore, renderer: Renderer) -> None:
    await put_conversation(store, conversation(2))
    await judge(store, {0: scored(1)})
    await store.put_session(make_session(opted_out=True))
    await make_loop(store.lessons, renderer).work()
    credit = (await credits_of(store))[0]
    assert (credit.skip, credit.reward) == (Skip.OPTED_OUT, None)
    assert (await answers_baseline(store)).count == 0


@pytest.mark.parametrize("method", ["combine", "binary", "opd"])
async def test_what_only_side_roles_followed_is_side(store: SqliteStore, renderer: Renderer, method: str) -> None:
    await put_conversation(store, conversation(2))
    await judge(store, {0: abstained(reason=SIDE_ROLES_ONLY)})
    await make_loop(store.lessons, renderer, method=method).work()
    assert (await credits_of(store))[0].skip is Skip.SIDE_TURN


async def test_of_cut_off_answers_hints_are_learned_and_no_score_is(store: SqliteStore, renderer: Renderer) -> None:
    await put_conversation(store, [make_turn(finish="length")])
    await thumb(store, 0)
    await judge(store, {0: scored(-1, HINT)})
    await make_loop(store.lessons, renderer).work()
    credit = (await credits_of(store))[0]
    (sample,) = credit.samples
    assert (credit.reward, sample.reward, sample.w_rl, sample.w_opd) == (None, 0.0, 0.0, 1.0)
    assert [one.hint for one in sample.candidates] == [HINT]
    assert (await answers_baseline(store)).count == 0


@pytest.mark.parametrize(
    ("verdict", "training"),
    [
        (scored(-1), {}),
        (abstained(), {}),
        (scored(-1, HINT), {"method": "binary"}),
        (scored(-1, HINT), {"truncated": "skip"}),
    ],
)
async def test_cut_off_answers_without_a_hint_are_left_out(
    store: SqliteStore, renderer: Renderer, verdict: Verdict, training: dict[str, Any]
) -> None:
    await put_conversation(store, [make_turn(finish="length")])
    await thumb(store, 0)
    await judge(store, {0: verdict})
    await make_loop(store.lessons, renderer, **training).work()
    credit = (await credits_of(store))[0]
    assert (credit.skip, credit.reward, credit.samples) == (Skip.TRUNCATED, None, ())


@pytest.mark.parametrize("verdict", [scored(1), scored(-1, HINT), abstained(), failed()])
async def test_cut_off_answers_may_be_scored(store: SqliteStore, renderer: Renderer, verdict: Verdict) -> None:
    await put_conversation(store, [make_turn(finish="length")])
    await thumb(store, 0)
    await judge(store, {0: verdict})
    await make_loop(store.lessons, renderer, truncated="score").work()
    credit = (await credits_of(store))[0]
    (sample,) = credit.samples
    assert (credit.reward, sample.reward, sample.w_rl) == (-1.0, -1.0, 0.2)
    assert len(sample.candidates) == len(verdict.hints)


CLAIM = (Vote(question="claim", score=1, hint=HINT, raw="it is 48"),)


@pytest.mark.parametrize(
    ("verdict", "training"),
    [
        (scored(-1, HINT, votes=CLAIM), {}),
        (scored(-1, HINT, votes=CLAIM), {"method": "binary"}),
        (scored(-1, HINT, votes=CLAIM), {"method": "opd"}),
        (scored(1, votes=CLAIM), {}),
    ],
)
async def test_neither_a_claim_nor_a_score_that_rests_on_it_is_learned(
    store: SqliteStore, renderer: Renderer, verdict: Verdict, training: dict[str, Any]
) -> None:
    await put_conversation(store, conversation(2))
    await judge(store, {0: verdict})
    await make_loop(store.lessons, renderer, **training).work()
    credit = (await credits_of(store))[0]
    assert (credit.skip, credit.reward, credit.samples) == (Skip.CLAIM, None, ())
    assert (await answers_baseline(store)).count == 0


async def test_of_a_cut_answer_a_claim_is_the_reason_too(store: SqliteStore, renderer: Renderer) -> None:
    await put_conversation(store, [make_turn(finish="length")])
    await thumb(store, 0)
    await judge(store, {0: scored(-1, HINT, votes=CLAIM)})
    await make_loop(store.lessons, renderer).work()
    assert (await credits_of(store))[0].skip is Skip.CLAIM


async def test_what_is_wanted_beside_a_claim_is_learned(store: SqliteStore, renderer: Renderer) -> None:
    await put_conversation(store, conversation(2))
    await judge(store, {0: scored(-1, "Mention the landlord.", HINT, votes=CLAIM)})
    await make_loop(store.lessons, renderer).work()
    (sample,) = (await credits_of(store))[0].samples
    assert (sample.reward, sample.w_rl, sample.w_opd) == (0.0, 0.0, 1.0)
    assert [one.hint for one in sample.candidates] == ["Mention the landlord."]


async def test_claims_may_be_learned_like_wishes(store: SqliteStore, renderer: Renderer) -> None:
    await put_conversation(store, conversation(2))
    await judge(store, {0: scored(-1, HINT, votes=CLAIM)})
    await make_loop(store.lessons, renderer, claims="learn").work()
    (sample,) = (await credits_of(store))[0].samples
    assert (sample.reward, sample.w_rl, [one.hint for one in sample.candidates]) == (-1.0, 0.2, [HINT])


async def test_calls_and_answers_have_means_of_their_own(store: SqliteStore, renderer: Renderer) -> None:
    call = make_turn(message=CALL)
    told = make_child(call, [Message(role="tool", content="a.txt", tool_call_id="c1")])
    await put_conversation(store, [call, told, make_child(told, "Thanks!")])
    await judge(store, {0: scored(1), 1: scored(1)})
    await make_loop(store.lessons, renderer).work()
    assert [credit.samples[0].advantages[0] for credit in (await credits_of(store)).values()] == [1.0, 1.0]
    assert (await store.lessons.baseline(USER, "tool_call")).count == 1


async def test_more_evidence_replaces_the_sample_and_what_it_counts_for(store: SqliteStore, renderer: Renderer) -> None:
    await put_conversation(store, conversation(2))
    loop = make_loop(store.lessons, renderer)
    for number, (verdict, reward) in enumerate([(scored(-1), -1.0), (abstained(), -1.0), (scored(1), 1.0)]):
        if number:
            await thumb(store, 0, given_at=300.0 + number)
        await judge(store, {0: verdict})
        await loop.work()
        credit = (await credits_of(store))[0]
        assert (credit.num_evidence, credit.reward) == (number + 1, reward)
        assert await answers_baseline(store) == Baseline(line=USER, turn_kind="answer", mean=reward, count=1)
    (sample,) = await store.lessons.waiting_samples(USER, 10)
    assert (sample.reward, sample.advantages[0]) == (1.0, 1.0), "not measured against what was taken back"


async def test_no_turn_is_learned_from_twice(store: SqliteStore, renderer: Renderer) -> None:
    await put_conversation(store, conversation(2))
    await judge(store, {0: scored(-1)})
    loop = make_loop(store.lessons, renderer)
    await loop.work()
    await mark_trained(store, "s-1.0", step=1)
    await thumb(store, 0)
    await judge(store, {0: scored(1)})
    await loop.work()
    assert (await credits_of(store))[0].skip is Skip.ALREADY_TRAINED
    assert await store.lessons.waiting_samples(USER, 10) == []


async def test_who_lost_the_lease_stores_nothing(store: SqliteStore, renderer: Renderer) -> None:
    await put_conversation(store, conversation(2))
    await judge(store, {0: scored(1)})
    await make_loop(_LosesLeases(store), renderer).work()
    assert await credits_of(store) == {}
    assert (await answers_baseline(store)).count == 0
    await store.lessons.release_earlier()
    await make_loop(store.lessons, renderer).work()
    assert (await answers_baseline(store)).count == 1


async def test_a_deleted_session_is_no_work(store: SqliteStore, renderer: Renderer) -> None:
    await put_conversation(store, conversation(2))
    await judge(store, {0: scored(1)})
    await make_loop(_Forgets(store), renderer).work()
    assert await credits_of(store) == {}


async def test_short_sessions_wait_until_they_are_long_enough(store: SqliteStore, renderer: Renderer) -> None:
    turns = conversation(3)
    await put_conversation(store, [*turns[:2], make_turn(9, kind="side", skip=Skip.SIDE_TURN)])
    await judge(store, {0: scored(1)})
    loop = make_loop(store.lessons, renderer, min_turns=3)
    assert await loop.work() == 0
    await put_conversation(store, turns)
    await judge(store, {1: scored(1)})
    assert await loop.work() == 2
    assert [credit.skip for credit in (await credits_of(store)).values()] == [None, None]


async def test_sessions_that_stayed_too_short_are_skipped(store: SqliteStore, renderer: Renderer) -> None:
    await put_conversation(store, [*conversation(2), make_turn(2, kind="side", skip=Skip.SIDE_TURN)])
    await judge(store, {0: scored(1)})
    loop = make_loop(store.lessons, renderer, min_turns=3)
    await store.close_session(SESSION, 400.0)
    assert await loop.work() == 1
    assert (await credits_of(store))[0].skip is Skip.TOO_FEW_TURNS


async def test_turns_wait_for_the_judgement_of_those_before_them(store: SqliteStore, renderer: Renderer) -> None:
    """Its own credit may depend on it: an accepted rewrite does."""
    await put_conversation(store, conversation(3))
    first, second = sorted(await store.lessons.lease("judge", limit=9, ttl_s=60.0), key=lambda held: held.index)
    await store.lessons.give_back(second, due_at=0.0)
    await judge(store, {1: scored(1)})
    loop = make_loop(store.lessons, renderer)
    assert await loop.work() == 0
    woken = store.lessons.woken("credit")
    woken.clear()
    await store.lessons.close_task(first)
    assert woken.is_set()
    assert await loop.work() == 1


async def test_along_a_session_credit_waits_for_its_end(store: SqliteStore, renderer: Renderer) -> None:
    await put_conversation(store, conversation(5))
    await judge(store, {0: scored(1), 1: abstained(), 3: scored(-1, HINT)})
    loop = make_loop(store.lessons, renderer, advantage="session_gae", gae_gamma=0.5, gae_lambda=0.5)
    assert await loop.work() == 0
    await thumb(store, 2)
    woken = store.lessons.woken("credit")
    woken.clear()
    await store.close_session(SESSION, 400.0)
    assert woken.is_set()
    assert await loop.work() == 0  # turn 2 is still with the judge
    await judge(store, {2: scored(1)})
    assert await loop.work() == 4
    samples = {credit.index: credit.samples[0] for credit in (await credits_of(store)).values() if credit.samples}
    # r = 1, none, 1, -1 and nobody said anything about the last: A_0 = 1 + 1/16 - 1/64.
    expected = {0: 1.046875, 2: 0.75, 3: -1.0}
    assert {i: sample.advantages[0] for i, sample in samples.items()} == expected
    assert (await answers_baseline(store)).count == 3


async def test_where_each_turn_stands_alone_nothing_flows(store: SqliteStore, renderer: Renderer) -> None:
    await put_conversation(store, conversation(3))
    await judge(store, {0: scored(1), 1: scored(-1)})
    await make_loop(store.lessons, renderer, session_aware=False, advantage="session_gae").work()
    assert [credit.samples[0].advantages[0] for credit in (await credits_of(store)).values()] == [1.0, -1.0]


@pytest.mark.parametrize("finish", ["length", "abort", "error"])
async def test_answers_to_the_same_request_are_compared_if_they_came_to_an_end(
    store: SqliteStore, renderer: Renderer, finish: FinishReason
) -> None:
    turns = [make_turn(i, request_digest="same", prompt_ids=(1, 2)) for i in range(3)]
    cut_off = make_turn(3, request_digest="same", prompt_ids=(1, 2), finish=finish)
    await put_conversation(store, [*turns, cut_off, make_turn(4)])
    for index in range(5):
        await thumb(store, index)
    await judge(store, {0: scored(1), 1: scored(-1), 2: abstained(), 3: scored(-1), 4: scored(1)})
    await make_loop(store.lessons, renderer, advantage="group").work()
    made = {i: credit.samples[0].advantages[0] for i, credit in (await credits_of(store)).items() if credit.samples}
    assert made == pytest.approx({0: 0.7071, 1: -0.7071, 4: 1.0}, abs=1e-4)


@pytest.mark.parametrize("advantage", ["raw", "step_wise"])
async def test_a_conversation_has_no_steps_to_compare(store: SqliteStore, renderer: Renderer, advantage: str) -> None:
    await put_conversation(store, conversation(3))
    await judge(store, {0: scored(1), 1: scored(1)})
    await make_loop(store.lessons, renderer, advantage=advantage).work()
    assert [credit.samples[0].advantages[0] for credit in (await credits_of(store)).values()] == [1.0, 1.0]


async def test_the_published_recipe(store: SqliteStore, renderer: Renderer) -> None:
    """Raw advantages, hints in the last user message, an un-hinted teacher for scores alone, no rewrites."""
    turns = conversation(3)
    await put_conversation(store, turns)
    await judge(store, {0: scored(-1, HINT), 1: scored(1)})
    recipe = preset_defaults({"training.preset": "reference"})
    chosen = {key.removeprefix("training."): value for key, value in recipe.items()}
    await make_loop(store.lessons, renderer, **chosen).work()
    (hinted,), (plain,) = (credit.samples for credit in (await credits_of(store)).values())
    assert (hinted.advantages[0], plain.advantages[0]) == (-1.0, 1.0)
    text = renderer.decode(hinted.teacher_prompt(hinted.candidates[0]))
    assert f"[A note on this request]\n{HINT}" in text
    assert (plain.w_opd, plain.candidates[0].hint) == (1.0, "")
    assert plain.teacher_prompt(plain.candidates[0]) == turns[1].prompt_ids


async def test_by_default_a_score_alone_has_no_teacher(store: SqliteStore, renderer: Renderer) -> None:
    await put_conversation(store, conversation(2))
    await judge(store, {0: scored(1)})
    await make_loop(store.lessons, renderer, accepted_rewrites=False).work()
    (sample,) = (await credits_of(store))[0].samples
    assert (sample.w_opd, sample.candidates) == (0.0, ())


async def test_one_turn_that_cannot_be_credited_does_not_keep_the_others(
    store: SqliteStore, renderer: Renderer, caplog: pytest.LogCaptureFixture
) -> None:
    await put_conversation(store, conversation(3))
    await judge(store, {0: scored(1), 1: scored(1)})
    assert await make_loop(_Chokes(store), renderer).work() == 2
    assert list(await credits_of(store)) == [1]
    assert "turn s-1.0 cannot be credited now: ValueError in judged_turn" in caplog.text
    assert "landlord" not in caplog.text
    assert await store.lessons.num_open("credit") == 1
    assert [await store.lessons.num_open("credit", line) for line in (USER, "nobody", "env:toy")] == [1, 0, 0]
    assert await make_loop(store.lessons, renderer).work() == 0  # not yet


async def test_the_loop_runs_until_it_is_cancelled(
    store: SqliteStore, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Woken by each judgement; a store that is down only delays it."""
    monkeypatch.setattr(credit_loop, "RETRY_S", 0.01)
    await put_conversation(store, conversation(4))
    lessons = _Fails(store)
    async with running(make_loop(lessons, renderer)):
        await judge(store, {0: scored(1)})
        await lessons.credited()
        await thumb(store, 1)
        await judge(store, {1: scored(-1)})
        await lessons.credited()
    assert list(await credits_of(store)) == [0, 1]


async def test_what_is_put_off_is_tried_again_when_it_is_due(
    store: SqliteStore, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credit_loop, "AGAIN", Backoff(first_s=0.05))
    await put_conversation(store, conversation(2))
    await judge(store, {0: scored(1)})
    lessons = _Chokes(store, times=2)
    async with running(make_loop(lessons, renderer)):
        await lessons.credited()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert credit_in_child(folder) == 0
    return folder


@pytest.mark.parametrize(("place", "passes"), [("credit.leased", 3), ("store.in_credit", 4)])
async def test_a_kill_loses_nothing_and_counts_nothing_twice(
    tmp_path: Path, undisturbed: Path, place: str, passes: int
) -> None:
    assert await asyncio.to_thread(credit_in_child, tmp_path, f"{place}:{passes}") == -signal.SIGKILL
    assert len((await state_of(tmp_path))[0]) == passes - 1
    assert await asyncio.to_thread(credit_in_child, tmp_path) == 0
    expected, expected_mean = await state_of(undisturbed)
    assert await state_of(tmp_path) == (expected, expected_mean)
    assert (len(expected), expected_mean.count) == (6, 5)


def credit_in_child(folder: Path, crash_at: str = "") -> int:
    command = [sys.executable, "-m", "tests.unit.credit.child", str(folder)]
    environment = {**os.environ, "OPENCLAW_RL_CRASH_AT": crash_at}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


async def state_of(folder: Path) -> tuple[list[Credit], Baseline]:
    """All credits without their dates, and the running mean."""
    async with await SqliteStore.open(folder) as store:
        found = (await credits_of(store)).values()
        undated = [
            replace(
                credit, credited_at=0.0, samples=tuple(replace(sample, created_at=0.0) for sample in credit.samples)
            )
            for credit in found
        ]
        return undated, await answers_baseline(store)


@asynccontextmanager
async def running(loop: CreditLoop) -> AsyncIterator[None]:
    task = asyncio.create_task(loop.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class _Lessons(LearningLog):
    """The log of a store, with something wrong about it."""

    def __init__(self, store: SqliteStore, times: int = 1) -> None:
        super().__init__(store._transact, wakeups=store.lessons)
        self._times = times
        self._credited = asyncio.Semaphore(0)

    async def put_credit(self, held: Lease, credit: Credit) -> bool:
        stored = await super().put_credit(held, credit)
        self._credited.release()
        return stored

    async def credited(self) -> None:
        """Returns when another credit was written."""
        await asyncio.wait_for(self._credited.acquire(), timeout=60)


class _LosesLeases(_Lessons):
    """Somebody else got the work before it was done."""

    async def lease(self, *args: Any, **options: Any) -> list[Lease]:
        leases = await super().lease(*args, **options)
        return [replace(held, token=held.token - 1) for held in leases]


class _Forgets(_Lessons):
    """The session is deleted while its turn is leased."""

    async def judged_turn(self, session: str, index: int) -> JudgedTurn | None:
        await self.delete_session(session)
        return await super().judged_turn(session, index)


class _Chokes(_Lessons):
    """Something about turn 0 is wrong, a few times."""

    async def judged_turn(self, session: str, index: int) -> JudgedTurn | None:
        if index == 0 and self._times:
            self._times -= 1
            raise ValueError("Write a note to the landlord.")
        return await super().judged_turn(session, index)


class _Fails(_Lessons):
    """The disk is full when the first work is asked for."""

    async def lease(self, *args: Any, **options: Any) -> list[Lease]:
        if self._times:
            self._times -= 1
            raise StoreUnavailable("disk full")
        return await super().lease(*args, **options)


async def test_a_real_reward_trains_as_it_is(store: SqliteStore, renderer: Renderer) -> None:
    """0.37 stays 0.37 through the judgement's row, the credit, the sample and the running mean."""
    await put_conversation(store, conversation(3))
    await judge(store, {0: Verdict(outcome="scored", score=1, value=0.37), 1: scored(1)})
    assert [one.verdict.reward for one in await store.lessons.judgements(SESSION)] == [0.37, 1.0]
    await make_loop(store.lessons, renderer).work()
    first, second = (await credits_of(store)).values()
    assert (first.reward, first.samples[0].reward) == (0.37, 0.37)
    assert first.samples[0].advantages == pytest.approx((0.37,) * 3)
    assert second.samples[0].advantages[0] == pytest.approx(1.0 - 0.37)
    assert (await answers_baseline(store)).mean == pytest.approx((0.37 + 1.0) / 2)
