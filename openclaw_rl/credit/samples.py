"""A turn and its signals -> a sample, the row that a step learns from; and how many of one user a batch may hold.

Every id was sampled or rendered before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from openclaw_rl.types import Candidate, Sample, SampleKind, Sampling, SignalWeights, Turn, sample_id


def turn_sample(
    turn: Turn,
    weights: SignalWeights,
    *,
    line: str,
    advantage: float,
    candidates: Sequence[Candidate],
    created_at: float,
) -> Sample:
    """What a turn teaches about its own prompt; every token of the answer gets the same advantage."""
    return Sample(
        **_answer(turn, "turn"),
        line=line,
        prompt_index=turn.index,
        created_at=created_at,
        prompt_ids=turn.prompt_ids,
        advantages=(advantage,) * len(turn.completion.token_ids),
        logprobs=turn.completion.logprobs,
        on_policy=is_on_policy(turn.sampling),
        reward=weights.reward,
        w_rl=weights.w_rl,
        w_opd=weights.w_opd,
        candidates=tuple(candidates),
    )


def rewrite_sample(accepted: Turn, first: Turn, *, line: str, weight: float, created_at: float) -> Sample:
    """The accepted answer behind the prompt of the first request, reward and advantage +1: an example to follow.

    It was sampled behind another prompt, so there are no log-probs, and no baseline that it could be measured against.
    """
    return Sample(
        **_answer(accepted, "rewrite"),
        line=line,
        prompt_index=first.index,
        created_at=created_at,
        prompt_ids=first.prompt_ids,
        advantages=(1.0,) * len(accepted.completion.token_ids),
        logprobs=None,
        on_policy=False,
        reward=1.0,
        w_rl=weight,
        w_opd=0.0,
        candidates=(),
    )


def is_on_policy(sampling: Sampling) -> bool:
    """Whether tokens were drawn from softmax(logits / temperature) itself, as their log-probs say."""
    return (
        sampling.temperature > 0.0
        and sampling.top_p == 1.0
        and sampling.top_k == 0
        and sampling.min_p == 0.0
        and sampling.repetition_penalty == 1.0
        and sampling.presence_penalty == 0.0
        and sampling.frequency_penalty == 0.0
        and not sampling.logit_bias
    )


def _answer(turn: Turn, kind: SampleKind) -> dict[str, Any]:
    completion = turn.completion
    return {
        "id": sample_id(turn.session, turn.index, kind),
        "kind": kind,
        "session": turn.session,
        "index": turn.index,
        "response_ids": completion.token_ids,
        "loss_mask": (True,) * len(completion.token_ids),
        "temperature": turn.sampling.temperature or 1.0,  # greedy log-probs are recorded at T = 1
        "version_spans": completion.version_spans,
    }


def within_caps(
    samples: Sequence[Sample],
    *,
    batch_size: int,
    user_of: Callable[[Sample], str],
    max_user_share: float,
    max_session_share: float,
) -> tuple[list[Sample], list[Sample]]:
    """The samples of the next batch, at most `batch_size`, and those that are left for later; both in their order.

    A share is one of a full batch, and never less than one sample: with a smaller one nobody could ever teach.
    """
    user_limit, session_limit = (_limit(share, batch_size) for share in (max_user_share, max_session_share))
    users: Counter[str] = Counter()
    sessions: Counter[str] = Counter()
    taken: list[Sample] = []
    left: list[Sample] = []
    for sample in samples:
        user = user_of(sample)
        if len(taken) < batch_size and users[user] < user_limit and sessions[sample.session] < session_limit:
            users[user] += 1
            sessions[sample.session] += 1
            taken.append(sample)
        else:
            left.append(sample)
    return taken, left


def _limit(share: float, batch_size: int) -> int:
    return max(1, math.floor(share * batch_size + 1e-9))  # 0.07 * 100 is 7.000000000000001, and 0.29 * 100 is below 29
