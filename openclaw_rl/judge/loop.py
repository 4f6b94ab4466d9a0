"""Turns that something followed -> judgements. The loop around a judge, and what keeps a bad one from doing harm.

    consumes      open tasks of the stage `judge`: turns whose next state, or feedback on them, is on disk
    produces      judgements, one for each count of evidence, and with each a task of the stage `credit`
    waits for     the judge, for no longer than its deadline
    woken by      evidence that arrives; the clock, where something is to be tried again

A batch is leased, judged together with its canaries, and stored in one transaction if those came out right. If they
did not, nothing of the batch is: it is held and tried again, and after MAX_HELD in a row judging is paused, visibly
(the flag `judge.paused`, the log, the metrics). While it is paused only canaries are tried, at growing intervals; when
they come out right it goes on by itself. A judge that is down fails its canaries too: so an outage costs no turn one
of its attempts, and a single turn that no judge can answer does not stop the others.

Of several judges, each is given canaries of its own whenever it had a say. The above is about the first, whom every
turn needs. Where a later one gets its canaries wrong, only the turns that it was asked about wait, longer each time,
and the flag names it; the others are stored.

Knows rows and verdicts. Whatever a judge or the store does, the worst that happens here is a delay.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from openclaw_rl.config import Config
from openclaw_rl.errors import StoreError
from openclaw_rl.faults import crash_point
from openclaw_rl.judge.canaries import Canaries, Examined, Finding, examine, noting_who_is_asked
from openclaw_rl.judge.evidence import build_evidence
from openclaw_rl.judge.registry import join
from openclaw_rl.protocols import Judge, Lessons
from openclaw_rl.types import (
    SIDE_ROLES_ONLY,
    Evidence,
    Judgement,
    Lease,
    Outcome,
    Role,
    Session,
    Skip,
    TurnRecord,
    Verdict,
)

log = logging.getLogger(__name__)

PAUSED = "judge.paused"
"""The flag that says why nothing is judged, or not all; it outlives the process."""

MAX_HELD = 3
"""Batches held in a row before judging is paused."""

BATCH_SIZE = 16
"""Turns that share two canaries and one commit. With a slow judge the first of them waits for the last."""

MAX_RETRY_S, MAX_AGAIN_S = 300.0, 3600.0
"""Where the growing pauses stop growing: between canaries, and between attempts at one turn."""

STORE_RETRY_S = 1.0


class Watch(Protocol):
    """Who looks on. Nothing here depends on it."""

    def judged(self, outcome: Outcome) -> None: ...

    def examined(self, finding: Finding) -> None: ...

    def judging_paused(self, paused: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """What of the configuration this loop needs."""

    main_line: frozenset[Role] = frozenset({"user", "assistant", "tool"})
    max_chars: int = 8000
    max_attempts: int = 8
    num_at_once: int = 4
    deadline_s: float = 60.0
    lease_s: float = 60.0
    """How long the turns of a process that hangs are kept from others; renewed while the judge works."""
    gather_s: float = 0.1
    """What arrives within this time of the first is judged together: fewer canaries, fewer commits."""
    retry_s: float = 1.0
    """The pause after a held batch; doubles until the canaries come out right."""
    again_s: float = 15.0
    """When a turn that the judge failed is tried again; doubles with every attempt."""

    @classmethod
    def of(cls, config: Config) -> JudgeSettings:
        evaluation = config.evaluation
        num_votes = 2 * (evaluation.num_judges or config.rollout.reward_computation.num_samples)
        return cls(
            main_line=frozenset(config.rollout.message_classification.main_line),
            max_chars=evaluation.judge_history_chars,
            max_attempts=evaluation.max_attempts,
            num_at_once=evaluation.judge_concurrency,
            # As many turns at once as votes: in the worst case the votes on a turn come one after the other. Judges
            # keep their own, shorter limits; this one is for those that do not.
            deadline_s=evaluation.judge_timeout_s * num_votes * len(evaluation.judge),
        )


@dataclass(frozen=True, slots=True)
class _Case:
    held: Lease
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class _Answer:
    verdict: Verdict
    asked: set[Examined]
    """Who had a say, whoever decided."""


@dataclass(frozen=True, slots=True)
class _Doubt:
    """Why a judge behind the first is not believed, and how long its turns wait."""

    trouble: str
    again_s: float


class JudgeLoop:
    """Asks the judges, the next where one cannot say, until it is cancelled. `canaries` None believes them unseen."""

    def __init__(
        self,
        lessons: Lessons,
        judges: Sequence[Judge],
        settings: JudgeSettings,
        *,
        canaries: Canaries | None,
        watch: Watch,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._lessons = lessons
        self._members = [Examined(judge) for judge in judges]
        self._judge = join(self._members)
        self._settings = settings
        self._canaries = canaries
        self._watch = watch
        self._clock = clock
        self._pause = pause
        self._is_paused = False
        self._num_held = 0
        self._retry_s = settings.retry_s
        self._doubts: dict[Examined, _Doubt] = {}

    async def run(self) -> None:
        """Until cancelled; a store that fails is asked again."""
        step = self._recall
        while True:
            try:
                await step()
            except StoreError as error:
                log.warning("judging waits for the store: %s", error)
                await self._pause(STORE_RETRY_S)
            else:
                step = self._probe if self._is_paused else self._judge_batch

    async def _recall(self) -> None:
        """A pause outlives the process, as long as there is something that can end it."""
        if self._canaries is not None:
            self._is_paused = await self._lessons.flag(PAUSED) is not None
        else:
            await self._lessons.set_flag(PAUSED, None)
        self._watch.judging_paused(self._is_paused)

    @property
    def is_paused(self) -> bool:
        """Whether the judge got known cases wrong so often that only canaries are tried."""
        return self._is_paused

    async def work(self) -> int:
        """Judges some of the turns that are due; how many of them it had in hand."""
        leases = await self._lessons.lease("judge", limit=BATCH_SIZE, ttl_s=self._settings.lease_s)
        if leases:
            crash_point("judge.leased")
            cases = await self._cases(leases)
            if cases:
                await self._decide(cases)
        return len(leases)

    async def _judge_batch(self) -> None:
        woken = self._lessons.woken("judge")
        woken.clear()
        if not await self.work():
            await self._until_due(woken)

    async def _decide(self, cases: Sequence[_Case]) -> None:
        async with self._renewed([case.held for case in cases]):
            answers, troubles = await self._ask([case.evidence for case in cases])
        trouble = troubles[self._members[0]]
        if trouble is not None:
            await self._hold(cases, trouble)
            return
        in_doubt = {member for member, trouble in troubles.items() if trouble is not None}
        for member in in_doubt:
            member.forget()
        judged = list(zip(cases, answers, strict=True))
        await self._believe([(case, a.verdict) for case, a in judged if not a.asked & in_doubt])
        await self._doubt(troubles)
        await self._put_off([(case.held, a.asked & in_doubt) for case, a in judged if a.asked & in_doubt])

    async def _until_due(self, woken: asyncio.Event) -> None:
        due_at = await self._lessons.next_due("judge")
        with suppress(TimeoutError):
            async with asyncio.timeout(None if due_at is None else max(0.0, due_at - self._clock())):
                await woken.wait()
                await self._pause(self._settings.gather_s)

    async def _cases(self, leases: Sequence[Lease]) -> list[_Case]:
        """What there is to ask a judge. One after the other: the store serves people too."""
        cases: list[_Case] = []
        for held in leases:
            try:
                case = await self._case(held)
            except StoreError as error:  # of this turn only, or the next call says so: its lease runs out, then again
                log.warning("turn %s waits: %s", held.turn_id, error)
                continue
            if isinstance(case, Verdict):
                await self._store([(held, case)])
            elif case is None:
                await self._lessons.close_task(held)
            else:
                cases.append(_Case(held, case))
        return cases

    async def _case(self, held: Lease) -> Evidence | Verdict | None:
        """The evidence on a turn, or what is to be said without a judge; None if there is nothing to say."""
        found = await self._lessons.followed_turn(held.session, held.index)
        if found is None or not _may_teach(*found):
            return None
        _, record = found
        try:
            evidence = await asyncio.to_thread(
                build_evidence,
                record.turn,
                record.next_state,
                record.feedback,
                main_line=self._settings.main_line,
                max_chars=self._settings.max_chars,
            )
        except Exception as error:
            # A turn that we cannot read must not stop the others, nor the server, at every start again. The words of
            # the error may quote it, so they stay out of the log.
            log.error("the evidence on turn %s cannot be read: %s", held.turn_id, type(error).__name__)
            return Verdict(outcome="failed", reason=f"its evidence cannot be read: {type(error).__name__}")
        return evidence or Verdict(outcome="abstained", reason=SIDE_ROLES_ONLY)

    async def _ask(self, evidence: Sequence[Evidence]) -> tuple[list[_Answer], dict[Examined, str | None]]:
        """The answers on these; and what is wrong, if anything, with the first judge and the others who had a say."""
        first, *others = self._members
        slots = asyncio.Semaphore(self._settings.num_at_once)
        asking = asyncio.gather(*(self._answer(one, slots) for one in evidence))
        trouble, answers = await asyncio.gather(self._examine(first, slots), asking)
        troubles = {first: trouble}
        if trouble is None:
            for member in others:
                if any(member in answer.asked for answer in answers):
                    troubles[member] = await self._examine(member, slots)
        return answers, troubles

    async def _answer(self, evidence: Evidence, slots: asyncio.Semaphore) -> _Answer:
        with noting_who_is_asked() as asked:
            return _Answer(await self._verdict(self._judge, evidence, slots), asked)

    async def _examine(self, member: Examined, slots: asyncio.Semaphore) -> str | None:
        """What is wrong with a judge, by its verdicts on a known-good and a known-bad case."""
        if self._canaries is None:
            return None
        pair = self._canaries.pair()
        verdicts = await asyncio.gather(*(self._verdict(member.inner, one.evidence, slots) for one in pair))
        finding = examine(pair, verdicts)
        self._watch.examined(finding)
        return None if finding == "right" else f"the judge {member.name} {_TROUBLE[finding]}"

    async def _verdict(self, judge: Judge, evidence: Evidence, slots: asyncio.Semaphore) -> Verdict:
        deadline_s = self._settings.deadline_s
        async with slots:
            await asyncio.sleep(0)  # a judge that computes gives way to requests between two turns
            try:
                async with asyncio.timeout(deadline_s):
                    return await judge.judge(evidence)
            except TimeoutError:
                return Verdict(outcome="failed", reason=f"no verdict within {deadline_s:g} s")
            except Exception as error:
                # A judge may be anybody's code. Its defects cost a verdict, never the server; and its words stay out
                # of the log, because they may quote the conversation.
                log.error("the judge %s raised %s", judge.name, type(error).__name__)
                return Verdict(outcome="failed", reason=f"the judge raised {type(error).__name__}")

    @asynccontextmanager
    async def _renewed(self, leases: Sequence[Lease]) -> AsyncIterator[None]:
        """Keeps the leases for as long as the body takes."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(self._settings.lease_s / 3)
                try:
                    await self._lessons.renew(leases, ttl_s=self._settings.lease_s)
                except StoreError as error:
                    log.warning("leases were not renewed: %s", error)

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait((renewing,))

    async def _believe(self, judged: Sequence[tuple[_Case, Verdict]]) -> None:
        """Stores what was decided; what the judge failed is tried again later, as often as is allowed."""
        self._num_held, self._retry_s = 0, self._settings.retry_s
        decided: list[tuple[Lease, Verdict]] = []
        for case, verdict in judged:
            held = case.held
            if verdict.outcome == "failed" and held.attempts + 1 < self._settings.max_attempts:
                again_s = min(self._settings.again_s * 2**held.attempts, MAX_AGAIN_S)
                await self._lessons.give_back(held, due_at=self._clock() + again_s)
            else:
                decided.append((held, verdict))
        crash_point("judge.judged")
        await self._store(decided)

    async def _store(self, decided: Sequence[tuple[Lease, Verdict]]) -> None:
        now = self._clock()
        judged = [
            (
                held,
                Judgement(
                    session=held.session,
                    index=held.index,
                    num_evidence=held.num_evidence,
                    judge=self._judge.name,
                    prompt_version=self._judge.prompt_version,
                    judged_at=now,
                    verdict=verdict,
                ),
            )
            for held, verdict in decided
        ]
        for (_, verdict), stored in zip(decided, await self._lessons.put_judgements(judged), strict=True):
            if stored:
                self._watch.judged(verdict.outcome)

    async def _doubt(self, troubles: Mapping[Examined, str | None]) -> None:
        """Notes which judges behind the first are in trouble, and which no longer."""
        doubts = dict(self._doubts)
        for member, trouble in troubles.items():
            doubt = doubts.pop(member, None)
            if trouble is not None:
                again_s = self._settings.retry_s if doubt is None else min(2 * doubt.again_s, MAX_RETRY_S)
                doubts[member] = _Doubt(trouble, again_s)
            elif doubt is not None:
                log.info("the judge %s got the known cases right again", member.name)
        if doubts != self._doubts:
            await self._lessons.set_flag(PAUSED, _told(doubts.values()))
            self._doubts = doubts  # after the flag: if the store fails, the next canaries set it, or take it down

    async def _put_off(self, waiting: Sequence[tuple[Lease, set[Examined]]]) -> None:
        """No turn loses an attempt by a judge that is in trouble."""
        for held, in_doubt in waiting:
            again_s = max(self._doubts[member].again_s for member in in_doubt)
            await self._lessons.give_back(held, due_at=self._clock() + again_s, count_attempt=False)
        if waiting:
            log.warning("%d turns wait: %s", len(waiting), _told(self._doubts.values()))

    async def _hold(self, cases: Sequence[_Case], trouble: str) -> None:
        """Nothing of the batch is stored or remembered, and no turn loses an attempt by it."""
        self._judge.forget()
        self._num_held += 1
        for case in cases:
            await self._lessons.give_back(case.held, due_at=self._clock(), count_attempt=False)
        if self._num_held < MAX_HELD:
            log.warning("a batch of %d turns is held: %s", len(cases), trouble)
        else:
            self._is_paused = True
            self._watch.judging_paused(True)
            log.error("judging is paused: %s", trouble)
            await self._lessons.set_flag(PAUSED, f"{trouble}, {self._num_held} times in a row; {_REMEDY}")
        await self._back_off()

    async def _probe(self) -> None:
        """Canaries alone, to the first judge, until they come out right."""
        first = self._members[0]
        if await self._examine(first, asyncio.Semaphore(self._settings.num_at_once)) is not None:
            await self._back_off()
            return
        await self._lessons.set_flag(PAUSED, _told(self._doubts.values()))
        self._is_paused, self._num_held, self._retry_s = False, 0, self._settings.retry_s
        self._watch.judging_paused(False)
        log.info("judging goes on: the judge %s got the known cases right", first.name)

    async def _back_off(self) -> None:
        retry_s, self._retry_s = self._retry_s, min(2 * self._retry_s, MAX_RETRY_S)
        await self._pause(retry_s)


_TROUBLE: dict[Finding, str] = {"wrong": "got a known case wrong", "silent": "gave no verdict on a known case"}
_REMEDY = (
    "it is tried again by itself; look at it with `openclaw-rl judge`, choose another one (evaluation.judge), or "
    "believe it unseen (evaluation.canaries=false)"
)


def _told(doubts: Iterable[_Doubt]) -> str | None:
    """What people are told while only some turns wait."""
    troubles = "; ".join(doubt.trouble for doubt in doubts)
    return f"{troubles}; only the turns that it is asked about wait; {_REMEDY}" if troubles else None


def _may_teach(session: Session, record: TurnRecord) -> bool:
    """Whether anybody may learn from this turn. What did follow counts, whatever was noted when the session ended."""
    turn = record.turn
    is_followed = record.next_state is not None or bool(record.feedback)
    return is_followed and not session.opted_out and turn.kind == "main" and turn.skip in (None, Skip.NO_NEXT_STATE)
