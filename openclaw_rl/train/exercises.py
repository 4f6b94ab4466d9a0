"""The student's answer to an everyday question -> a sample whose teacher had a person's wish behind the question.

A wish about the form of answers ("in one short sentence") is meant for whatever will be asked next. Learned only from
the questions that it was said about, it takes a dozen of them to reach the others; practised on others, a few. Which
wishes are practised is `credit/practice.py`'s matter. Knows no texts.
"""

from __future__ import annotations

from typing import Literal

from openclaw_rl.types import Exercise, Sample, VersionSpan

MAX_TOKENS = 64
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
