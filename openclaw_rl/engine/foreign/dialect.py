"""How a server of others is asked: routes, bodies and answers of one kind of server. Pure; the engine sends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from openclaw_rl.engine.worker.connections import Connections
from openclaw_rl.types import Delta, GenerateRequest, Json, Scored, ScoreRequest

COLDEST = 0.01
"""Below it both kinds of server sample at another temperature than they were told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A route and what is posted to it; no body is a GET."""

    route: str
    body: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server says about itself. `model` is the base model's name there, `origin` where it was loaded from."""

    version: str
    model: str
    origin: str
    context_window: int
    weights: str = ""
    """The server's own label of its base weights, which changes when somebody pushes others into it."""


class StreamReader(Protocol):
    """The events of one answer -> deltas. `EngineError` for an answer that is not exact."""

    def read(self, event: Json) -> Delta | None: ...

    def is_last(self, event: Json) -> bool: ...


class ServerDialect(Protocol):
    """One kind of server."""

    name: str
    """As people call it."""
    pip_name: str
    oldest: tuple[int, ...]
    """The oldest version that has all that is asked of it."""
    key_variable: str
    """The environment variable by which one of ours learns its key: arguments are seen by all users."""
    lora_flags: str
    """What makes it load adapters while it runs."""
    logprobs_changed_by: frozenset[str]
    """As in `Capabilities`."""

    def generate(self, request: GenerateRequest, *, model: str, base: str, max_tokens: int, salt: str) -> Asking: ...

    def reader(self, request: GenerateRequest, *, version: str) -> StreamReader: ...

    def score(self, request: ScoreRequest, number: int, *, model: str, base: str, salt: str) -> Asking:
        """About one of the sequences."""
        ...

    def scored(self, raw: Json, ids: Sequence[int], start: int, *, top: int) -> Scored: ...

    def load(self, name: str, folder: Path) -> Asking: ...

    def unload(self, name: str) -> Asking: ...

    async def facts(self, connections: Connections) -> ServerFacts | None:
        """None while the server still loads its model. `ConfigError` if it is no such server."""
        ...

    async def check(self, connections: Connections, facts: ServerFacts) -> None:
        """`ConfigError`, with the flag to change, where it does not do what is asked of it."""
        ...
