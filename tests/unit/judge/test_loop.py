"""The loop around a judge, over a real store: what is stored, what is tried again, and when nothing is believed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.backoff import Backoff
from openclaw_rl.errors import StoreUnavailable
from openclaw_rl.judge.canaries import CANARIES_FILE, Canaries
from openclaw_rl.judge.loop import BATCH_SIZE, MAX_HELD, JudgeLoop, JudgeSettings
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import (
    JUDGING_PAUSED,
    SIDE_ROLES_ONLY,
    Evidence,
    Feedback,
    Judgement,
    Lease,
    Message,
    NextState,
    Role,
    Score,
    Skip,
    Verdict,
)
from tests.factories.turns import SESSION, make_conversation, make_session, make_turn

KNOWN = {
    line["next"][-1]["content"]: line["expected"] for line in map(json.loads, CANARIES_FILE.read_text().splitlines())
}
FAILED = Verdict(outcome="failed", reason="it is down")

Answer = Callable[[Evidence], Awaitable[Verdict]]


def scored(score: Score, *hints: str) -> Verdict:
    return Verdict(outcome="scored", score=score, hints=hints)


async def honest(evidence: Evidence) -> Verdict:
    """Knows the canaries, and calls everything else bad."""
    return scored(KNOWN.get(_said(evidence), -1))


async def lying(evidence: Evidence) -> Verdict:
    return scored(1)


async def down(evidence: Evidence) -> Verdict:
    return FAILED


def _said(evidence: Evidence) -> str:
    return evidence.following[-1].content if evidence.following else ""


class FakeJudge:
    """A judge whose answer can be changed while it is asked. `num_at_once` is the most that were asked together."""

    prompt_version = "fake-1"

    def __init__(self, answer: Answer = honest) -> None:
        self.name = "fake"
        self.answer = answer
        self.asked: list[str] = []
        self.num_canaries = self.num_now = self.num_at_once = self.num_forgotten = 0

    async def judge(self, evidence: Evidence) -> Verdict:
        said = _said(evidence)
        self.num_canaries += said in KNOWN
        self.asked += [said] if said not in KNOWN else []
        self.num_now += 1
        self.num_at_once = max(self.num_at_once, self.num_now)
        try:
            return await self.answer(evidence)
        finally:
            self.num_now -= 1

    def forget(self) -> None:
        self.num_forgotten += 1

    async def close(self) -> None:
        pass


@dataclass
class Watcher:
    seen: list[object] = field(default_factory=list)

    def judged(self, outcome: str) -> None:
        self.seen.append(outcome)

    def examined(self, finding: str) -> None:
        self.seen.append(finding)

    def judging_paused(self, paused: bool) -> None:
        self.seen.append(paused)


@dataclass
class Rig:
    """A store, a judge and the loop between them; `pauses` are the waits that it asked for, which take no time."""

    store: SqliteStore
    judge: FakeJudge
    settings: JudgeSettings = field(default_factory=lambda: JudgeSettings(gather_s=0.0))
    others: list[FakeJudge] = field(default_factory=list)
    canaries: Canaries | None = field(default_factory=Canaries.shipped)
    unseen: list[FakeJudge] = field(default_factory=list)
    watcher: Watcher = field(default_factory=Watcher)
    pauses: list[float] = field(default_factory=list)
    at_pause: Callable[[], None] = lambda: None
    lessons: Any = None
    told_at: float = 0.0
    """What the clock said last."""

    def clock(self) -> float:
        self.told_at = time.time()
        return self.told_at

    async def pause(self, seconds: float) -> None:
        if seconds:
            self.pauses.append(seconds)
            self.at_pause()
        await asyncio.sleep(0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        loop = JudgeLoop(
            self.lessons or self.store.lessons,
            [self.judge, *self.others],
            self.settings,
            canaries=self.canaries,
            unseen=self.unseen,
            watch=self.watcher,
            pause=self.pause,
            clock=self.clock,
        )
        task = asyncio.create_task(loop.run())
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(60):
            while not await condition():  # noqa: ASYNC110 - rows have no event to wait for
                await asyncio.sleep(0.002)

    async def judgements(self, session: str = SESSION) -> dict[int, Judgement]:
        return {one.index: one for one in await self.store.lessons.judgements(session)}

    async def until_judged(self, num: int, session: str = SESSION) -> dict[int, Judgement]:
        async def enough() -> bool:
            return len(await self.judgements(session)) >= num

        await self.until(enough)
        return await self.judgements(session)

    async def until_idle(self) -> None:
        async def idle() -> bool:
            return await self.store.lessons.num_open("judge") == 0

        await self.until(idle)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        await opened.put_session(make_session())
        yield opened


@pytest.fixture
def rig(store: SqliteStore) -> Rig:
    return Rig(store, FakeJudge())


async def follow(store: SqliteStore, index: int, said: str, *, role: Role = "user", session: str = SESSION) -> None:
    message = Message(role=role, content=said)
    await store.put_next_state(NextState(session=session, index=index, messages=(message,), arrived_at=200.0 + index))


async def tell(store: SqliteStore, num_turns: int, **changes: Any) -> None:
    """A conversation whose turns were followed by "reaction N"."""
    for turn in make_conversation(num_turns, words=2):
        await store.put_turn(replace(turn, **changes))
        await follow(store, turn.index, f"reaction {turn.index}")


async def test_every_turn_is_judged_once_with_what_followed_it(rig: Rig) -> None:
    await tell(rig.store, 5)
    async with rig.running():
        judged = await rig.until_judged(5)
        await rig.until_idle()
    assert sorted(judged) == [0, 1, 2, 3, 4]
    assert {(j.judge, j.prompt_version, j.num_evidence, j.verdict.score) for j in judged.values()} == {
        ("fake", "fake-1", 1, -1)
    }
    assert sorted(rig.judge.asked) == [f"reaction {i}" for i in range(5)]
    assert rig.watcher.seen.count("scored") == 5
    assert await rig.store.lessons.num_open("credit") == 5


async def test_it_sleeps_until_evidence_arrives(rig: Rig) -> None:
    async with rig.running():
        await asyncio.sleep(0.02)
        await tell(rig.store, 1)
        await rig.until_judged(1)
        await rig.store.put_feedback(Feedback(session=SESSION, index=0, user="ann", given_at=300.0, score=1))

        async def again() -> bool:
            return (await rig.judgements())[0].num_evidence == 2

        await rig.until(again)
    assert len(rig.judge.asked) == 2


async def test_a_batch_has_one_good_and_one_bad_canary(rig: Rig) -> None:
    await tell(rig.store, BATCH_SIZE + 1)
    async with rig.running():
        await rig.until_judged(BATCH_SIZE + 1)
    assert rig.judge.num_canaries == 4
    assert rig.watcher.seen.count("right") == 2


async def test_a_turn_that_cannot_be_read_does_not_stop_the_others(rig: Rig) -> None:
    """`build_evidence` has no answer to a limit below zero: a stand-in for whatever we did not think of."""
    rig.settings = replace(rig.settings, max_chars=None)  # type: ignore[arg-type]
    await tell(rig.store, 2)
    async with rig.running():
        judged = await rig.until_judged(2)
    assert {j.verdict.reason for j in judged.values()} == {"its evidence cannot be read: TypeError"}


async def test_the_judge_is_asked_a_few_at_a_time(rig: Rig) -> None:
    async def slow(evidence: Evidence) -> Verdict:
        await asyncio.sleep(0.01)
        return await honest(evidence)

    rig.judge.answer = slow
    rig.settings = replace(rig.settings, num_at_once=3)
    await tell(rig.store, 12)
    async with rig.running():
        await rig.until_judged(12)
    assert rig.judge.num_at_once == 3


@pytest.mark.parametrize("changes", [{"kind": "side"}, *({"skip": s} for s in (Skip.ABORTED, Skip.OPTED_OUT))])
async def test_turns_that_nobody_may_learn_from_are_not_judged(rig: Rig, changes: dict[str, Any]) -> None:
    await tell(rig.store, 2, **changes)
    async with rig.running():
        await rig.until_idle()
    assert (await rig.judgements(), rig.judge.asked, rig.judge.num_canaries) == ({}, [], 0)


async def test_neither_are_those_of_an_opted_out_session(rig: Rig) -> None:
    await rig.store.put_session(make_session(opted_out=True))
    await tell(rig.store, 2)
    async with rig.running():
        await rig.until_idle()
    assert (await rig.judgements(), rig.judge.asked) == ({}, [])


async def test_what_was_said_after_the_session_ended_counts(rig: Rig) -> None:
    await rig.store.put_turn(make_turn(skip=Skip.NO_NEXT_STATE))
    await rig.store.put_feedback(Feedback(session=SESSION, index=0, user="ann", given_at=300.0, text="too long"))
    async with rig.running():
        await rig.until_judged(1)


async def test_the_last_turn_of_a_session_is_judged_by_what_it_shows_of_itself(rig: Rig) -> None:
    await rig.store.put_turn(make_turn(0, finish_reason="length"))
    await rig.store.put_turn(make_turn(1))
    for index in (0, 1, 1):
        await rig.store.mark_skip(SESSION, index, Skip.NO_NEXT_STATE)
    async with rig.running():
        judged = await rig.until_judged(1)
        await rig.until_idle()
    assert (judged[0].verdict.score, judged[0].verdict.reason) == (
        -1,
        "finding: the answer was cut at its length limit",
    )
    assert (list(await rig.judgements()), rig.judge.asked) == ([0], [])


async def test_what_follows_a_last_turn_after_all_is_judged_with_it(rig: Rig) -> None:
    await rig.store.put_turn(make_turn())
    await rig.store.mark_skip(SESSION, 0, Skip.NO_NEXT_STATE)
    async with rig.running():
        await rig.until_idle()
        assert await rig.judgements() == {}
        await follow(rig.store, 0, "reaction 0")
        await rig.until_judged(1)
    assert len(rig.judge.asked) == 1


async def test_an_ended_session_that_opted_out_is_not_looked_at(rig: Rig) -> None:
    await rig.store.put_session(make_session(opted_out=True))
    await rig.store.put_turn(make_turn(0, finish_reason="length"))
    await rig.store.mark_skip(SESSION, 0, Skip.NO_NEXT_STATE)
    async with rig.running():
        await rig.until_idle()
    assert await rig.judgements() == {}


async def test_roles_beside_the_main_line_are_no_feedback(rig: Rig) -> None:
    rig.settings = replace(rig.settings, main_line=frozenset({"user", "assistant"}))
    await rig.store.put_turn(make_turn())
    await follow(rig.store, 0, "exit 1", role="tool")
    async with rig.running():
        judged = await rig.until_judged(1)
    assert (judged[0].verdict.outcome, judged[0].verdict.reason) == ("abstained", SIDE_ROLES_ONLY)
    assert rig.judge.asked == []


async def test_a_turn_that_the_judge_fails_is_tried_again_later_and_then_given_up(rig: Rig) -> None:
    async def stuck_on_one(evidence: Evidence) -> Verdict:
        return FAILED if _said(evidence) == "reaction 1" else await honest(evidence)

    rig.judge.answer = stuck_on_one
    rig.settings = replace(rig.settings, max_attempts=3, again=Backoff(first_s=0.1))
    await tell(rig.store, 3)
    began = time.monotonic()
    async with rig.running():
        judged = await rig.until_judged(2)
        assert sorted(judged) == [0, 2]
        judged = await rig.until_judged(3)
        await rig.until_idle()
    assert time.monotonic() - began >= 0.1 + 0.2
    assert judged[1].verdict == FAILED
    assert rig.judge.asked.count("reaction 1") == 3
    assert rig.judge.asked.count("reaction 0") == 1


async def test_a_judge_that_never_answers_only_delays(rig: Rig) -> None:
    async def hang(evidence: Evidence) -> Verdict:
        if _said(evidence) == "reaction 0":
            await asyncio.Event().wait()
        return await honest(evidence)

    rig.judge.answer = hang
    rig.settings = replace(rig.settings, deadline_s=0.05, max_attempts=1)
    await tell(rig.store, 2)
    async with rig.running():
        judged = await rig.until_judged(2)
    assert judged[0].verdict == Verdict(outcome="failed", reason="no verdict within 0.05 s")
    assert judged[1].verdict.score == -1


async def test_a_judge_that_raises_costs_a_verdict_and_says_nothing_of_the_conversation(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    async def burst(evidence: Evidence) -> Verdict:
        if _said(evidence) in KNOWN:
            return await honest(evidence)
        raise RuntimeError(f"cannot read {_said(evidence)}")

    rig.judge.answer = burst
    rig.settings = replace(rig.settings, max_attempts=1)
    await tell(rig.store, 1)
    async with rig.running():
        judged = await rig.until_judged(1)
    assert judged[0].verdict.reason == "the judge raised RuntimeError"
    assert "reaction" not in caplog.text


async def test_a_batch_with_wrong_canaries_is_held_and_judged_again(rig: Rig) -> None:
    rig.judge.answer = lying

    def recover() -> None:
        rig.judge.answer = honest

    rig.at_pause = recover
    await tell(rig.store, 3)
    async with rig.running():
        judged = await rig.until_judged(3)
    assert {j.verdict.score for j in judged.values()} == {-1}
    assert rig.judge.num_forgotten == 1, "what it said is not used again"
    assert rig.pauses == [1.0]
    assert [s for s in rig.watcher.seen if s in ("wrong", "right")] == ["wrong", "right"]
    assert await rig.store.lessons.flag(JUDGING_PAUSED) is None


@pytest.mark.parametrize(
    ("answer", "finding", "trouble"),
    [(lying, "wrong", "got a known case wrong"), (down, "silent", "gave no verdict on a known case")],
)
async def test_after_some_held_batches_judging_is_paused_until_the_canaries_come_out_right(
    rig: Rig, answer: Answer, finding: str, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig.judge.answer = answer
    reasons: list[str | None] = []
    asked: list[int] = []

    def look() -> None:
        asked.append(len(rig.judge.asked))
        if len(rig.pauses) == MAX_HELD + 9:
            rig.judge.answer = honest

    rig.at_pause = look
    await tell(rig.store, 2)
    async with rig.running():

        async def paused() -> bool:
            reasons.append(await rig.store.lessons.flag(JUDGING_PAUSED))
            return reasons[-1] is not None

        await rig.until(paused)
        judged = await rig.until_judged(2)
        await rig.until_idle()
    assert str(reasons[-1]).startswith(f"the judge fake {trouble}, 3 times in a row; ")
    assert "evaluation.canaries=false" in str(reasons[-1])
    assert "judging is paused" in caplog.text
    assert {j.verdict.score for j in judged.values()} == {-1}, "nothing of what the liar said was kept"
    assert rig.pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert asked == [2, 4, *[6] * 10], "while it is paused, only canaries are asked about"
    assert rig.watcher.seen.count(finding) == MAX_HELD + 9
    assert [s for s in rig.watcher.seen if isinstance(s, bool)] == [False, True, False]
    assert await rig.store.lessons.flag(JUDGING_PAUSED) is None


async def test_a_held_batch_costs_no_attempt(rig: Rig) -> None:
    rig.judge.answer = down
    rig.settings = replace(rig.settings, max_attempts=2)
    await tell(rig.store, 1)
    attempts: list[int] = []

    async def look() -> bool:
        if len(rig.pauses) < MAX_HELD:
            return False
        (held,) = await rig.store.lessons.lease("judge", limit=1, ttl_s=60)
        attempts.append(held.attempts)
        return True

    async with rig.running():
        await rig.until(look)
    assert attempts == [0]
    assert await rig.judgements() == {}


async def test_a_pause_outlives_the_process(rig: Rig) -> None:
    await rig.store.lessons.set_flag(JUDGING_PAUSED, "it lied")
    rig.judge.answer = lying
    await tell(rig.store, 1)
    async with rig.running():

        async def probed() -> bool:
            return len(rig.pauses) >= 3

        await rig.until(probed)
    assert (rig.judge.asked, await rig.store.lessons.flag(JUDGING_PAUSED)) == ([], "it lied")
    rig.judge.answer = honest
    async with rig.running():
        await rig.until_judged(1)
    assert await rig.store.lessons.flag(JUDGING_PAUSED) is None


async def test_without_canaries_nothing_is_held(rig: Rig) -> None:
    await rig.store.lessons.set_flag(JUDGING_PAUSED, "it lied")
    rig.canaries = None
    rig.judge.answer = lying
    await tell(rig.store, 2)
    async with rig.running():
        await rig.until_judged(2)
    assert rig.judge.num_canaries == 0
    assert await rig.store.lessons.flag(JUDGING_PAUSED) is None


async def test_of_several_judges_only_those_with_a_say_are_examined(rig: Rig) -> None:
    second = FakeJudge(lying)
    rig.others = [second]
    await tell(rig.store, 1)
    async with rig.running():
        await rig.until_judged(1)
    assert (second.asked, second.num_canaries) == ([], 0)


async def unsure_of_odd_ones(evidence: Evidence) -> Verdict:
    is_odd = _said(evidence) in {f"reaction {index}" for index in range(1, 99, 2)}
    return Verdict(outcome="abstained", reason="no idea") if is_odd else await honest(evidence)


def put_behind(rig: Rig, answer: Answer) -> FakeJudge:
    """A judge that is asked about the odd turns only."""
    rig.judge.answer = unsure_of_odd_ones
    rig.settings = replace(rig.settings, retry=Backoff(first_s=0.05))
    rig.others = [FakeJudge(answer)]
    rig.others[0].name = "liar"
    return rig.others[0]


@pytest.mark.parametrize(
    ("answer", "trouble"), [(lying, "got a known case wrong"), (down, "gave no verdict on a known case")]
)
async def test_trouble_of_a_later_judge_stops_only_the_turns_that_it_was_asked_about(
    rig: Rig, answer: Answer, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    second = put_behind(rig, answer)
    await tell(rig.store, 5)
    async with rig.running():
        await rig.until_judged(3)

        async def held_often() -> bool:
            return second.num_forgotten > MAX_HELD

        await rig.until(held_often)
        assert sorted(await rig.judgements()) == [0, 2, 4]
        told = str(await rig.store.lessons.flag(JUDGING_PAUSED))
        assert told.startswith(f"the judge liar {trouble}; only the turns that it is asked about wait; ")
        assert "2 turns wait: the judge liar" in caplog.text
        second.answer = honest
        judged = await rig.until_judged(5)
        await rig.until_idle()
    assert {j.verdict.score for j in judged.values()} == {-1}
    assert await rig.store.lessons.flag(JUDGING_PAUSED) is None
    assert (True in rig.watcher.seen, rig.pauses, rig.judge.num_forgotten) == (False, [], 0)
    assert rig.judge.asked.count("reaction 0") == 1


async def test_a_later_judge_that_reads_no_reactions_gets_no_canaries(rig: Rig) -> None:
    rig.unseen = [put_behind(rig, lying)]
    await tell(rig.store, 5)
    async with rig.running():
        judged = await rig.until_judged(5)
    assert [judged[index].verdict.score for index in range(5)] == [-1, 1, -1, 1, -1]
    assert rig.unseen[0].num_canaries == 0
    assert rig.judge.num_canaries > 0


async def test_a_first_judge_that_reads_no_reactions_gets_no_canaries_and_ends_an_old_pause(rig: Rig) -> None:
    rig.judge.answer, rig.unseen = lying, [rig.judge]
    await rig.store.lessons.set_flag(JUDGING_PAUSED, "the judge of yesterday got a known case wrong")
    await tell(rig.store, 2)
    async with rig.running():
        judged = await rig.until_judged(2)
    assert {j.verdict.score for j in judged.values()} == {1}
    assert (rig.judge.num_canaries, rig.pauses, await rig.store.lessons.flag(JUDGING_PAUSED)) == (0, [], None)


async def test_the_turns_of_a_later_judge_in_trouble_wait_longer_each_time_and_lose_no_attempt(rig: Rig) -> None:
    second = put_behind(rig, down)
    rig.settings = replace(rig.settings, retry=Backoff(first_s=1.0, longest_s=300.0), max_attempts=2)
    waits: list[float] = []
    attempts: list[int] = []

    async def give_back(held: Lease, *, due_at: float, count_attempt: bool = True) -> bool:
        waits.append(round(due_at - rig.told_at))
        attempts.append(held.attempts)
        if len(waits) == 12:
            second.answer = honest
        return await rig.store.lessons.give_back(held, due_at=time.time(), count_attempt=count_attempt)

    await tell(rig.store, 2)
    rig.lessons = Altered(rig.store.lessons, give_back=give_back)
    async with rig.running():
        await rig.until_judged(2)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert set(attempts) == {0}


async def test_after_a_restart_a_later_judge_in_trouble_does_not_stop_the_first(rig: Rig) -> None:
    put_behind(rig, down)
    await rig.store.lessons.set_flag(JUDGING_PAUSED, "the judge liar gave no verdict on a known case")
    await tell(rig.store, 3)
    async with rig.running():
        assert sorted(await rig.until_judged(2)) == [0, 2]


async def test_trouble_of_the_first_judge_holds_all_and_all_forget(rig: Rig) -> None:
    """The later one was not examined then: nothing is known about what it said."""
    second = put_behind(rig, honest)

    async def useless(evidence: Evidence) -> Verdict:
        return FAILED if _said(evidence) in KNOWN else await unsure_of_odd_ones(evidence)

    rig.judge.answer = useless
    await tell(rig.store, 2)
    async with rig.running():

        async def paused() -> bool:
            return True in rig.watcher.seen

        await rig.until(paused)
        assert await rig.judgements() == {}
        assert (rig.judge.num_forgotten, second.num_forgotten, second.num_canaries) == (MAX_HELD, MAX_HELD, 0)
        rig.judge.answer = unsure_of_odd_ones
        await rig.until_judged(2)
    assert await rig.store.lessons.flag(JUDGING_PAUSED) is None


async def test_a_liar_behind_an_honest_judge_is_found_out(rig: Rig) -> None:
    async def unsure(evidence: Evidence) -> Verdict:
        known = _said(evidence) in KNOWN
        return await honest(evidence) if known else Verdict(outcome="abstained", reason="no idea")

    put_behind(rig, lying)
    rig.judge.answer = unsure
    await tell(rig.store, 1)
    async with rig.running():

        async def paused() -> bool:
            return "the judge liar got a known case wrong" in str(await rig.store.lessons.flag(JUDGING_PAUSED))

        await rig.until(paused)
        assert await rig.judgements() == {}
        rig.others[0].answer = honest
        judged = await rig.until_judged(1)
    assert (judged[0].judge, judged[0].verdict.score) == ("fake+liar", -1)


async def test_who_lost_the_lease_stores_nothing(rig: Rig) -> None:
    """New evidence in the middle: the turn is judged on all of it, and the first verdict, on half of it, is dropped."""
    entered, leave = asyncio.Event(), asyncio.Event()

    async def wait(evidence: Evidence) -> Verdict:
        if _said(evidence) not in KNOWN:
            entered.set()
            await leave.wait()
        return await honest(evidence)

    rig.judge.answer = wait
    await tell(rig.store, 1)
    async with rig.running():
        await entered.wait()
        await rig.store.put_feedback(Feedback(session=SESSION, index=0, user="ann", given_at=300.0, score=1))
        (other,) = await rig.store.lessons.lease("judge", limit=1, ttl_s=60)
        leave.set()
        await asyncio.sleep(0.05)
        assert await rig.judgements() == {}
        assert (other.num_evidence, "scored" in rig.watcher.seen) == (2, False)
        assert await rig.store.lessons.close_task(other)


class Altered:
    """Lessons some of whose methods are others."""

    def __init__(self, inner: Any, **others: Any) -> None:
        self._inner = inner
        self._others = others

    def __getattr__(self, name: str) -> Any:
        return self._others.get(name) or getattr(self._inner, name)


async def test_a_store_that_fails_only_delays(rig: Rig) -> None:
    failing = iter([True, False] * 6)

    def flaky(name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if next(failing, False):
                raise StoreUnavailable("the disk is full")
            return await getattr(rig.store.lessons, name)(*args, **kwargs)

        return call

    rig.settings = replace(rig.settings, lease_s=0.05)
    await tell(rig.store, 4)
    rig.lessons = Altered(
        rig.store.lessons,
        **{name: flaky(name) for name in ("flag", "lease", "followed_turn", "put_judgements", "give_back")},
    )
    async with rig.running():
        judged = await rig.until_judged(4)
    assert sorted(judged) == [0, 1, 2, 3]
    assert rig.watcher.seen.count("scored") == 4


async def test_one_turn_that_the_store_cannot_read_does_not_hold_up_the_others(rig: Rig) -> None:
    async def unreadable(session: str, index: int) -> Any:
        if index == 1:
            raise StoreUnavailable("that page is gone")
        return await rig.store.lessons.followed_turn(session, index)

    await tell(rig.store, 3)
    rig.lessons = Altered(rig.store.lessons, followed_turn=unreadable)
    async with rig.running():
        judged = await rig.until_judged(2)
    assert sorted(judged) == [0, 2]


async def test_the_pauses_before_another_attempt_grow(rig: Rig) -> None:
    waits: list[float] = []

    async def give_back(held: Lease, *, due_at: float) -> bool:
        waits.append(round(due_at - rig.told_at))
        return await rig.store.lessons.give_back(held, due_at=time.time())

    async def stuck(evidence: Evidence) -> Verdict:
        return await honest(evidence) if _said(evidence) in KNOWN else FAILED

    rig.judge.answer = stuck
    rig.settings = replace(rig.settings, max_attempts=12)
    await tell(rig.store, 1)
    rig.lessons = Altered(rig.store.lessons, give_back=give_back)
    async with rig.running():
        await rig.until_judged(1)
    assert waits == [15, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


async def test_only_held_batches_in_a_row_count(rig: Rig) -> None:
    """Twice wrong, right, twice wrong, right: that is not a judge to give up on."""

    def switch() -> None:
        rig.judge.answer = lying if len(rig.pauses) % 2 else honest

    rig.judge.answer = lying
    rig.at_pause = switch
    await tell(rig.store, 1)
    async with rig.running():
        await rig.until_judged(1)
        rig.judge.answer = lying
        await rig.store.put_feedback(Feedback(session=SESSION, index=0, user="ann", given_at=300.0, text="no"))

        async def again() -> bool:
            return (await rig.judgements())[0].num_evidence == 2

        await rig.until(again)
    assert rig.pauses == [1, 2, 1, 2]
    assert True not in rig.watcher.seen


async def test_leases_are_renewed_while_the_judge_works(rig: Rig) -> None:
    rig.settings = replace(rig.settings, lease_s=1.0)  # a busy machine may stand still for some of it

    async def slow(evidence: Evidence) -> Verdict:
        await asyncio.sleep(1.5)
        return await honest(evidence)

    rig.judge.answer = slow
    await tell(rig.store, 1)
    stolen: list[Lease] = []
    async with rig.running():

        async def is_judged() -> bool:
            stolen.extend(await rig.store.lessons.lease("judge", limit=1, ttl_s=60) if rig.judge.num_now else [])
            return bool(await rig.judgements())

        await rig.until(is_judged)
    assert stolen == []
    assert rig.judge.asked == ["reaction 0"]
