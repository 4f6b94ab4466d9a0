"""An address -> the `Engine` protocol, for the control process.

Speaks the wire format of our `server.py`. Knows nothing of processes: whether and when a dead worker comes back is the
supervisor's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from pathlib import Path

from openclaw_rl.engine.worker import wire
from openclaw_rl.engine.worker.connections import Connections
from openclaw_rl.types import (
    Delta,
    EngineState,
    GenerateRequest,
    Hidden,
    HiddenRequest,
    Json,
    Publication,
    Scored,
    ScoreRequest,
)

_GENERATE = "POST /inference/v1/generate"
_SCORE = "POST /inference/v1/score"
_HIDDEN = "POST /inference/v1/hidden"
_PUBLISH = "POST /v1/versions/publish"
_RETIRE = "POST /v1/versions/retire"
_FORGET_CACHE = "POST /v1/cache/forget"
_HEALTH = "GET /health"


class SocketEngine:
    """An engine behind a Unix socket (a path) or a base URL (`http://host:8000`). Made and closed inside a running
    event loop.

    Closing the iterator of `generate`, or cancelling any other call, closes its connection, which the worker takes as a
    cancellation. Nothing here has a time limit: loading a version may take minutes.
    """

    def __init__(self, address: Path | str) -> None:
        self._connections = Connections(address)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """Deltas until one with a finish reason; tokens that were already waiting come as one delta."""
        body = wire.dumps(wire.request_to_json(request))
        async with aclosing(self._connections.events(_GENERATE, body, is_last=_is_last)) as batches:
            async for events in batches:
                for delta in wire.coalesce(map(wire.delta_from_json, events)):
                    yield delta

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        """The log-probs of every sequence."""
        body = await self._connections.fetch(_SCORE, wire.dumps(wire.score_request_to_json(request)))
        # In a thread: 8192 positions with top-20 take 0.15 s to read, and others are served here meanwhile.
        return await asyncio.to_thread(lambda: wire.scores_from_json(wire.loads(body)))

    async def hidden(self, request: HiddenRequest) -> tuple[Hidden, ...]:
        """The base model's hidden states."""
        body = await self._connections.fetch(_HIDDEN, wire.dumps(wire.hidden_request_to_json(request)))
        return await asyncio.to_thread(lambda: wire.hidden_from_json(wire.loads(body)))

    async def publish(self, publication: Publication) -> None:
        """Returns when the version is loaded; if the connection breaks before, it may be loaded or not."""
        await self._connections.fetch(_PUBLISH, wire.dumps(wire.publication_to_json(publication)))

    async def retire(self, version: str) -> None:
        """Returns when the version takes no more requests."""
        await self._connections.fetch(_RETIRE, wire.dumps({"version": version}))

    async def forget_cache(self, salts: Collection[str]) -> None:
        """Returns when no request finds what these salts left."""
        await self._connections.fetch(_FORGET_CACHE, wire.dumps(wire.salts_to_json(salts)))

    async def state(self) -> EngineState:
        """What the worker says about itself; `EngineLost` when it does not answer."""
        return wire.state_from_json(wire.loads(await self._connections.fetch(_HEALTH)))

    async def close(self) -> None:
        """Closes the connections that nobody uses; the others are closed by who uses them."""
        self._connections.close()


def _is_last(event: Json) -> bool:
    return event["choices"][0]["finish_reason"] is not None
