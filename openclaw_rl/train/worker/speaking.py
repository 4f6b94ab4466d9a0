"""Prompts -> answers that a model gives in a trainer: a few short ones, token by token. Engines answer people."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from openclaw_rl.train.passes.reader import Reader
from openclaw_rl.train.worker.crew import ALONE, Crew

MAX_LIKELY = 64
"""Tokens that are drawn from: the likeliest."""


def answers(
    reader: Reader,
    prompts: Sequence[tuple[int, ...]],
    *,
    stop_token_ids: Collection[int],
    max_tokens: int,
    temperatures: Sequence[float] | None = None,
    seed: int = 0,
    crew: Crew = ALONE,
) -> list[tuple[int, ...]]:
    """One for each prompt, with the token that ended it; without temperatures the likeliest tokens.

    In a crew all read along, and say what its first member says.
    """
    drawn = torch.Generator().manual_seed(seed)
    follower = reader.follower()
    said: list[tuple[int, ...]] = [() for _ in prompts]
    more = dict(enumerate(prompts))
    while more:
        tokens: list[int] = []
        for name, rows in zip(more, follower.read(more), strict=True):
            ids_1K, logprobs_1K = rows.top_k(1 if temperatures is None else MAX_LIKELY)
            at = 0
            if temperatures is not None:
                chances_K = torch.softmax(logprobs_1K[0].float().cpu() / temperatures[name], dim=-1)
                at = int(torch.multinomial(chances_K, 1, generator=drawn))
            tokens.append(int(ids_1K[0, at]))
        for name, token in zip(more, crew.gathered(tokens)[0], strict=True):
            said[name] += (token,)
        more = {
            name: said[name][-1:]
            for name in more
            if len(said[name]) < max_tokens and said[name][-1] not in stop_token_ids
        }
    return said
