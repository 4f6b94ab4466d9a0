"""How a JSON-RPC message gets to a server, and its answer back. It knows nothing of what messages mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from openclaw_rl.errors import EnvError
from openclaw_rl.types import Json

MAX_ANSWER_BYTES = 4 << 20


class WireBroken(EnvError):
    """No answer comes any more: the server died, hangs, or says nothing of sense."""


class AnswerLate(WireBroken):
    """No answer came in time. The server may still be at work on it."""


class McpWire(Protocol):
    """One server. `WireBroken` where no answer comes."""

    async def open(self) -> None: ...

    async def exchange(
        self, message: Mapping[str, Json], *, timeout_s: float, headers: Mapping[str, str]
    ) -> Mapping[str, Json] | None:
        """The answer with the message's id; None to a message without one. `headers` go along over HTTP."""
        ...

    async def close(self) -> None:
        """Nothing of the connection is left. May be called twice."""
        ...
