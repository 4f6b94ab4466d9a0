"""Samples of turns, as credit would make them."""

from __future__ import annotations

from typing import Any

from openclaw_rl.types import Candidate, Sample, Turn, sample_id


def sample_of(turn: Turn, *, prompt: Turn | None = None, **changes: Any) -> Sample:
    """Ann's: bad, with one hint; all tokens of the answer but the last are trained. A rewrite where another turn's
    `prompt` is answered."""
    size = len(turn.completion.token_ids)
    asked = prompt or turn
    values: dict[str, Any] = {
        "kind": "turn" if prompt is None else "rewrite",
        "line": "ann",
        "session": turn.session,
        "index": turn.index,
        "prompt_index": asked.index,
        "created_at": 106.0,
        "prompt_ids": asked.prompt_ids,
        "response_ids": turn.completion.token_ids,
        "loss_mask": (True,) * (size - 1) + (False,),
        "advantages": (-0.75,) * size,
        "logprobs": turn.completion.logprobs if prompt is None else None,
        "temperature": 0.7,
        "on_policy": True,
        "reward": -1.0,
        "w_rl": 1.0,
        "w_opd": 0.5,
        "candidates": (Candidate(hint="Answer in one sentence.", num_shared=2, suffix_ids=(5, 70000)),),
        "version_spans": turn.completion.version_spans,
        **changes,
    }
    return Sample(id=sample_id(turn.session, turn.index, values["kind"]), **values)
