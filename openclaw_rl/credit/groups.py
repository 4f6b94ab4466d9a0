"""A complete group of attempts at one task -> what each step of each attempt teaches.

    group of 4      outcomes 1.0, 0.0, 0.5, and an environment that failed
    advantages      +1, −1, 0 for every step of the first three (`training.advantage: group`)
    the fourth      skipped: a failed environment says nothing of the agent

The rule weighs the group where it has a form for that (`protocols.GroupRule`); otherwise `training.advantage` does.
Everything is read from rows, so whoever weighs the group again after a crash comes to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from openclaw_rl.credit.measures import GroupCase, Measure
from openclaw_rl.protocols import CreditRule, GroupRule, LearningStore
from openclaw_rl.types import Attempt, AttemptStep, FinishReason, Skip, Verdict

Learned = Callable[[Verdict, FinishReason], Verdict]
"""What of a verdict on an answer that ended so is learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """What one step of an attempt teaches. `is_last`: it is the last step that its attempt took."""

    attempt: Attempt
    advantage: float | Skip
    is_last: bool


async def read_attempts(lessons: LearningStore, group: str, scored: Learned) -> list[Attempt]:
    """The attempts of a group that ended with a reward, each with the main turns of its sessions as steps."""
    found = []
    for episode, outcome, sessions in await lessons.group(group):
        if outcome is None or outcome.reward is None:
            continue
        steps = [step for session in sessions for step in await _steps(lessons, session, scored)]
        found.append(Attempt(episode=episode, reward=outcome.reward, steps=tuple(steps)))
    return found


async def _steps(lessons: LearningStore, session: str, scored: Learned) -> list[AttemptStep]:
    outline = await lessons.outline(session)
    verdicts = {one.index: one.verdict for one in await lessons.judgements(session)}
    taken = [] if outline is None else outline.turns
    return [
        AttemptStep(
            session=session, index=turn.index, score=_score(verdicts.get(turn.index), turn.finish_reason, scored)
        )
        for turn in taken
        if turn.kind == "main" and turn.finish_reason not in ("abort", "error")
    ]


def _score(verdict: Verdict | None, finish: FinishReason, scored: Learned) -> float | None:
    if verdict is None:
        return 0.0
    learned = scored(verdict, finish)
    return None if learned.outcome == "failed" else learned.reward or 0.0


def weigh(rule: CreditRule, measure: Measure, case: GroupCase) -> Mapping[tuple[str, int], Weighed]:
    """By session and index of its turn: what each step teaches."""
    weighed = rule.weigh_group(case.attempts) if isinstance(rule, GroupRule) else measure.among_attempts(case)
    return {
        (step.session, step.index): Weighed(attempt=attempt, advantage=advantage, is_last=step is attempt.steps[-1])
        for attempt, row in zip(case.attempts, weighed, strict=True)
        for step, advantage in zip(attempt.steps, row, strict=True)
    }
