"""Samples that a trainer makes itself, beside people's lessons. Nobody judged them, and no store has them.

An *anchor* holds the student to the base model. The base model's likeliest answer to a fixed prompt is its response,
and the base model its teacher: the student's likely tokens are pulled back to where they were, the more the farther
they went. It pulls with a share of the strength of the lessons beside it: thanks for what was learned teach little, and
must not let the base model win.

An *exercise* practises a wish about the form of answers ("in one short sentence") on an everyday question. Learned only
from the questions that it was said about, a wish takes a dozen of them to reach the others; practised, a few. Which
wishes are practised is `credit/practice.py`'s matter. Knows no texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from openclaw_rl.types import BASE_VERSION, Candidate, Exercise, Sample, VersionSpan

ANCHOR_TOKENS = 32
"""Of the base model's answer."""

EXERCISE_TOKENS = 64
"""Of an answer: whether a wish is met mostly shows sooner, and a longer one takes longer to learn from."""


def own_sample(
    kind: Literal["anchor", "exercise"], given: Exercise, said: tuple[int, ...], *, name: str, line: str, version: str
) -> Sample:
    """What `version` said in a trainer. Nobody judged it: w_rl is 0."""
    return Sample(
        id=name,
        line=line,
        kind=kind,
        session="",
        index=0,
        prompt_index=0,
        created_at=0.0,
        prompt_ids=given.prompt_ids,
        response_ids=said,
        loss_mask=(True,) * len(said),
        advantages=(0.0,) * len(said),
        logprobs=None,
        temperature=given.temperature,
        on_policy=False,
        reward=0.0,
        w_rl=0.0,
        w_opd=given.w_opd,
        candidates=(given.candidate,),
        version_spans=(VersionSpan(version, 0, len(said)),),
    )


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
