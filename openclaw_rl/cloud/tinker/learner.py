"""`CloudLearner` over a LoRA training client. Requests of a client are computed in the order in which they were made.

A snapshot is saved twice under one name: `tinker://RUN/sampler_weights/NAME` is what samplers open and what a version
is called by; `tinker://RUN/weights/NAME`, with the optimiser's state, is what the next step begins from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from openclaw_rl.cloud.link import Link
from openclaw_rl.cloud.service import Floats, Form, Gradient, Move, Passage, Policy, Used
from openclaw_rl.errors import CloudError

_SAMPLER, _STATE = "sampler_weights", "weights"
_NORMS = ("unclipped_grad_l2", "grad_norm", "grad_l2")
"""Names under which servers tell the norm of the gradient, before a colon."""


class TinkerLearner:
    """One run; `begin` makes another."""

    def __init__(self, connection: Link) -> None:
        self._connection = connection
        self._service: Any = None
        self._client: Any = None
        self.used = Used()

    async def begin(self, parent: str | None, form: Form) -> None:
        try:
            await self._begin(parent, form)
        except CloudError as error:
            if error.kind != "missing":
                raise
            self._connection.forget(self._service)  # a session that is gone looks like weights that are
            await self._begin(parent, form)

    async def _begin(self, parent: str | None, form: Form) -> None:
        connection = self._connection
        service = self._service = await connection.client()
        if parent is None:
            self._client = await connection.asked(
                lambda: service.create_lora_training_client(
                    base_model=connection.access.base_model,
                    rank=form.rank,
                    seed=form.seed,
                    train_mlp=form.mlp,
                    train_attn=form.attention,
                    train_unembed=False,
                )
            )
        else:
            state = state_of(parent)
            self._client = await connection.asked(
                lambda: service.create_training_client_from_state_with_optimizer(state)
            )

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
        await self._connection.asked(lambda: self._client.forward_backward_custom(data, loss))
        self.used += Used(prefill=tokens, train=tokens)

    async def linear(self, passages: Sequence[Passage], gradients: Sequence[Floats]) -> list[Floats]:
        data = [self._datum(one, -slope) for one, slope in zip(passages, gradients, strict=True)]
        return await self._passed(
            lambda: self._client.forward_backward(data, "cross_entropy"), passages, is_training=True
        )

    async def policy(self, batch: Sequence[Policy], *, clip_low: float, clip_high: float) -> list[Floats]:
        types = self._connection.sdk.types
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
        answer = await self._connection.asked(lambda: self._client.forward_backward(data, "ppo", config))
        self.used += Used(train=sum(len(one.ids) for one in batch))
        return [_matrix(one, len(asked.ids))[:, 0] for one, asked in zip(answer.loss_fn_outputs, batch, strict=True)]

    async def move(self, how: Move) -> Mapping[str, float]:
        params = self._connection.sdk.types.AdamParams(
            learning_rate=how.learning_rate,
            beta1=how.beta1,
            beta2=how.beta2,
            eps=how.eps,
            weight_decay=how.weight_decay,
            grad_clip_norm=how.max_norm,
        )
        answer = await self._connection.asked(lambda: self._client.optim_step(params))
        told = {name.partition(":")[0]: value for name, value in (answer.metrics or {}).items()}
        return {"norm": next(told[name] for name in _NORMS if name in told)} if set(_NORMS) & set(told) else {}

    def names(self, label: str) -> tuple[str, ...]:
        run = self._client.model_id
        return f"tinker://{run}/{_SAMPLER}/{label}", f"tinker://{run}/{_STATE}/{label}"

    async def save(self, label: str) -> str:
        """The state first: a version that can be sampled can also be trained on."""
        await self._connection.asked(lambda: self._client.save_state(label))
        saved = await self._connection.asked(lambda: self._client.save_weights_for_sampler(label))
        return str(saved.path)

    async def close(self) -> None:
        self._client = None

    async def _passed(self, ask: Any, passages: Sequence[Passage], *, is_training: bool = False) -> list[Floats]:
        answer = await self._connection.asked(ask)
        tokens = sum(len(one.ids) for one in passages)
        self.used += Used(train=tokens) if is_training else Used(prefill=tokens)
        return [_matrix(one, len(asked.ids)) for one, asked in zip(answer.loss_fn_outputs, passages, strict=True)]

    def _datum(self, passage: Passage, weights_NK: Floats) -> Any:
        """One target of each place is a row of numbers: not every server reads a matrix."""
        types, targets = self._connection.sdk.types, passage.targets
        if targets.shape[1] == 1:
            targets, weights_NK = targets[:, 0], weights_NK[:, 0]
        return types.Datum(
            model_input=types.ModelInput.from_ints(list(passage.ids)),
            loss_fn_inputs={
                "target_tokens": types.TensorData.from_numpy(np.ascontiguousarray(targets)),
                "weights": types.TensorData.from_numpy(np.ascontiguousarray(weights_NK)),
            },
        )


def state_of(uri: str) -> str:
    """Where the state beside a snapshot for samplers is."""
    run, kind, name = uri.removeprefix("tinker://").split("/")
    if kind != _SAMPLER:
        raise CloudError(f"{uri} is no snapshot of a version", kind="missing")
    return f"tinker://{run}/{_STATE}/{name}"


def _matrix(output: Mapping[str, Any], num_rows: int) -> Floats:
    found: Floats = np.asarray(output["logprobs"].to_numpy(), dtype=np.float32).reshape(num_rows, -1)
    return found
