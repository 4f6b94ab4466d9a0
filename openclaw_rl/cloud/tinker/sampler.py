"""`CloudSampler` over sampling clients: one for each snapshot, made when it is first asked, and again after a restart.

An old client goes on with its own weights, so that answers that run while another version goes live are by one version
from their first token to their last.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from openclaw_rl.cloud.service import DrawnAnswer, Floats, Ints, SaidOf, Used
from openclaw_rl.cloud.tinker.connection import TinkerLink
from openclaw_rl.errors import CloudError
from openclaw_rl.types import Sampling, TokenLogprob

_T = TypeVar("_T")


class TinkerSampler:
    """Shares a connection with whoever else uses it."""

    def __init__(self, connection: TinkerLink) -> None:
        self._connection = connection
        self._clients: dict[str | None, tuple[Any, Any]] = {}
        """By weights: the service client it was made by, and the sampling client."""
        self._making: dict[str | None, asyncio.Lock] = {}

    async def open(self, weights: str | None) -> None:
        await self._again(weights, self._made)

    async def draw(
        self, weights: str | None, prompt_ids: Sequence[int], how: Sampling, *, stop_ids: Sequence[int]
    ) -> DrawnAnswer:
        """One answer, whole: the service does not stream."""
        types = self._connection.sdk.types
        params = types.SamplingParams(
            max_tokens=how.max_tokens,
            temperature=how.temperature,
            top_p=how.top_p,
            top_k=how.top_k or -1,
            seed=how.seed,
            stop=list(stop_ids),
        )
        also = {"topk_sample_logprobs": how.top_logprobs} if how.top_logprobs else {}
        answer = await self._asked(weights, prompt_ids, params, **also)
        (one,) = answer.sequences
        if one.logprobs is None or len(one.logprobs) != len(one.tokens):
            raise CloudError(f"{self._connection.access.place} sampled without log-probs", kind="failed")
        cached = int(getattr(answer, "prompt_cache_hit_tokens", 0) or 0)
        return DrawnAnswer(
            token_ids=tuple(one.tokens),
            logprobs=tuple(one.logprobs),
            finish_reason="stop" if one.stop_reason == "stop" else "length",
            top_logprobs=_tops(one.topk_logprobs, how.top_logprobs) if how.top_logprobs else None,
            used=Used(prefill=len(prompt_ids) - cached, cached=cached, sample=len(one.tokens)),
        )

    async def read(
        self, weights: str | None, ids: Sequence[int], *, last: int, likely: int = 0, chosen_RK: Ints | None = None
    ) -> SaidOf:
        """One token is sampled, and thrown away: the service has no question without one."""
        types = self._connection.sdk.types
        also: dict[str, Any] = {"include_prompt_logprobs": True, "prompt_logprobs_last_n": last}
        if likely:
            also["topk_prompt_logprobs"] = likely
        if chosen_RK is not None:
            wanted = np.full((len(ids) - 1, chosen_RK.shape[1]), -1, dtype=np.int64)
            wanted[-last:] = chosen_RK
            also["target_prompt_logprobs"] = types.TensorData.from_numpy(wanted)
        answer = await self._asked(weights, ids, types.SamplingParams(max_tokens=1, temperature=1.0), **also)
        logprobs_R = _floats(answer.prompt_logprobs)[-last:]
        if len(logprobs_R) != last or np.isnan(logprobs_R).any():
            raise CloudError(f"{self._connection.access.place} gives no log-probs of given tokens", kind="refused")
        cached = int(getattr(answer, "prompt_cache_hit_tokens", 0) or 0)
        return SaidOf(
            logprobs=logprobs_R,
            likely=_likely(answer.topk_prompt_logprobs[-last:]) if likely else None,
            chosen=None if chosen_RK is None else _matrix(answer.target_prompt_logprobs, len(ids) - 1)[-last:],
            used=Used(prefill=len(ids) - cached, cached=cached, sample=1),
        )

    def let_go(self, weights: str) -> None:
        self._clients.pop(weights, None)

    async def close(self) -> None:
        self._clients.clear()

    async def _asked(self, weights: str | None, ids: Sequence[int], params: Any, **also: Any) -> Any:
        prompt = self._connection.sdk.types.ModelInput.from_ints(list(ids))

        async def ask(weights: str | None) -> Any:
            client = await self._made(weights)
            return await self._connection.asked(lambda: client.sample(prompt, 1, params, **self._known(client, also)))

        return await self._again(weights, ask)

    def _known(self, client: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What this version of the SDK can ask: without `prompt_logprobs_last_n` all of a prompt is scored."""
        can = inspect.signature(client.sample).parameters
        lacks = [name for name in asked if name not in can and name != "prompt_logprobs_last_n"]
        if lacks:
            version = self._connection.sdk.__version__
            raise CloudError(f"the Tinker SDK {version} cannot ask for {', '.join(lacks)}", kind="refused")
        return {name: value for name, value in asked.items() if name in can}

    async def _again(self, weights: str | None, ask: Callable[[str | None], Awaitable[_T]]) -> _T:
        """Once more, in a new session, where the service has forgotten this one: it was started again."""
        known = self._clients.get(weights)
        try:
            return await ask(weights)
        except CloudError as error:
            if error.kind != "missing" or (known is None and self._clients.get(weights) is None):
                raise
        stale = known or self._clients.get(weights)
        if stale is not None:
            self._connection.forget(stale[0])
            self._clients = {name: one for name, one in self._clients.items() if one[0] is not stale[0]}
        return await ask(weights)

    async def _made(self, weights: str | None) -> Any:
        async with self._making.setdefault(weights, asyncio.Lock()):
            if weights not in self._clients:
                connection = self._connection
                service = await connection.client()
                which = {"base_model": connection.access.base_model} if weights is None else {"model_path": weights}
                try:
                    made = await connection.asked(lambda: service.create_sampling_client(**which))
                except CloudError as error:
                    if error.kind == "missing":
                        connection.forget(service)  # the session, or the weights: the next try will tell
                        service = await connection.client()
                        made = await connection.asked(lambda: service.create_sampling_client(**which))
                    else:
                        raise
                self._clients[weights] = (service, made)
            return self._clients[weights][1]


def _floats(raw: Any) -> Floats:
    """None, where nothing was said, is NaN."""
    return np.array(raw or [], dtype=np.float32)


def _likely(raw: Any) -> tuple[Ints, Floats]:
    ids = [[token for token, _ in row] for row in raw]
    return np.array(ids, dtype=np.int64), np.array([[value for _, value in row] for row in raw], dtype=np.float32)


def _matrix(raw: Any, num_rows: int) -> Floats:
    return np.asarray(raw._numpy, dtype=np.float32).reshape(num_rows, -1)


def _tops(raw: Any, num: int) -> tuple[tuple[TokenLogprob, ...], ...]:
    return tuple(tuple(TokenLogprob(int(token), float(value)) for token, value in row[:num]) for row in raw)
