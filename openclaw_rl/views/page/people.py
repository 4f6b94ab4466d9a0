"""Who looks at the page, and what they may see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    """Who is signed in, and what answers them."""

    user: str
    is_owner: bool
    """The owner sees every user's line; others see their own."""
    users: tuple[str, ...]
    """Whose lines can be looked at: for the owner all, the environments' (env:NAME) too."""
    model: str
    """The name that the model is served by."""
    version: str
    """The version that answers this user now; v0 is the base model."""
    languages: tuple[str, ...]
    """What the page can be read in: the names of its files i18n/*.json."""
    learns: bool
    """False where the server only answers and records (`openclaw-rl serve`)."""
    release: str
    """The release of OpenClaw-RL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkBody:
    """`link` is what stands behind #link= in the address that was printed."""

    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBody:
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """It is done."""

    ok: Literal[True] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorText:
    message: str
    """What went wrong and what to do about it, for a person."""
    type: str
    code: str | None
    """missing_session (401): sign in; not_found (404); origin_not_allowed (403); conflict (409); …"""
    param: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Every answer with a status of 400 or more."""

    error: ErrorText
