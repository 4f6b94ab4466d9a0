"""What the page hears while it is open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from openclaw_rl.views.page.corrections import Correction


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveHello:
    """First of all, and after every reconnection: whatever is shown may be old."""

    event: Literal["hello"] = "hello"
    version: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCorrection:
    """The state of a correction has changed."""

    event: Literal["correction"] = "correction"
    session: str
    user: str
    correction: Correction


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveVersion:
    """A version was made, checked, put live or taken back; `answers` is what answers the user from now on."""

    event: Literal["version"] = "version"
    user: str
    version: str
    state: str
    answers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTurn:
    """A turn was stored, by whatever client."""

    event: Literal["turn"] = "turn"
    user: str
    session: str
    turn: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMachine:
    """Something of the machine has changed: ask /ui/api/machine, at most once a second."""

    event: Literal["machine"] = "machine"
