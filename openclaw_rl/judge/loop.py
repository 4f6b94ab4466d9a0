"""Turns that something followed -> judgements: the loop around the judges, and its defence against bad ones.

    consumes      open tasks of the stage `judge`: turns with a next state, feedback or the end of their session
    produces      judgements, one for each count of evidence, and with each a task of the stage `credit`
    waits for     the judge, for no longer than its deadline
    woken by      evidence that arrives; the clock, where something is to be tried again

A batch is leased, judged together with canaries, and stored in one transaction if the canaries came out right. If not,
nothing of it is stored: the batch is held and tried again. After MAX_HELD held batches in a row judging pauses, visibly
(the flag `judge.paused`, the log, the metrics). While it is paused only canaries are tried, at growing intervals; it
goes on by itself when they come out right. A judge that is down fails its canaries too, so an outage costs no turn an
attempt, and one turn that no judge can answer does not stop the others.

This is about the first judge, which every turn needs. A later judge gets canaries of its own whenever it was asked. If
it fails them, only the turns it was asked about wait, longer each time, and the flag names it; the others are stored.
A judge that does not read reactions, such as a reward function, gets no canaries: they are about reactions.

Knows rows and verdicts. Whatever a judge or the store does, the worst that happens here is a delay.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from openclaw_rl.backoff import Backoff
from openclaw_rl.config import Config
from openclaw_rl.errors import StoreError
from openclaw_rl.faults import crash_point
from openclaw_rl.judge import findings
from openclaw_rl.judge.canaries import Canaries, CanaryFinding, examine
from openclaw_rl.judge.compose import Composed, Decided, ask
from openclaw_rl.judge.evidence import build_evidence
from openclaw_rl.protocols import Judge, LearningStore, Wakeup
from openclaw_rl.types import (
    JUDGING_PAUSED,
    SIDE_ROLES_ONLY,
    Evidence,
    Judgement,
    Lease,
    Role,
    Session,
    Skip,
    TurnRecord,
    Verdict,
    VerdictState,
)

log = logging.getLogger(__name__)

MAX_HELD = 3
"""Batches held in a row before judging is paused."""

BATCH_SIZE = 16
"""Turns that share two canaries and one commit; the first of them waits for the last."""

_RETRY = Backoff(first_s=1.0, longest_s=300.0)
_AGAIN = Backoff(first_s=15.0, longest_s=3600.0)

STORE_RETRY_S = 1.0


class JudgeWatch(Protocol):
    """An observer: metrics. Nothing here depends on it."""

    def judged(self, outcome: VerdictState) -> None: ...

    def examined(self, finding: CanaryFinding) -> None: ...

    def judging_paused(self, paused: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """The settings of this loop."""

    main_line: frozenset[Role] = frozenset({"user", "assistant", "tool"})
    side: frozenset[Role] = frozenset()
    max_chars: int = 8000
    max_attempts: int = 8
    num_at_once: int = 4
    deadline_s: float = 60.0
    """For each judge that is asked."""
    lease_s: float = 60.0
    """Renewed while the judge works; after a hang of this process the turns are free again."""
    gather_s: float = 0.1
    """Turns that arrive within this time of the first are judged together: fewer canaries, fewer commits."""
    retry: Backoff = _RETRY
    """The pause after a held batch, until the canaries come out right."""
    again: Backoff = _AGAIN
    """The pause before a turn whose judge failed is tried again."""

    @classmethod
    def of(cls, config: Config) -> JudgeSettings:
        evaluation = config.evaluation
        num_votes = 2 * (evaluation.num_judges or config.rollout.reward_computation.num_samples)
        return cls(
            main_line=frozenset(config.rollout.message_classification.main_line),
            side=frozenset(config.rollout.message_classification.side),
            max_chars=evaluation.judge_history_chars,
            max_attempts=evaluation.max_attempts,
            num_at_once=evaluation.judge_concurrency,
            # As many turns at once as votes: in the worst case the votes on a turn come one after the other. Judges
            # keep their own, shorter limits; this one is for those that do not.
            deadline_s=evaluation.judge_timeout_s * num_votes,
        )


@dataclass(frozen=True, slots=True)
class _Case:
    held: Lease
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class _Doubt:
    """Why a later judge is not believed, and how long its turns wait."""

    trouble: str
    num_failures: int


class JudgeLoop:
    """Judges turns until it is cancelled. The judges in `unseen` are believed without canaries; if there are no
    `canaries`, all are."""

    def __init__(
        self,
        lessons: LearningStore,
        judges: Sequence[Judge],
        settings: JudgeSettings,
        *,
        canaries: Canaries | None,
        unseen: Collection[Judge] = (),
        watch: JudgeWatch,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._lessons = lessons
        self._judges = tuple(judges)
        self._judge = Composed(judges, deadline_s=settings.deadline_s)
        self._settings = settings
        self._canaries = canaries
        self._unseen = tuple(judges if canaries is None else unseen)
        self._watch = watch
        self._clock = clock
        self._pause = pause
        self._is_paused = False
        self._num_held = 0
        self._num_failures = 0
        self._doubts: dict[Judge, _Doubt] = {}

    async def run(self) -> None:
        """Runs until it is cancelled; after a failure of the store it tries again."""
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
        """A pause outlives the process, unless the first judge gets no canaries that could end it."""
        if self._judges[0] not in self._unseen:
            self._is_paused = await self._lessons.flag(JUDGING_PAUSED) is not None
        else:
            await self._lessons.set_flag(JUDGING_PAUSED, None)
        self._watch.judging_paused(self._is_paused)

    @property
    def is_paused(self) -> bool:
        """Whether judging is paused and only canaries are tried."""
        return self._is_paused

    async def work(self) -> int:
        """Judges some of the turns that are due; returns how many were leased."""
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
            decisions, troubles = await self._ask([case.evidence for case in cases])
        trouble = troubles[self._judges[0]]
        if trouble is not None:
            await self._hold(cases, trouble)
            return
        in_doubt = {judge for judge, trouble in troubles.items() if trouble is not None}
        for judge in in_doubt:
            judge.forget()
        judged = [
            (case, decision.verdict, in_doubt & set(decision.asked))
            for case, decision in zip(cases, decisions, strict=True)
        ]
        await self._believe([(case, verdict) for case, verdict, doubted in judged if not doubted])
        await self._doubt(troubles)
        await self._put_off([(case.held, doubted) for case, _, doubted in judged if doubted])

    async def _until_due(self, woken: Wakeup) -> None:
        due_at = await self._lessons.next_due("judge")
        with suppress(TimeoutError):
            async with asyncio.timeout(None if due_at is None else max(0.0, due_at - self._clock())):
                await woken.wait()
                await self._pause(self._settings.gather_s)

    async def _cases(self, leases: Sequence[Lease]) -> list[_Case]:
        """The leased turns that need a judge. Read one after the other: the store serves people too."""
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
        """The evidence on a turn, or a verdict that needs no judge; None where nothing is to be judged."""
        found = await self._lessons.followed_turn(held.session, held.index)
        if found is None or not _may_teach(*found):
            return None
        _, record = found
        is_last = _is_last(record)
        try:
            evidence = await asyncio.to_thread(
                build_evidence,
                record.turn,
                record.next_state,
                record.feedback,
                main_line=self._settings.main_line,
                side=self._settings.side,
                max_chars=self._settings.max_chars,
                is_last=is_last,
            )
        except Exception as error:
            # A turn that we cannot read must not stop the others, nor the server, at every start again. The words of
            # the error may quote it, so they stay out of the log.
            log.error("the evidence on turn %s cannot be read: %s", held.turn_id, type(error).__name__)
            return Verdict(outcome="failed", reason=f"its evidence cannot be read: {type(error).__name__}")
        if is_last and evidence is not None:  # nobody said anything that a judge could read
            return findings.verdict_of(votes) if (votes := findings.find(evidence)) else None
        return evidence or Verdict(outcome="abstained", reason=SIDE_ROLES_ONLY)

    async def _ask(self, evidence: Sequence[Evidence]) -> tuple[list[Decided], dict[Judge, str | None]]:
        """The decisions, and what is wrong, if anything, with the first judge and the others who were asked."""
        first, *others = self._judges
        slots = asyncio.Semaphore(self._settings.num_at_once)

        async def decide(one: Evidence) -> Decided:
            async with slots:
                await asyncio.sleep(0)  # a judge that computes gives way to requests between two turns
                return await self._judge.decide(one)

        asking = asyncio.gather(*map(decide, evidence))
        trouble, decisions = await asyncio.gather(self._examine(first, slots), asking)
        troubles = {first: trouble}
        if trouble is None:
            for judge in others:
                if any(judge in decision.asked for decision in decisions):
                    troubles[judge] = await self._examine(judge, slots)
        return decisions, troubles

    async def _examine(self, judge: Judge, slots: asyncio.Semaphore) -> str | None:
        """What is wrong with a judge, by its verdicts on a known-good and a known-bad case."""
        if self._canaries is None or judge in self._unseen:
            return None

        async def verdict(evidence: Evidence) -> Verdict:
            async with slots:
                return await ask(judge, evidence, deadline_s=self._settings.deadline_s)

        pair = self._canaries.pair()
        finding = examine(pair, await asyncio.gather(*(verdict(canary.evidence) for canary in pair)))
        self._watch.examined(finding)
        return None if finding == "right" else f"the judge {judge.name} {_TROUBLE[finding]}"

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
        """Stores the verdicts; turns whose judge failed are tried again later, as often as is allowed."""
        self._num_held = self._num_failures = 0
        decided: list[tuple[Lease, Verdict]] = []
        for case, verdict in judged:
            held = case.held
            if verdict.outcome == "failed" and held.attempts + 1 < self._settings.max_attempts:
                again_s = self._settings.again.pause_s(held.attempts + 1)
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
        for (held, verdict), stored in zip(decided, await self._lessons.put_judgements(judged), strict=True):
            log.debug(
                "turn %s: %s, score %s, %d hints", held.turn_id, verdict.outcome, verdict.score, len(verdict.hints)
            )
            if stored:
                self._watch.judged(verdict.outcome)

    async def _doubt(self, troubles: Mapping[Judge, str | None]) -> None:
        """Notes which later judges are in trouble, and which no longer are."""
        doubts = dict(self._doubts)
        for judge, trouble in troubles.items():
            doubt = doubts.pop(judge, None)
            if trouble is not None:
                doubts[judge] = _Doubt(trouble, 1 if doubt is None else doubt.num_failures + 1)
            elif doubt is not None:
                log.info("the judge %s got the known cases right again", judge.name)
        if doubts != self._doubts:
            await self._lessons.set_flag(JUDGING_PAUSED, _told(doubts.values()))
            self._doubts = doubts  # after the flag: if the store fails, the next canaries set it, or take it down

    async def _put_off(self, waiting: Sequence[tuple[Lease, set[Judge]]]) -> None:
        """Gives turns back that wait for a judge in trouble; they lose no attempt."""
        for held, in_doubt in waiting:
            again_s = self._settings.retry.pause_s(max(self._doubts[judge].num_failures for judge in in_doubt))
            await self._lessons.give_back(held, due_at=self._clock() + again_s, count_attempt=False)
        if waiting:
            log.warning("%d turns wait: %s", len(waiting), _told(self._doubts.values()))

    async def _hold(self, cases: Sequence[_Case], trouble: str) -> None:
        """Gives a whole batch back: nothing of it is stored or cached, and no turn loses an attempt."""
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
            await self._lessons.set_flag(JUDGING_PAUSED, f"{trouble}, {self._num_held} times in a row; {_REMEDY}")
        await self._back_off()

    async def _probe(self) -> None:
        """Tries canaries on the first judge; judging goes on when they come out right."""
        first = self._judges[0]
        if await self._examine(first, asyncio.Semaphore(self._settings.num_at_once)) is not None:
            await self._back_off()
            return
        await self._lessons.set_flag(JUDGING_PAUSED, _told(self._doubts.values()))
        self._is_paused, self._num_held, self._num_failures = False, 0, 0
        self._watch.judging_paused(False)
        log.info("judging goes on: the judge %s got the known cases right", first.name)

    async def _back_off(self) -> None:
        self._num_failures += 1
        await self._pause(self._settings.retry.pause_s(self._num_failures))


_TROUBLE: dict[CanaryFinding, str] = {"wrong": "got a known case wrong", "silent": "gave no verdict on a known case"}
_REMEDY = (
    "it is tried again by itself; look at it with `openclaw-rl judge`, choose another one (evaluation.judge), or "
    "believe it unseen (evaluation.canaries=false)"
)


def _told(doubts: Iterable[_Doubt]) -> str | None:
    """The text of the flag while only some turns wait."""
    troubles = "; ".join(doubt.trouble for doubt in doubts)
    return f"{troubles}; only the turns that it is asked about wait; {_REMEDY}" if troubles else None


def _is_last(record: TurnRecord) -> bool:
    """Whether the session ended, and nothing followed the turn."""
    return record.next_state is None and not record.feedback and record.turn.skip is Skip.NO_NEXT_STATE


def _may_teach(session: Session, record: TurnRecord) -> bool:
    """Whether anybody may learn from this turn. A next state counts even where the session ended without one."""
    turn = record.turn
    is_followed = record.next_state is not None or bool(record.feedback) or _is_last(record)
    return is_followed and not session.opted_out and turn.kind == "main" and turn.skip in (None, Skip.NO_NEXT_STATE)
