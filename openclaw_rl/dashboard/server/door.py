"""How a browser comes in: a printed link, once, or an API key -> a session cookie -> the key that it stands for.

A link lives for minutes and in memory alone. A session stands in DIR/page.json as the SHA-256 of its cookie, so that a
restart signs nobody out, and nobody who reads that file can come in. Each session stands for a key: when that is
revoked, the session is over. Knows no HTTP.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.access.auth import KeyRing

log = logging.getLogger("openclaw_rl.dashboard")

LINK_S = 900.0
"""How long a printed link can be used."""
SESSION_S = 30 * 86_400.0
"""How long a browser stays signed in."""
_MAX_LINKS, _MAX_SESSIONS = 64, 1000
"""The oldest go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSession:
    """`digest` is that of the cookie, in hex."""

    digest: str
    key_id: str
    until: float


class PageDoor:
    """`owner_key` is the id of the key whose owner the printed links let in."""

    def __init__(self, keys: KeyRing, path: Path, *, owner_key: str, clock: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._path = path
        self._owner_key = owner_key
        self._clock = clock
        self._links: dict[str, float] = {}
        self._sessions = {one.digest: one for one in _read(path) if one.until > clock()}

    def new_link(self) -> str:
        """A token that lets the owner in, once and for a while."""
        token, now = secrets.token_urlsafe(24), self._clock()
        self._links = {digest: until for digest, until in self._links.items() if until > now}
        while len(self._links) >= _MAX_LINKS:
            self._links.pop(next(iter(self._links)))
        self._links[_digest(token)] = now + LINK_S
        return token

    def use_link(self, token: str) -> str:
        """A cookie for a link, which is dead from then on."""
        until = self._links.pop(_digest(token), None)
        if until is None or until <= self._clock():
            raise RequestError(
                "this link was used already, or is too old; `openclaw-rl page` prints a new one",
                status=401,
                code="dead_link",
            )
        return self._open(self._owner_key)

    def sign_in(self, secret: str) -> str:
        """A cookie for an API key."""
        key = self._keys.key({"authorization": f"Bearer {secret.strip()}"})
        if self._keys.person_key(key.id) is None:
            raise RequestError("the key of an attempt at a task opens no page", status=403, code="not_allowed")
        return self._open(key.id)

    def key_of(self, cookie: str | None) -> str | None:
        """The id of the key that a cookie stands for; None if it is nobody's, or over."""
        found = None if cookie is None else self._sessions.get(_digest(cookie))
        return None if found is None or found.until <= self._clock() else found.key_id

    def sign_out(self, cookie: str | None) -> None:
        if cookie is not None and self._sessions.pop(_digest(cookie), None) is not None:
            self._write()

    def _open(self, key_id: str) -> str:
        cookie, now = secrets.token_urlsafe(32), self._clock()
        digest = _digest(cookie)
        self._sessions = {name: one for name, one in self._sessions.items() if one.until > now}
        while len(self._sessions) >= _MAX_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        self._sessions[digest] = PageSession(digest=digest, key_id=key_id, until=now + SESSION_S)
        self._write()
        return cookie

    def _write(self) -> None:
        """Never half a file. A full disk ends no session: this process knows it, and the next one asks again."""
        scratch = self._path.with_suffix(".new")
        try:
            descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(orjson.dumps([asdict(one) for one in self._sessions.values()]))
            scratch.replace(self._path)
        except OSError as error:
            log.warning("who is signed in to the page is not kept for the next start: %s", error.strerror)


def _read(path: Path) -> list[PageSession]:
    """Who was signed in; nobody if the file is none of ours."""
    try:
        return [PageSession(**one) for one in orjson.loads(path.read_bytes())]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        log.warning("%s cannot be read, so everybody signs in to the page again: %s", path, error)
        return []


def _digest(secret: str) -> str:
    """They are random and long, so one plain SHA-256 is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
