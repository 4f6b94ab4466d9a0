"""A fixed prompt -> a sample that holds the student to what the base model says there.

The base model's likeliest answer is its response, and the base model, behind the same prompt, its teacher: the
student's own likely tokens are pulled back to where they were, the more the farther they went. It pulls with a share of
the strength of the lessons beside it: thanks for what was learned teach little, and must not let the base model win.
Knows no texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from openclaw_rl.train.sequences import Sequenced
from openclaw_rl.train.teacher import Question, Teacher, ask
from openclaw_rl.types import BASE_VERSION, Candidate, Sample, VersionSpan

MAX_TOKENS = 32
_UNKNOWN = 0
"""Stands where the token that is asked for will be: nobody reads it."""


def base_answer(base: Teacher, prompt_ids: tuple[int, ...], stop_token_ids: tuple[int, ...]) -> tuple[int, ...]:
    """The likeliest tokens, one after the other. Slow and without a cache: a few dozen tokens, once for each prompt."""
    said: tuple[int, ...] = ()
    while len(said) < MAX_TOKENS and (not said or said[-1] not in stop_token_ids):
        asked = Sequenced(prompt_ids + said, (_UNKNOWN,))
        (rows,) = ask([Question(base, asked, 1.0)], max_tokens=len(asked))
        said += (int(rows.top_k(1)[0].item()),)
    return said


def strength(lessons: Sequence[Sample]) -> float:
    """How much a lesson of these says on average: a hint as much as its weight, a score as much as it surprises."""

    def one(lesson: Sample) -> float:
        learned = [abs(value) for value, counts in zip(lesson.advantages, lesson.loss_mask, strict=True) if counts]
        return lesson.w_rl * fmean(learned) + lesson.w_opd if learned else 0.0

    return fmean(map(one, lessons))


def anchor_sample(prompt_ids: tuple[int, ...], said: tuple[int, ...], *, name: str, line: str, weight: float) -> Sample:
    """What is said has no score of its own: w_rl is 0."""
    return Sample(
        id=name,
        line=line,
        kind="anchor",
        session="",
        index=0,
        prompt_index=0,
        created_at=0.0,
        prompt_ids=prompt_ids,
        response_ids=said,
        loss_mask=(True,) * len(said),
        advantages=(0.0,) * len(said),
        logprobs=None,
        temperature=1.0,
        on_policy=False,
        reward=0.0,
        w_rl=0.0,
        w_opd=weight,
        candidates=(Candidate(hint="", num_shared=len(prompt_ids), suffix_ids=()),),
        version_spans=(VersionSpan(BASE_VERSION, 0, len(said)),),
    )
