"""A fixed prompt -> a sample that holds the student to what the base model says there.

The base model's likeliest answer is its response, and the base model, behind the same prompt, its teacher: the
student's own likely tokens are pulled back to where they were, the more the farther they went. It pulls with a share of
the strength of the lessons beside it: thanks for what was learned teach little, and must not let the base model win.
Knows no texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from openclaw_rl.train.exercises import own_sample
from openclaw_rl.types import BASE_VERSION, Candidate, Exercise, Sample

MAX_TOKENS = 32
"""Of the base model's answer."""


def strength(lessons: Sequence[Sample]) -> float:
    """How much a lesson of these says on average: a hint as much as its weight, a score as much as it surprises."""

    def one(lesson: Sample) -> float:
        learned = [abs(value) for value, counts in zip(lesson.advantages, lesson.loss_mask, strict=True) if counts]
        return lesson.w_rl * fmean(learned) + lesson.w_opd if learned else 0.0

    return fmean(map(one, lessons))


def anchor_sample(prompt_ids: tuple[int, ...], said: tuple[int, ...], *, name: str, line: str, weight: float) -> Sample:
    """What the base model said, which teaches itself."""
    itself = Candidate(hint="", num_shared=len(prompt_ids), suffix_ids=())
    given = Exercise(prompt_ids=prompt_ids, candidate=itself, temperature=1.0, w_opd=weight)
    return own_sample("anchor", given, said, name=name, line=line, version=BASE_VERSION)
