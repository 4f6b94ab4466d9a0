"""`CloudLearner` over a LoRA training client of Tinker's.

A snapshot is saved twice under one name: `tinker://RUN/sampler_weights/NAME` is what samplers open and what a version
is called by; `tinker://RUN/weights/NAME`, with the optimiser's state, is what the next step begins from.
"""

from __future__ import annotations

from typing import Any

from openclaw_rl.cloud.passes import Passes
from openclaw_rl.cloud.service import Form
from openclaw_rl.cloud.tinker.connection import TinkerLink
from openclaw_rl.errors import CloudError

_SAMPLER, _STATE = "sampler_weights", "weights"


class TinkerLearner(Passes):
    """One run; `begin` makes another."""

    def __init__(self, connection: TinkerLink) -> None:
        super().__init__(connection)
        self._connection = connection
        self._service: Any = None

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


def state_of(uri: str) -> str:
    """Where the state beside a snapshot for samplers is."""
    run, kind, name = uri.removeprefix("tinker://").split("/")
    if kind != _SAMPLER:
        raise CloudError(f"{uri} is no snapshot of a version", kind="missing")
    return f"tinker://{run}/{_STATE}/{name}"
