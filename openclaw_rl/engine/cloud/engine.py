"""A `CloudSampler` -> the `Engine` protocol: which version is which snapshot there, what is live, what it costs.

Publishing opens a snapshot, and then moves a name: requests that run keep the sampler they began with. Nothing is ever
loaded under a name twice. The service does not stream, so that an answer is one delta. Knows no SDK.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from openclaw_rl.cloud.bill import Till
from openclaw_rl.cloud.service import Abilities, CloudSampler, SaidOf
from openclaw_rl.engine.worker.admission import admit, admit_publication, admit_retirement, admit_score
from openclaw_rl.errors import CloudError, EngineRefused
from openclaw_rl.types import (
    BACKGROUND,
    BASE_VERSION,
    Delta,
    EngineState,
    GenerateRequest,
    Publication,
    Scored,
    ScoreRequest,
    TokenLogprob,
)

_log = logging.getLogger(__name__)

_PASSING = ("away", "busy", "billing", "key", "failed")
"""Kinds of trouble that are not the request's: it waits, or is sent again."""
_SHAPED = ("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias")
"""Ways to sample that services do not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FarModel:
    """What of a model's files an engine needs that has no weights here."""

    name: str
    vocab_size: int
    stop_ids: tuple[int, ...]


class CloudEngine:
    """An `Engine` over a service. `close_service` ends what the sampler belongs to."""

    def __init__(
        self,
        sampler: CloudSampler,
        abilities: Abilities,
        model: FarModel,
        *,
        place: str,
        till: Till,
        max_active: int,
        close_service: Callable[[], Awaitable[None]],
        context_window: int | None = None,
    ) -> None:
        self._sampler = sampler
        self._abilities = abilities
        self._model = model
        self._place = place
        self._till = till
        self._close_service = close_service
        self._window = min(abilities.context_window, context_window or abilities.context_window)
        self._weights: dict[str, str | None] = {BASE_VERSION: None}
        """By version: what the service calls it; the base model has no name."""
        self._live = BASE_VERSION
        self._background = asyncio.Semaphore(max(1, max_active // 2))
        """What nobody waits for leaves places to who does."""
        self._publishing = asyncio.Lock()
        self._known: dict[str, str | None] = {BASE_VERSION: None}
        """The same of every version that ever was there: a label names the same weights for ever."""
        self._running: Counter[str | None] = Counter()
        """Requests by the weights that they began with."""

    async def state(self) -> EngineState:
        return EngineState(
            model=self._model.name,
            versions=tuple(self._weights),
            live_version=self._live,
            context_window=self._window,
            vocab_size=self._model.vocab_size,
            device=self._place,
            dtype="as served",
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """One delta, with all of the answer."""
        label, max_tokens = admit(request, await self.state())
        most = min(request.sampling.top_logprobs, self._abilities.alternatives)  # who asks us for more was refused
        how = replace(request.sampling, max_tokens=max_tokens, top_logprobs=most)
        if bent := [name for name in _SHAPED if name in how.shaping]:
            raise EngineRefused(f"{self._place} does not know {', '.join(bent)}; leave it out", code="not_supported")
        with self._holding(label) as weights:
            async with self._background if request.priority >= BACKGROUND else nullcontext():
                with self._told(label):
                    drawn = await self._sampler.draw(
                        weights, request.token_ids, how, stop_ids=request.stop_token_ids or self._model.stop_ids
                    )
        self._till.add(drawn.used, by="engine")
        yield Delta(
            token_ids=drawn.token_ids,
            logprobs=drawn.logprobs,
            version=label,
            top_logprobs=drawn.top_logprobs,
            finish_reason=drawn.finish_reason,
        )

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        """At T = 1: a service knows no other for what is already there."""
        label = admit_score(request, await self.state())
        if request.temperature != 1.0:
            raise EngineRefused(
                f"{self._place} scores at temperature 1 only, got {request.temperature:g}", code="not_supported"
            )

        async def one(weights: str | None, ids: tuple[int, ...], start: int) -> Scored:
            async with self._background:
                with self._told(label):
                    found = await self._sampler.read(weights, ids, last=len(ids) - start, likely=request.top_logprobs)
            self._till.add(found.used, by="engine")
            return Scored(logprobs=tuple(found.logprobs.tolist()), top_logprobs=_tops(found))

        with self._holding(label) as weights:
            try:
                async with asyncio.TaskGroup() as group:
                    asked = zip(request.sequences, request.starts, strict=True)
                    tasks = [group.create_task(one(weights, ids, start)) for ids, start in asked]
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from None
        return tuple(task.result() for task in tasks)

    async def publish(self, publication: Publication) -> None:
        """Opens the snapshot; only then the version is there, and live if that was wished."""
        async with self._publishing:
            label, uri = publication.version, None if publication.weights is None else publication.weights.uri
            if self._known.get(label, uri) != uri:
                raise EngineRefused(
                    f"version {label} is {self._known[label]} and cannot become {uri}: a label names the same weights "
                    "for ever",
                    status=409,
                    code="version_conflict",
                )
            if admit_publication(publication, dict.fromkeys(self._weights, publication.sha256)):
                if publication.weights is None or publication.weights.folder is not None:
                    raise EngineRefused(
                        f"version {label} is at {uri or 'no place'}, and {self._place} serves what it trained itself: "
                        "begin anew with another store.data_dir, or serve with the engine that it was made for",
                        code="version_unreadable",
                    )
                with self._told(label):
                    await self._sampler.open(uri)
                self._known[label] = self._weights[label] = uri
            if publication.live:
                self._live = label

    async def retire(self, version: str) -> None:
        """New requests no longer find the version; its client goes with the last one that asks it."""
        admit_retirement(version, await self.state())
        uri = self._weights.pop(version)
        if uri is not None and not self._running[uri]:
            self._sampler.let_go(uri)

    async def forget_cache(self, salts: Collection[str]) -> None:
        """What a service caches is its own matter, and no request of ours finds what others left."""

    async def close(self) -> None:
        await self._sampler.close()
        await self._close_service()

    @contextmanager
    def _holding(self, label: str) -> Iterator[str | None]:
        uri = self._weights[label]
        self._running[uri] += 1
        try:
            yield uri
        finally:
            self._running[uri] -= 1
            if uri is not None and not self._running[uri] and uri not in self._weights.values():
                self._sampler.let_go(uri)

    @contextmanager
    def _told(self, label: str) -> Iterator[None]:
        """A service's trouble as an engine's: what passes is a 503, and what will be refused again is not."""
        try:
            yield
        except CloudError as error:
            _log.warning("the service did not answer as asked", extra={"kind": error.kind, "reason": str(error)})
            if error.kind in _PASSING:
                raise EngineRefused(str(error), status=503, code=f"service_{error.kind}") from error
            if error.kind == "missing":
                raise EngineRefused(f"version {label}: {error}", status=410, code="version_unreadable") from error
            raise EngineRefused(str(error), code="service_refused") from error


def _tops(found: SaidOf) -> tuple[tuple[TokenLogprob, ...], ...] | None:
    if found.likely is None:
        return None
    ids_RK, logprobs_RK = (one.tolist() for one in found.likely)
    return tuple(
        tuple(TokenLogprob(token, value) for token, value in zip(ids, values, strict=True))
        for ids, values in zip(ids_RK, logprobs_RK, strict=True)
    )
