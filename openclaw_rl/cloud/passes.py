"""`CloudLearner` over a training client of the shape that several services share: what is the same at each.

Who derives from it makes the client (`begin`), and knows how things are called there. Requests of a client are computed
in the order in which they were made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from openclaw_rl.cloud.link import Link
from openclaw_rl.cloud.service import Floats, Gradient, Move, Passage, Policy, Used

_NORMS = ("unclipped_grad_l2", "grad_norm", "grad_l2")
"""Names under which servers tell the norm of the gradient, before a colon."""


class Passes:
    """Passes and steps of the run that `_client` stands for."""

    def __init__(self, connection: Link) -> None:
        self._link = connection
        self._client: Any = None
        self.used = Used()

    async def forward(self, passages: Sequence[Passage]) -> list[Floats]:
        data = [self._datum(one, np.zeros_like(one.targets, dtype=np.float32)) for one in passages]
        return await self._passed(lambda: self._client.forward(data, "cross_entropy"), passages)

    async def backward(self, passages: Sequence[Passage], gradient: Gradient) -> None:
        """By `forward_backward_custom`: the SDK sends -dC/dlogprob back as weights."""
        import torch  # what the SDK computes a loss of one's own with; this is a worker

        data = [self._datum(one, np.zeros_like(one.targets, dtype=np.float32)) for one in passages]

        def loss(_: Any, logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
            rows = (len(passage.ids) for passage in passages)
            given = [one.detach().numpy().reshape(num, -1) for one, num in zip(logprobs, rows, strict=True)]
            found = gradient(given)
            parts = [
                (one * torch.from_numpy(np.ascontiguousarray(slope)).reshape(one.shape)).sum()
                for one, slope in zip(logprobs, found, strict=True)
            ]
            return torch.stack(parts).sum(), {}

        tokens = sum(len(one.ids) for one in passages)
        await self._link.asked(lambda: self._client.forward_backward_custom(data, loss))
        self.used += Used(prefill=tokens, train=tokens)

    async def linear(self, passages: Sequence[Passage], gradients: Sequence[Floats]) -> list[Floats]:
        data = [self._datum(one, -slope) for one, slope in zip(passages, gradients, strict=True)]
        return await self._passed(
            lambda: self._client.forward_backward(data, "cross_entropy"), passages, is_training=True
        )

    async def policy(self, batch: Sequence[Policy], *, clip_low: float, clip_high: float) -> list[Floats]:
        types = self._link.sdk.types
        data = [
            types.Datum(
                model_input=types.ModelInput.from_ints(list(one.ids)),
                loss_fn_inputs={
                    "target_tokens": types.TensorData.from_numpy(one.targets),
                    "logprobs": types.TensorData.from_numpy(one.old),
                    "advantages": types.TensorData.from_numpy(one.advantages),
                },
            )
            for one in batch
        ]
        config = {"clip_low_threshold": 1 - clip_low, "clip_high_threshold": 1 + clip_high}
        answer = await self._link.asked(lambda: self._client.forward_backward(data, "ppo", config))
        self.used += Used(train=sum(len(one.ids) for one in batch))
        return [_matrix(one, len(asked.ids))[:, 0] for one, asked in zip(answer.loss_fn_outputs, batch, strict=True)]

    async def move(self, how: Move) -> Mapping[str, float]:
        params = self._link.sdk.types.AdamParams(
            learning_rate=how.learning_rate,
            beta1=how.beta1,
            beta2=how.beta2,
            eps=how.eps,
            weight_decay=how.weight_decay,
            grad_clip_norm=how.max_norm,
        )
        answer = await self._link.asked(lambda: self._client.optim_step(params))
        told = {name.partition(":")[0]: value for name, value in (answer.metrics or {}).items()}
        return {"norm": next(told[name] for name in _NORMS if name in told)} if set(_NORMS) & set(told) else {}

    async def _passed(self, ask: Any, passages: Sequence[Passage], *, is_training: bool = False) -> list[Floats]:
        answer = await self._link.asked(ask)
        tokens = sum(len(one.ids) for one in passages)
        self.used += Used(train=tokens) if is_training else Used(prefill=tokens)
        return [_matrix(one, len(asked.ids)) for one, asked in zip(answer.loss_fn_outputs, passages, strict=True)]

    def _datum(self, passage: Passage, weights_NK: Floats) -> Any:
        """One target of each place is a row of numbers: not every server reads a matrix."""
        types, targets = self._link.sdk.types, passage.targets
        if targets.shape[1] == 1:
            targets, weights_NK = targets[:, 0], weights_NK[:, 0]
        return types.Datum(
            model_input=types.ModelInput.from_ints(list(passage.ids)),
            loss_fn_inputs={
                "target_tokens": types.TensorData.from_numpy(np.ascontiguousarray(targets)),
                "weights": types.TensorData.from_numpy(np.ascontiguousarray(weights_NK)),
            },
        )


def _matrix(output: Mapping[str, Any], num_rows: int) -> Floats:
    found: Floats = np.asarray(output["logprobs"].to_numpy(), dtype=np.float32).reshape(num_rows, -1)
    return found
