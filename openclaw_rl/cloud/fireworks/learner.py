"""`CloudLearner` over the SDK's training client, which has the shape of Tinker's.

What is saved is the state, with the optimiser's: `fireworks://ACCOUNT/RUN/NAME`. Samplers make their own snapshot,
each in its session. A backward pass may say no log-probs, so that they are always taken from a forward pass.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from openclaw_rl.cloud.fireworks.connection import FireworksLink
from openclaw_rl.cloud.passes import Passes
from openclaw_rl.cloud.service import Floats, Form, Passage
from openclaw_rl.errors import CloudError

_SCHEME = "fireworks://"


class FireworksLearner(Passes):
    """One run in a session of its own; `begin` makes another."""

    def __init__(self, link: FireworksLink) -> None:
        super().__init__(link)
        self._way = link
        self._service: Any = None

    async def begin(self, parent: str | None, form: Form) -> None:
        await self.close()
        link, base_model = self._way, self._way.access.base_model
        service = self._service = await link.session()
        if parent is None:
            self._client = await link.asked(
                lambda: service.create_lora_training_client(
                    base_model=base_model,
                    rank=form.rank,
                    seed=form.seed,
                    train_mlp=form.mlp,
                    train_attn=form.attention,
                    train_unembed=False,
                    alpha=32,
                )
            )
        else:
            self._client = await resumed(link, service, parent)

    async def linear(self, passages: Sequence[Passage], gradients: Sequence[Floats]) -> list[Floats]:
        """Two passes here."""
        told = await self.forward(passages)
        await self.backward(passages, lambda _: gradients)
        return told

    def names(self, label: str) -> tuple[str, ...]:
        account = str(self._client.run_name).split("/")[1]
        return (f"{_SCHEME}{account}/{self._client.run_id}/{_named(label)}",)

    async def save(self, label: str) -> str:
        saved = await self._link.asked(lambda: self._client.save_state(_named(label)))
        return f"{_SCHEME}{saved.path}"

    async def close(self) -> None:
        service, self._service, self._client = self._service, None, None
        if service is not None:
            await self._way.end(service)


async def resumed(link: FireworksLink, session: Any, weights: str) -> Any:
    """A training client at a state that was saved, with its optimiser; `missing` if it is gone."""
    if not weights.startswith(_SCHEME):
        raise CloudError(f"{weights} is no state that {link.access.place} saved", kind="missing")
    path = weights.removeprefix(_SCHEME)
    return await link.asked(lambda: session.create_training_client_from_state_with_optimizer(path))


def _named(label: str) -> str:
    """Names there are of small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[-60:].strip("-")
