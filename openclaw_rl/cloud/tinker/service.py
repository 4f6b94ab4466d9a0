"""`Service` over Tinker's protocol: what a server can do is tried, with a handful of tokens, before it is relied on.

Servers that others run differ: some give no log-probs of prompts, some know fewer losses. A refusal of one question is
an ability that is missing; anything else is an error of the look.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import numpy as np

from openclaw_rl.cloud.service import Abilities, Access, Form, Passage, Policy
from openclaw_rl.cloud.tinker.connection import TinkerLink
from openclaw_rl.cloud.tinker.learner import TinkerLearner, state_of
from openclaw_rl.cloud.tinker.sampler import TinkerSampler
from openclaw_rl.errors import CloudError, ConfigError
from openclaw_rl.types import Sampling

_SOME_IDS = (1, 2, 3, 4)
"""Of every vocabulary."""
_SAME = 1e-3
_WINDOW = 8192
"""Where a server does not say."""


class TinkerService:
    """One connection, and what is made of it."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._connection = TinkerLink(access)

    def sampler(self) -> TinkerSampler:
        return TinkerSampler(self._connection)

    def learner(self) -> TinkerLearner:
        return TinkerLearner(self._connection)

    async def survey(self) -> Abilities:
        """`ConfigError` in one sentence for a key, base model or address that will not do."""
        access = self.access
        if not access.key:
            raise ConfigError(
                "training.backend=tinker needs a key: set TINKER_API_KEY to one of your own from Tinker's console, or "
                "to any word that begins with tml- for a server of yours"
            )
        try:
            models = await self._models()
        except CloudError as error:
            if error.kind in ("key", "billing", "refused"):
                raise ConfigError(str(error)) from error
            raise
        if access.base_model not in models:
            known = ", ".join(sorted(models)[:12])
            raise ConfigError(
                f"{access.place} has no base model {access.base_model!r}; it has {known}: set model.name to one of "
                "them, or engine.served_model where it goes by another name there"
            )
        sampler, learner = self.sampler(), self.learner()
        await sampler.open(None)
        wide = np.array([[2, 3], [3, 4], [4, 2]], dtype=np.int64)
        ids = _SOME_IDS[:3]

        async def read(**also: Any) -> Any:
            return await sampler.read(None, _SOME_IDS, last=2, **also)

        prompt = await _can(lambda: read())
        likely = prompt and await _can(lambda: read(likely=2))
        chosen = prompt and await _can(lambda: read(chosen_RK=wide[:2]))
        scaled = not prompt or await self._is_scaled(sampler)
        await learner.begin(None, Form(rank=8, seed=0))
        passage, narrow = Passage(ids=ids, targets=wide), np.ones(3, dtype=np.float32)
        is_wide = await _can(lambda: learner.forward([passage]))
        if not is_wide:
            await learner.begin(None, Form(rank=8, seed=0))  # after a refusal a run takes no more
        policy = Policy(ids=ids, targets=wide[:, 0].copy(), old=-narrow, advantages=0 * narrow)
        has_policy = await _can(lambda: learner.policy([policy], clip_low=0.2, clip_high=0.28))
        return Abilities(
            context_window=models[access.base_model] or _WINDOW,
            prompt_logprobs=prompt,
            likely_tokens=likely,
            chosen_tokens=chosen,
            wide_targets=is_wide,
            policy_loss=has_policy,
            scaled_logprobs=scaled,
            sdk=f"tinker {self._connection.sdk.__version__}",
        )

    async def _is_scaled(self, sampler: TinkerSampler) -> bool:
        """Whether a sampled token has another log-prob at another temperature than the same token in a prompt has."""
        drawn = await sampler.draw(None, _SOME_IDS, Sampling(max_tokens=1, temperature=0.5, seed=1), stop_ids=())
        read = await sampler.read(None, (*_SOME_IDS, *drawn.token_ids), last=1)
        return abs(drawn.logprobs[0] - float(read.logprobs[0])) > _SAME

    async def _models(self) -> dict[str, int | None]:
        """By name: the window of each model that can be trained and sampled from."""
        service = await self._connection.client()
        found = await self._connection.asked(lambda: _capabilities(self._connection.sdk, service, self.access))
        return {
            one.model_name: one.max_context_length
            for one in found.supported_models
            if one.model_name and getattr(one, "trainable", None) is not False
        }

    async def remove(self, uri: str) -> None:
        """The snapshot, and the state beside it."""
        service = await self._connection.client()
        rest = await self._connection.asked(lambda: _rest(self._connection.sdk, service, self.access))
        for one in (uri, state_of(uri)):
            try:
                await self._connection.asked(partial(rest.delete_checkpoint_from_tinker_path, one))
            except CloudError as error:
                if error.kind != "missing":
                    raise

    async def close(self) -> None:
        await self._connection.close()


async def _can(ask: Callable[[], Awaitable[Any]]) -> bool:
    try:
        await ask()
    except CloudError as error:
        if error.kind in ("refused", "failed", "missing"):
            return False
        raise
    return True


def _rest(sdk: Any, service: Any, access: Access) -> Any:
    if hasattr(sdk, "RestClient"):  # from 0.36 on
        return sdk.RestClient(base_url=access.url, api_key=access.key)
    return service.create_rest_client()


def _capabilities(sdk: Any, service: Any, access: Access) -> Any:
    if hasattr(sdk, "RestClient"):
        return _rest(sdk, service, access).get_server_capabilities()
    return service.get_server_capabilities()
