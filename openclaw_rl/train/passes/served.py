"""A teacher that another server computes, as a `Reader`: what it told of its likeliest tokens, and of nothing else.

A log-prob that was not told is NaN: a loss that rests on one is refused with the step. Knows no weights.

Axes: R response tokens, K top-k width, J tokens asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from openclaw_rl.errors import TrainError
from openclaw_rl.train.objective.rows import Rows
from openclaw_rl.train.passes.activations import ALL, Kept
from openclaw_rl.train.passes.reader import Follower, Reader, ResponseReading
from openclaw_rl.train.passes.sequences import Counter, Each, Sequenced
from openclaw_rl.train.teacher_server import Likely, TeacherServer


class ServedReader:
    """The model of a server, asked for its `top` likeliest tokens."""

    hidden_size = 0

    def __init__(self, server: TeacherServer, *, top: int, device: torch.device) -> None:
        self._server = server
        self._top = top
        self.device = device
        self.num_computed = 0

    @property
    def plain(self) -> Reader:
        return self

    def counter(self) -> Counter:
        return Each()

    def read(
        self, sequences: Sequence[Sequenced], *, kept: Kept = ALL, dropout_seed: int | None = None
    ) -> list[ResponseReading]:
        whole = [(*one.prompt_ids, *one.response_ids) for one in sequences]
        starts = [len(one.prompt_ids) for one in sequences]
        nothing = torch.empty(0, 0, device=self.device)
        return [
            ResponseReading(nothing, partial(self._rows, one, likely))
            for one, likely in zip(sequences, self._server.likely(whole, starts, self._top), strict=True)
        ]

    def _rows(self, one: Sequenced, likely: Sequence[Likely], temperature: float) -> Rows:
        if temperature != 1.0:
            raise TrainError(f"{self._server} tells log-probs at temperature 1, and {temperature:g} is asked for")
        return ServedRows(one.response_ids, likely, self._top, self.device)

    def follower(self) -> Follower:
        raise TrainError(f"{self._server} is asked what it would say, and writes nothing")


class ServedRows:
    """`objective.rows.Rows` of what was told."""

    def __init__(self, response_ids: Sequence[int], likely: Sequence[Likely], top: int, device: torch.device) -> None:
        ranked = [sorted(row.items(), key=lambda entry: (-entry[1], entry[0]))[:top] for row in likely]
        self._top_ids_RK = torch.tensor([[token for token, _ in row] for row in ranked], device=device)
        self._top_RK = torch.tensor([[logprob for _, logprob in row] for row in ranked], device=device)
        own = [row[token] for row, token in zip(likely, response_ids, strict=True)]
        self._ids_RK = torch.cat((self._top_ids_RK, torch.tensor(response_ids, device=device)[:, None]), dim=-1)
        self._logprobs_RK = torch.cat((self._top_RK, torch.tensor(own, device=device)[:, None]), dim=-1)

    def logprob(self, ids_RJ: Tensor) -> Tensor:
        is_told_RJK = ids_RJ.unsqueeze(-1) == self._ids_RK.unsqueeze(-2)
        place_RJ = is_told_RJK.int().argmax(-1)  # the first of two: what was drawn may be likely too
        return self._logprobs_RK.gather(-1, place_RJ).masked_fill(~is_told_RJK.any(-1), float("nan"))

    def top_k(self, k: int) -> tuple[Tensor, Tensor]:
        assert k <= self._top_RK.shape[1], f"the teacher was asked for {self._top_RK.shape[1]} tokens, not {k}"
        return self._top_ids_RK[:, :k], self._top_RK[:, :k]

    def entropy(self) -> Tensor:
        raise TrainError("a teacher at training.teacher_url does not tell its entropy")
