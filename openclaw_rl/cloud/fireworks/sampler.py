"""`CloudSampler` over sessions: one for each state that is asked, with its own snapshot, and one for the base model.

A version is hot-loaded by the service when it is first asked: status 425 until then. The service knows stops as words
only, so that answers are cut here, at the first token that ends one; what it drew beyond is on the bill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from openclaw_rl.cloud.fireworks.connection import FireworksLink
from openclaw_rl.cloud.fireworks.learner import resumed
from openclaw_rl.cloud.service import DrawnAnswer, Floats, Ints, SaidOf, Used
from openclaw_rl.errors import CloudError
from openclaw_rl.types import Sampling, TokenLogprob

_T = TypeVar("_T")

_LOADING = {"hotload_retry_interval": 1.0, "hotload_max_retries": 5}
"""How the SDK waits for a version that was loaded before, and is on another machine now."""
_FIRST_LOADING = {"hotload_retry_interval": 1.0, "hotload_max_retries": 300}
_SNAPSHOT = "served"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seat:
    """One state in a session: `client` reads with it, `sampler` draws."""

    session: Any
    client: Any
    sampler: Any


class FireworksSampler:
    """Seats are made when they are first asked, and again after the service forgot them."""

    def __init__(self, link: FireworksLink) -> None:
        self._link = link
        self._seats: dict[str | None, Seat] = {}
        self._making: dict[str | None, asyncio.Lock] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def open(self, weights: str | None) -> None:
        await self._seat(weights)

    async def draw(
        self, weights: str | None, prompt_ids: Sequence[int], how: Sampling, *, stop_ids: Sequence[int]
    ) -> DrawnAnswer:
        also: dict[str, Any] = {"top_p": how.top_p, "top_k": how.top_k or 0}
        if how.seed is not None:
            also["seed"] = how.seed
        if how.top_logprobs:
            also["top_logprobs"] = how.top_logprobs
        one = await self._asked(weights, prompt_ids, max_tokens=how.max_tokens, temperature=how.temperature, **also)
        said = one.full_tokens[one.prompt_len :]
        told = one.sampling_logprobs
        if told is None or len(told) != len(said) or any(value is None for value in told):
            raise CloudError(f"{self._link.access.place} sampled without log-probs", kind="failed")
        ends = next((at + 1 for at, token in enumerate(said) if token in stop_ids), None)
        kept = len(said) if ends is None else ends
        return DrawnAnswer(
            token_ids=tuple(said[:kept]),
            logprobs=tuple(told[:kept]),
            finish_reason="stop" if ends is not None or one.finish_reason != "length" else "length",
            top_logprobs=self._tops(one, how.top_logprobs, kept) if how.top_logprobs else None,
            used=Used(prefill=len(prompt_ids), sample=len(said)),
        )

    async def read(
        self, weights: str | None, ids: Sequence[int], *, last: int, likely: int = 0, chosen_RK: Ints | None = None
    ) -> SaidOf:
        """The prompt comes back with log-probs, and one token that is thrown away. Tokens that are named are read by
        the training client of the same state."""
        also: dict[str, Any] = {"echo": True, "echo_last": last}
        if likely:
            also["top_logprobs"] = likely
        one = await self._asked(weights, ids, max_tokens=1, temperature=1.0, **also)
        told = one.inference_logprobs
        if told is None or len(told) < last or any(value is None for value in told[:last]):
            raise CloudError(f"{self._link.access.place} gives no log-probs of given tokens", kind="refused")
        chosen, used = None, Used(prefill=len(ids), sample=1)
        if chosen_RK is not None:
            chosen = await self._chosen(weights, ids, chosen_RK)
            used += Used(prefill=len(ids))
        return SaidOf(
            logprobs=np.array(told[:last], dtype=np.float32),
            likely=self._likely(one, likely, last) if likely else None,
            chosen=chosen,
            used=used,
        )

    async def _chosen(self, weights: str | None, ids: Sequence[int], chosen_RK: Ints) -> Floats:
        types, last = self._link.sdk.types, len(chosen_RK)
        targets = np.zeros((len(ids) - 1, chosen_RK.shape[1]), dtype=np.int64)
        targets[-last:] = chosen_RK
        datum = types.Datum(
            model_input=types.ModelInput.from_ints(list(ids[:-1])),
            loss_fn_inputs={
                "target_tokens": types.TensorData.from_numpy(targets),
                "weights": types.TensorData.from_numpy(np.zeros(targets.shape, dtype=np.float32)),
            },
        )

        async def ask(seat: Seat) -> Any:
            return await self._link.asked(lambda: seat.client.forward([datum], "cross_entropy"))

        answer = await self._again(weights, ask)
        found: Floats = answer.loss_fn_outputs[0]["logprobs"].to_numpy().reshape(targets.shape).astype(np.float32)
        return found[-last:]

    def let_go(self, weights: str) -> None:
        self._drop(weights)

    async def close(self) -> None:
        for weights in tuple(self._seats):
            self._drop(weights)
        if self._ending:
            await asyncio.wait(self._ending, timeout=5.0)

    def _drop(self, weights: str | None) -> None:
        if (seat := self._seats.pop(weights, None)) is not None:
            ending = asyncio.ensure_future(self._link.end(seat.session))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def _asked(self, weights: str | None, ids: Sequence[int], **how: Any) -> Any:
        async def ask(seat: Seat) -> Any:
            found = await self._link.waited(
                seat.sampler.sample_with_prompt_tokens(list(ids), logprobs=True, **_LOADING, **how)
            )
            (one,) = found
            return one

        return await self._again(weights, ask)

    async def _again(self, weights: str | None, ask: Callable[[Seat], Awaitable[_T]]) -> _T:
        """Once more, in a new session, where the service has forgotten this one."""
        seat = await self._seat(weights)
        try:
            return await ask(seat)
        except CloudError as error:
            if error.kind != "missing":
                raise
        if self._seats.get(weights) is seat:
            self._drop(weights)
        return await ask(await self._seat(weights))

    async def _seat(self, weights: str | None) -> Seat:
        async with self._making.setdefault(weights, asyncio.Lock()):
            if weights not in self._seats:
                session = await self._link.session()
                try:
                    self._seats[weights] = await self._seated(session, weights)
                except BaseException:
                    self._ending.add(ending := asyncio.ensure_future(self._link.end(session)))
                    ending.add_done_callback(self._ending.discard)
                    raise
            return self._seats[weights]

    async def _seated(self, session: Any, weights: str | None) -> Seat:
        link = self._link
        if weights is None:
            base = link.access.base_model
            client = await link.asked(lambda: session.create_base_training_client(base))
            made = await link.asked(lambda: session.create_sampling_client(base_model=base))
        else:
            client = await resumed(link, session, weights)
            path = (await link.asked(lambda: client.save_weights_for_sampler(_SNAPSHOT))).path
            made = await link.asked(lambda: session.create_sampling_client(model_path=path))
        sampler = made.deployment_sampler
        await link.waited(sampler.sample_with_prompt_tokens([1], max_tokens=1, logprobs=True, **_FIRST_LOADING))
        return Seat(session=session, client=client, sampler=sampler)

    def _likely(self, one: Any, num: int, rows: int) -> tuple[Ints, Floats]:
        ids, told = one.inference_topk_token_ids, one.inference_topk_logprobs
        if ids is None or len(ids) < rows or any(len(row) < num for row in ids[:rows]):
            raise CloudError(f"{self._link.access.place} gives fewer than {num} likely tokens", kind="refused")
        cut_ids, cut_told = [row[:num] for row in ids[:rows]], [row[:num] for row in told[:rows]]
        return np.array(cut_ids, dtype=np.int64), np.array(cut_told, dtype=np.float32)

    def _tops(self, one: Any, num: int, rows: int) -> tuple[tuple[TokenLogprob, ...], ...]:
        ids_RK, told_RK = (each.tolist() for each in self._likely(one, num, rows))
        return tuple(
            tuple(TokenLogprob(token, value) for token, value in zip(ids, told, strict=True))
            for ids, told in zip(ids_RK, told_RK, strict=True)
        )
