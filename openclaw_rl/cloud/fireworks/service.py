"""`Service` over Fireworks: what it can do is tried, with a handful of tokens, before it is relied on.

It says neither which models it trains nor their windows: a base model is known when a session takes it, and the window
is the setting's. Its SDK has no way to remove one state; what is no longer used stays there.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import numpy as np

from openclaw_rl.cloud.fireworks.connection import FireworksLink
from openclaw_rl.cloud.fireworks.learner import FireworksLearner
from openclaw_rl.cloud.fireworks.sampler import FireworksSampler
from openclaw_rl.cloud.service import Abilities, Access, Form, Passage, Policy
from openclaw_rl.errors import CloudError, ConfigError
from openclaw_rl.types import Sampling

_log = logging.getLogger(__name__)

_SOME_IDS = (1, 2, 3, 4)
"""Of every vocabulary."""
_SAME = 1e-3
_ALTERNATIVES = (20, 8, 5)
_WINDOW = 32768
"""engine.context_window says a smaller one."""


class FireworksService:
    """One key, and what is made with it."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._link = FireworksLink(access)

    def sampler(self) -> FireworksSampler:
        return FireworksSampler(self._link)

    def learner(self) -> FireworksLearner:
        return FireworksLearner(self._link)

    async def survey(self) -> Abilities:
        """`ConfigError` in one sentence for a key, base model or address that will not do."""
        access = self.access
        if not access.key:
            raise ConfigError(
                "training.backend=fireworks needs a key: set FIREWORKS_API_KEY to one of your own that may train"
            )
        try:
            await self._link.account()
        except CloudError as error:
            if error.kind in ("key", "billing", "refused", "failed"):
                raise ConfigError(str(error)) from error
            raise
        sampler, learner = self.sampler(), self.learner()
        try:
            return await self._tried(sampler, learner)
        finally:
            await learner.close()
            await sampler.close()

    async def _tried(self, sampler: FireworksSampler, learner: FireworksLearner) -> Abilities:
        access, likely = self.access, self.access.likely
        try:
            await sampler.open(None)
        except CloudError as error:
            if error.kind not in ("missing", "refused", "failed"):
                raise
            raise ConfigError(
                f"{access.place} does not take {access.base_model!r} as a base model ({error}): set "
                "engine.served_model to its name there, such as accounts/fireworks/models/qwen3-8b"
            ) from error
        wide = np.tile(np.arange(2, 2 + likely, dtype=np.int64), (3, 1))
        prompt = await _can(lambda: sampler.read(None, _SOME_IDS, last=2))
        can_likely = prompt and await _can(lambda: sampler.read(None, _SOME_IDS, last=2, likely=likely))
        chosen = prompt and await _can(lambda: sampler.read(None, _SOME_IDS, last=2, chosen_RK=wide[:2]))
        await learner.begin(None, Form(rank=8, seed=0))
        ids = _SOME_IDS[:3]
        is_wide = await _can(lambda: learner.forward([Passage(ids=ids, targets=wide)]))
        if not is_wide:
            await learner.begin(None, Form(rank=8, seed=0))  # after a refusal a run takes no more
        has_policy = await _can(lambda: self._clipped(learner))
        return Abilities(
            context_window=_WINDOW,
            prompt_logprobs=prompt,
            likely_tokens=can_likely,
            chosen_tokens=chosen,
            wide_targets=is_wide,
            policy_loss=has_policy,
            scaled_logprobs=not prompt or await self._is_scaled(sampler),
            alternatives=await self._alternatives(sampler),
            sdk="fireworks-ai",
        )

    async def _clipped(self, learner: FireworksLearner) -> None:
        """Whether its policy loss says log-probs, as a backward pass need not."""
        ids, targets = _SOME_IDS[:3], np.array([2, 3, 4], dtype=np.int64)
        policy = Policy(ids=ids, targets=targets, old=np.full(3, -1, np.float32), advantages=np.zeros(3, np.float32))
        try:
            await learner.policy([policy], clip_low=0.2, clip_high=0.28)
        except KeyError as error:
            raise CloudError("its policy loss says no log-probs", kind="refused") from error

    async def _alternatives(self, sampler: FireworksSampler) -> int:
        for num in _ALTERNATIVES:
            how = Sampling(max_tokens=1, temperature=0.0, top_logprobs=num)
            if await _can(partial(sampler.draw, None, _SOME_IDS, how, stop_ids=())):
                return num
        return 0

    async def _is_scaled(self, sampler: FireworksSampler) -> bool:
        """Whether a sampled token has another log-prob at another temperature than the same token in a prompt has."""
        drawn = await sampler.draw(None, _SOME_IDS, Sampling(max_tokens=1, temperature=0.5, seed=1), stop_ids=())
        read = await sampler.read(None, (*_SOME_IDS, *drawn.token_ids), last=1)
        return abs(drawn.logprobs[0] - float(read.logprobs[0])) > _SAME

    async def remove(self, uri: str) -> None:
        """Nothing that the SDK could ask for."""
        _log.warning("the service removes no single state: it stays there", extra={"state": uri})

    async def close(self) -> None:
        """Sessions are ended by who has them."""


async def _can(ask: Callable[[], Awaitable[Any]]) -> bool:
    try:
        await ask()
    except CloudError as error:
        if error.kind in ("refused", "failed", "missing"):
            return False
        raise
    return True
