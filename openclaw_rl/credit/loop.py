"""The credit loop: what each judged turn comes to.

    consumes      judgements and outcomes of episodes, as tasks of the stage `credit`
    produces      one credit for each: samples, or the reason why there are none; and the running means that they moved
    waits for     the store, one render per hint, the base model's answer to it; where credit flows along a session, the
                  end of the session; the turns of an episode, until all attempts of its group have an outcome
    woken by      a judgement, the end of a session, an outcome, the end of a lease

A turn that was judged again on more evidence is credited again: its new samples take the place of those that no step
has learned from yet, and its new reward the place of the old one in the running mean. All that a credit changes is one
transaction with the end of its lease, so a kill at any point loses nothing and counts nothing twice.

Feedback that comes after a session was credited as a whole (`session_gae`) changes the credit of its own turn alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from openclaw_rl.backoff import Backoff
from openclaw_rl.credit import advantages, groups, hinted, rewrites
from openclaw_rl.credit.demonstrations import Demonstrator
from openclaw_rl.credit.measures import Case, GroupCase
from openclaw_rl.credit.registry import CreditSettings
from openclaw_rl.credit.samples import rewrite_sample, turn_sample
from openclaw_rl.errors import StoreUnavailable
from openclaw_rl.faults import crash_point
from openclaw_rl.protocols import LearningStore, Renderer
from openclaw_rl.types import (
    SIDE_ROLES_ONLY,
    Baseline,
    Candidate,
    Credit,
    FinishReason,
    JudgedTurn,
    Judgement,
    Lease,
    Sample,
    SignalWeights,
    Skip,
    Turn,
    TurnOutline,
    Verdict,
    line_of,
)

logger = logging.getLogger(__name__)

LEASED_AT_ONCE = 16
LEASE_S = 60.0
RETRY_S = 5.0
"""How long to leave a store alone that could not be written."""
AGAIN = Backoff(first_s=LEASE_S, longest_s=3600.0)
"""When a turn that could not be credited is tried again."""


class CreditLoop:
    """Gives credit to judged turns that `model_id` answered, until it is cancelled."""

    def __init__(
        self,
        lessons: LearningStore,
        renderer: Renderer,
        settings: CreditSettings,
        model_id: str,
        *,
        demonstrator: Demonstrator | None = None,
        on_credit: Callable[[JudgedTurn, Credit], None] = lambda *_: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._lessons = lessons
        self._renderer = renderer
        self._settings = settings
        self._model_id = model_id
        self._demonstrator = demonstrator
        self._lease_s = LEASE_S + (LEASED_AT_ONCE * demonstrator.timeout_s if demonstrator else 0.0)
        self._on_credit = on_credit
        self._clock = clock

    async def run(self) -> None:
        """Works off what there is, then sleeps until there is more."""
        woken = self._lessons.woken("credit")
        while True:
            woken.clear()
            started = time.time()
            try:
                if await self.work():
                    continue
                due = await self._lessons.next_due("credit", after=started)
            except StoreUnavailable as error:
                logger.warning("crediting waits for the store: %s", error)
                due = started + RETRY_S
            with suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else max(0.0, due - time.time())):
                    await woken.wait()

    async def work(self) -> int:
        """Credits some of the turns that are due; how many of them it had in hand."""
        leases = await self._lessons.lease(
            "credit",
            limit=LEASED_AT_ONCE,
            ttl_s=self._lease_s,
            only_closed_sessions=self._settings.measure.needs_end,
            min_turns=self._settings.min_turns,
        )
        outage: StoreUnavailable | None = None
        for line, group, held in await self._by_group(leases):
            crash_point("credit.leased")
            try:
                if group is None:
                    await self._finish(held[0])
                else:
                    await self._finish_group(line, group, held)
            except StoreUnavailable as error:  # its lease ends by itself; the store may still serve the others
                outage = error
            except Exception as error:
                for one in held:
                    await self._put_off(one, error)
        if outage is not None:
            raise outage
        return len(leases)

    async def _by_group(self, leases: Sequence[Lease]) -> list[tuple[str, str | None, list[Lease]]]:
        """The line, the group and the leases of each group of episodes; a turn of a conversation stands alone."""
        sessions = {name: await self._lessons.get_session(name) for name in {held.session for held in leases}}
        alone: list[tuple[str, str | None, list[Lease]]] = []
        grouped: dict[str, tuple[str, str | None, list[Lease]]] = {}
        for held in leases:
            session = sessions[held.session]
            if session is None or session.episode is None:
                alone.append(("", None, [held]))
            else:
                group = session.episode.group
                grouped.setdefault(group, (line_of(session), group, []))[2].append(held)
        return [*alone, *grouped.values()]

    async def _put_off(self, held: Lease, error: Exception) -> None:
        """Whatever is wrong with one turn, the others go on. Its text may be in the error: only the place is logged."""
        place = traceback.extract_tb(error.__traceback__)[-1]
        kind = type(error).__name__
        logger.error("turn %s cannot be credited now: %s in %s:%s", held.turn_id, kind, place.name, place.lineno)
        await self._lessons.give_back(held, due_at=time.time() + AGAIN.pause_s(held.attempts + 1))

    async def _finish(self, held: Lease) -> None:
        judged = await self._lessons.judged_turn(held.session, held.index)
        if judged is None:  # deleted meanwhile
            await self._lessons.close_task(held)
            return
        await self._put(held, judged, await self.credit(judged))

    async def _put(self, held: Lease, judged: JudgedTurn, credit: Credit) -> None:
        if await self._lessons.put_credit(held, credit):
            logger.debug("turn %s: %s, reward %s", held.turn_id, credit.skip or "a sample", credit.reward)
            self._on_credit(judged, credit)
        else:
            logger.info("the lease of turn %s ended before its credit was written", held.turn_id)

    async def _finish_group(self, line: str, group: str, leases: Sequence[Lease]) -> None:
        """Weighs all attempts of a group, then credits those of their turns that are leased.

        The running mean moves with the last step of an attempt: a crash before that changes no advantage.
        """
        settings = self._settings
        attempts = await groups.read_attempts(self._lessons, group, self._scored)
        case = GroupCase(
            attempts=attempts,
            baseline=await self._lessons.baseline(line, "episode"),
            gamma=settings.gamma,
            lam=settings.lam,
        )
        steps = groups.weigh(settings.rule, settings.measure, case)
        for held in sorted(leases, key=lambda one: (one.session, one.index)):
            judged = await self._lessons.judged_turn(held.session, held.index) or await self._unjudged(held)
            if judged is None:  # deleted meanwhile
                await self._lessons.close_task(held)
            else:
                step = steps.get((held.session, held.index))
                await self._put(held, judged, await self._step_credit(judged, step))

    async def _unjudged(self, held: Lease) -> JudgedTurn | None:
        """A turn that nothing was said about; the outcome of its episode speaks for it."""
        session = await self._lessons.get_session(held.session)
        turn = await self._lessons.get_turn(held.session, held.index)
        if session is None or turn is None:
            return None
        verdict = Verdict(outcome="abstained", reason="nothing followed it but the outcome of its episode")
        judgement = Judgement(
            session=held.session,
            index=held.index,
            num_evidence=0,
            judge="none",
            prompt_version="",
            judged_at=self._clock(),
            verdict=verdict,
        )
        return JudgedTurn(session=session, turn=turn, judgement=judgement, reward=None, before=None)

    async def _step_credit(self, judged: JudgedTurn, step: groups.Weighed | None) -> Credit:
        """What a step of an attempt comes to; None is one whose environment failed, or that is no step."""
        skip = await self._unfit(judged) or (Skip.ENVIRONMENT_FAILED if step is None else None)
        if skip is not None or step is None:
            return self._credit(judged, reward=None, skip=skip)
        finish, advantage = judged.turn.completion.finish_reason, step.advantage
        if finish == "length" and self._settings.truncated == "hint":
            advantage = Skip.TRUNCATED
        learned = self._scored(judged.judgement.verdict, finish)
        # The rule says what a score and these hints weigh; how good the score is, the group says.
        weights = self._settings.rule.weigh(Verdict(outcome="scored", score=1, hints=learned.hints))
        outcome: Sample | Skip
        if isinstance(weights, Skip):
            outcome = weights
        elif isinstance(advantage, Skip):
            weights = replace(weights, reward=step.attempt.reward, w_rl=0.0)
            outcome = await self._sample(judged, weights, learned.hints, 0.0, otherwise=advantage)
        else:
            weights = replace(weights, reward=step.attempt.reward)
            outcome = await self._sample(judged, weights, learned.hints, advantage, otherwise=Skip.NO_HINT)
        samples = (outcome,) if isinstance(outcome, Sample) else ()
        skip = outcome if isinstance(outcome, Skip) else None
        if not step.is_last:
            return self._credit(judged, reward=None, skip=skip, samples=samples)
        credit = self._credit(judged, reward=step.attempt.reward, skip=skip, samples=samples)
        baseline = await self._baseline(judged, "episode")
        moved = advantages.moved(baseline, step.attempt.reward, decay=self._settings.baseline_decay)
        return replace(credit, baseline=moved)

    async def _baseline(self, judged: JudgedTurn, turn_kind: str) -> Baseline:
        """The running mean without what this turn was counted for before, if it was."""
        baseline = await self._lessons.baseline(line_of(judged.session), turn_kind)
        if judged.reward is None:
            return baseline
        return advantages.without(baseline, judged.reward, decay=self._settings.baseline_decay)

    async def credit(self, judged: JudgedTurn) -> Credit:
        """What the judgement of a turn comes to. Reads the store and asks the engine; writes nothing."""
        skip = await self._unfit(judged)
        if skip is not None:
            return self._credit(judged, reward=None, skip=skip)
        verdict = self._scored(judged.judgement.verdict, judged.turn.completion.finish_reason)
        reward = verdict.reward
        baseline = await self._baseline(judged, _turn_kind(judged.turn))
        outcome = await self._outcome(judged, verdict, baseline)
        rewrite = await self._rewrite(judged)
        shown = await self._demonstration(judged.turn, outcome) if isinstance(outcome, Sample) else None
        samples = tuple(one for one in (outcome, rewrite, shown) if isinstance(one, Sample))
        skip = outcome if isinstance(outcome, Skip) and not samples else None
        credit = self._credit(judged, reward=reward, skip=skip, samples=samples)
        if reward is None:
            return credit
        moved = advantages.moved(baseline, reward, decay=self._settings.baseline_decay)
        return replace(credit, baseline=moved)

    def _credit(
        self, judged: JudgedTurn, *, reward: float | None, skip: Skip | None, samples: tuple[Sample, ...] = ()
    ) -> Credit:
        return Credit(
            session=judged.turn.session,
            index=judged.turn.index,
            num_evidence=judged.judgement.num_evidence,
            rule=self._settings.rule.name,
            credited_at=self._clock(),
            # A reward that was counted stays in the row, or the next judgement would be counted again.
            reward=judged.reward if reward is None else reward,
            skip=skip,
            samples=samples,
        )

    async def _unfit(self, judged: JudgedTurn) -> Skip | None:
        """Why this turn is not learned from, whatever the judge says."""
        turn, finish = judged.turn, judged.turn.completion.finish_reason
        if judged.session.opted_out:
            return Skip.OPTED_OUT
        if turn.skip not in (None, Skip.NO_NEXT_STATE):  # it was judged, so something followed after all
            return turn.skip
        if turn.kind == "side":
            return Skip.SIDE_TURN
        if finish == "abort":
            return Skip.ABORTED
        if finish == "error":
            return Skip.ENGINE_FAILED
        if not turn.completion.token_ids:
            return Skip.NOT_EXACT
        if turn.model != self._model_id:
            return Skip.OTHER_MODEL
        if finish == "length" and self._settings.truncated == "skip":
            return Skip.TRUNCATED
        if self._settings.min_turns > 1 and await self._num_main_turns(turn.session) < self._settings.min_turns:
            return Skip.TOO_FEW_TURNS
        return None

    def _scored(self, verdict: Verdict, finish: FinishReason) -> Verdict:
        """What of a verdict is learned. A claim is not, nor a score that rests on it (`training.claims`); of an answer
        that was cut the score is what `training.truncated` says. Hints stay."""
        if self._is_claim(verdict):
            hints = verdict.unclaimed_hints
            return _unscored(verdict, "it rests on a claim", hints)
        if finish != "length":
            return verdict
        if self._settings.truncated == "score":
            return replace(verdict, outcome="scored", score=-1, value=None)
        return _unscored(verdict, "the answer was cut", verdict.hints)

    def _is_claim(self, verdict: Verdict) -> bool:
        return verdict.claims and self._settings.claims == "skip"

    async def _outcome(self, judged: JudgedTurn, verdict: Verdict, baseline: Baseline) -> Sample | Skip:
        weights = self._settings.rule.weigh(verdict)
        if isinstance(weights, Skip):
            if self._is_claim(verdict):
                return Skip.CLAIM
            if judged.turn.completion.finish_reason == "length" and self._settings.truncated == "hint":
                return Skip.TRUNCATED
            only_side_roles = verdict.outcome == "abstained" and verdict.reason == SIDE_ROLES_ONLY
            return Skip.SIDE_TURN if only_side_roles else weights
        advantage = await self._advantage(judged.turn, weights.reward, baseline) if weights.w_rl else 0.0
        return await self._sample(judged, weights, verdict.hints, advantage, otherwise=Skip.NO_HINT)

    async def _sample(
        self, judged: JudgedTurn, weights: SignalWeights, hints: Sequence[str], advantage: float, *, otherwise: Skip
    ) -> Sample | Skip:
        """`otherwise`: why there is none where no signal is left, such as when no template takes its hints."""
        candidates = await self._candidates(judged.turn, hints) if weights.w_opd else []
        if not candidates and self._settings.unhinted_weight:
            candidates = [hinted.unhinted(judged.turn)]
            weights = replace(weights, w_opd=self._settings.unhinted_weight)
        if not candidates and not weights.w_rl:
            return otherwise
        return turn_sample(
            judged.turn,
            weights if candidates else replace(weights, w_opd=0.0),
            line=line_of(judged.session),
            advantage=advantage,
            candidates=candidates,
            created_at=self._clock(),
        )

    async def _candidates(self, turn: Turn, hints: Sequence[str]) -> list[Candidate]:
        """A prompt for the teacher for each hint; in a thread, because long conversations take long to render."""
        renderer, placement = self._renderer, self._settings.hint_placement
        found: list[Candidate | None] = [None] * len(hints)
        if placement == "after_history":
            found = await asyncio.to_thread(lambda: [hinted.beside_action(turn, hint, renderer) for hint in hints])
        if None in found:
            sampled = hinted.sampled_answers(turn, await self._lessons.turns(turn.session))
            found = await asyncio.to_thread(
                lambda: [
                    known or hinted.in_whole(turn, hint, renderer, placement, sampled)
                    for hint, known in zip(hints, found, strict=True)
                ]
            )
        return [candidate for candidate in found if candidate is not None]

    async def _advantage(self, turn: Turn, reward: float, baseline: Baseline) -> float:
        settings = self._settings
        case = Case(index=turn.index, reward=reward, baseline=baseline, gamma=settings.gamma, lam=settings.lam)
        if settings.measure.needs_session:
            outline = await self._lessons.outline(turn.session)
            turns = {} if outline is None else {one.index: one for one in outline.turns}
            case = replace(case, turns=turns, rewards=await self._rewards(turn.session, turns))
        return settings.measure.advantage(case)

    async def _rewards(self, session: str, turns: Mapping[int, TurnOutline]) -> dict[int, float]:
        """The rewards of all turns of a session that have one, by the same rules as each turn's own."""
        rewards: dict[int, float] = {}
        judgements = [one for one in await self._lessons.judgements(session) if one.index in turns]
        for judgement in judgements:
            finish = turns[judgement.index].finish_reason
            reward = self._scored(judgement.verdict, finish).reward
            if reward is not None and finish not in ("abort", "error"):
                rewards[judgement.index] = reward
        return rewards

    async def _demonstration(self, turn: Turn, lesson: Sample) -> Sample | None:
        return None if self._demonstrator is None else await self._demonstrator.demonstrate(turn, lesson)

    async def _rewrite(self, judged: JudgedTurn) -> Sample | None:
        if not self._settings.rewrite_weight or self._is_claim(judged.judgement.verdict):
            return None
        first = await rewrites.first_request(judged, self._lessons, self._model_id)
        if first is None:
            return None
        line, weight = line_of(judged.session), self._settings.rewrite_weight
        return rewrite_sample(judged.turn, first, line=line, weight=weight, created_at=self._clock())

    async def _num_main_turns(self, session: str) -> int:
        outline = await self._lessons.outline(session)
        return 0 if outline is None else sum(turn.kind == "main" for turn in outline.turns)


def _unscored(verdict: Verdict, reason: str, hints: tuple[str, ...]) -> Verdict:
    return replace(verdict, outcome="abstained", score=None, value=None, reason=reason, hints=hints)


def _turn_kind(turn: Turn) -> str:
    """Tool calls mostly succeed and people mostly complain: one mean for both would praise every call."""
    return "tool_call" if turn.message.tool_calls else "answer"
