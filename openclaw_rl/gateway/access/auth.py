"""Keys and doors: who is asking, and whether a browser page of somebody else's is behind it.

Turns headers into a user. Keys exist here only as SHA-256 digests; the one plain copy is the local user's key file.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import os
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from openclaw_rl.errors import ConfigError, RequestError
from openclaw_rl.types import USER_NAME, ApiKey, AtWork, KeyTerms, terms_of_user

REVOKED = "that API key was revoked"
"""What a client hears whose key is taken away while it is answered."""

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class KeyRing:
    """The keys that open the gateway. Look-up is by digest, so no comparison depends on the secret's characters."""

    def __init__(self, keys: Iterable[ApiKey] = ()) -> None:
        self._keys: dict[bytes, ApiKey] = {}
        self._terms: defaultdict[str, dict[str, KeyTerms]] = defaultdict(dict)
        """By user and key, as they are asked for with every request."""
        self._at_work: dict[str, AtWork] = {}
        self._visits: defaultdict[str, set[Visit]] = defaultdict(set)
        for key in keys:
            self.add(key)

    def add(self, key: ApiKey, at_work: AtWork | None = None) -> None:
        """`at_work`: the key is that of an attempt at a task."""
        if key.revoked_at is None:
            self._keys[key.digest] = key
            self._terms[key.user][key.id] = key.terms
            if at_work is not None:
                self._at_work[key.id] = at_work

    def change(self, key_id: str, terms: KeyTerms) -> bool:
        """A key has other terms from its next request on; False if there is none of that id."""
        found = [digest for digest, key in self._keys.items() if key.id == key_id]
        for digest in found:
            key = self._keys[digest] = replace(self._keys[digest], terms=terms)
            self._terms[key.user][key_id] = terms
        return bool(found)

    def terms_of(self, user: str) -> KeyTerms:
        """What the keys of a user say of him together."""
        return terms_of_user(self._terms[user].values()) if user in self._terms else KeyTerms()

    def remove(self, key_id: str) -> bool:
        """Closes the door for a key, and sends out whoever came in with it; False if there is none of that id."""
        found = [digest for digest, key in self._keys.items() if key.id == key_id]
        for digest in found:
            user = self._keys.pop(digest).user
            self._terms[user].pop(key_id)
            if not self._terms[user]:
                del self._terms[user]
        self._at_work.pop(key_id, None)
        for visit in tuple(self._visits.get(key_id, ())):
            visit.end()
        return bool(found)

    def user(self, headers: Mapping[str, str]) -> str:
        """The user behind `Authorization: Bearer` or `x-api-key`, or a 401."""
        return self.key(headers).user

    @asynccontextmanager
    async def visit(self) -> AsyncIterator[Visit]:
        """One request: a 401 ends it in its middle when the key that it came in with is revoked."""
        visit = Visit(self)
        try:
            async with visit.until_revoked:
                yield visit
        except TimeoutError:
            if not visit.is_over:
                raise
            raise RequestError(REVOKED, status=401, code="invalid_api_key") from None
        finally:
            if visit.key_id is not None:
                visits = self._visits[visit.key_id]
                visits.discard(visit)
                if not visits:
                    del self._visits[visit.key_id]

    def enter(self, visit: Visit, headers: Mapping[str, str]) -> str:
        """Lets a visit in with the key that it shows; its user, or a 401."""
        return self._let_in(visit, self.key(headers))

    def enter_as(self, visit: Visit, key_id: str) -> str | None:
        """Lets a visit in with the key of this id, which it has shown before; None if that opens nothing any more."""
        key = self.person_key(key_id)
        return None if key is None else self._let_in(visit, key)

    def person_key(self, key_id: str) -> ApiKey | None:
        """The key of this id if it opens, and is no attempt's."""
        if key_id in self._at_work:
            return None
        return next((key for key in self._keys.values() if key.id == key_id), None)

    def users(self) -> list[str]:
        """Everybody whose key opens; agents at work are nobody's users."""
        return sorted({key.user for key in self._keys.values() if key.id not in self._at_work})

    def _let_in(self, visit: Visit, key: ApiKey) -> str:
        visit.key_id, visit.at_work = key.id, self._at_work.get(key.id)
        visit.key = key
        self._visits[key.id].add(visit)
        return key.user

    def is_at_work(self, headers: Mapping[str, str]) -> bool:
        """Whether the key that is shown, if any, is that of an attempt."""
        secret = presented_key(headers) if self._at_work else None
        key = None if secret is None else self._keys.get(key_digest(secret))
        return key is not None and key.id in self._at_work

    def key(self, headers: Mapping[str, str]) -> ApiKey:
        """The key that is shown, if it opens; else a 401."""
        secret = presented_key(headers)
        if secret is None:
            raise RequestError(
                "no API key; send it as 'Authorization: Bearer KEY' (yours is in the file `key` of the data directory)",
                status=401,
                code="missing_api_key",
            )
        digest = key_digest(secret)
        key = self._keys.get(digest)
        if key is None or not hmac.compare_digest(key.digest, digest):
            raise RequestError("that API key is not known here", status=401, code="invalid_api_key")
        return key


class Visit:
    """A request from its arrival to its end. `at_work`: the attempt that its key belongs to."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self.until_revoked = asyncio.timeout(None)
        self.key_id: str | None = None
        self.key: ApiKey | None = None
        self.at_work: AtWork | None = None
        self.is_over = False

    def enter(self, headers: Mapping[str, str]) -> str:
        """The user of the key that is shown, or a 401."""
        return self._ring.enter(self, headers)

    def enter_as(self, key_id: str) -> str | None:
        """The user of the key of this id; None if it opens nothing any more."""
        return self._ring.enter_as(self, key_id)

    def end(self) -> None:
        """Cancels what the request is at."""
        if self.is_over:
            return
        self.is_over = True
        self.until_revoked.reschedule(asyncio.get_running_loop().time())


def presented_key(headers: Mapping[str, str]) -> str | None:
    """The key a client shows, under either of the two names clients use."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key") or None


def key_digest(secret: str) -> bytes:
    """What is stored of a key: it is random and long, so one plain SHA-256 is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def new_key(
    user: str, now: float, *, label: str = "", secret: str | None = None, terms: KeyTerms | None = None
) -> tuple[ApiKey, str]:
    """A key for a user, and the secret that is shown once. No user can be called like a line of another kind."""
    if not USER_NAME.fullmatch(user):
        raise ConfigError(f"a user name has 1 to 64 of A-Z a-z 0-9 _ . -; got {user!r}")
    secret = secret or f"ocrl-{secrets.token_urlsafe(32)}"
    digest = key_digest(secret)
    key_id = f"k-{digest[:6].hex()}"
    key = ApiKey(id=key_id, user=user, digest=digest, created_at=now, label=label, terms=terms or KeyTerms())
    return key, secret


def read_key_file(path: Path) -> str | None:
    """The local user's secret, if there is one yet."""
    try:
        return path.read_text().strip() or None
    except FileNotFoundError:
        return None


def write_key_file(path: Path, secret: str) -> None:
    """Puts the local user's secret where only he can read it; never half a key."""
    scratch = path.with_suffix(".new")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret + "\n")
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def is_loopback(host: str) -> bool:
    """Whether an address to bind to is reachable from this machine alone."""
    if host in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_binding(host: str, *, require_key: bool) -> None:
    """Refuses to serve strangers without a key."""
    if not require_key and not is_loopback(host):
        raise ConfigError(
            f"gateway.host is {host}, which other machines can reach, but gateway.require_key is false; "
            "set gateway.require_key=true or bind to 127.0.0.1"
        )


class Doorkeeper:
    """Checks Host and Origin of every request, whatever its route and verb, against DNS rebinding and other sites."""

    def __init__(self, *, host: str, allowed_hosts: Iterable[str], allowed_origins: Iterable[str]) -> None:
        self._hosts = _LOOPBACK_NAMES | {host.lower()} | {h.lower() for h in allowed_hosts}
        self._origins = frozenset(o.lower().rstrip("/") for o in allowed_origins)

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises a 403 for a Host or an Origin that is not ours."""
        host = _netloc(f"//{headers.get('host', '')}")
        if host is None or host[0] not in self._hosts:
            raise RequestError(
                "this Host is not served here; use 127.0.0.1 or localhost, or add it to gateway.allowed_hosts",
                status=403,
                code="host_not_allowed",
            )
        origin = headers.get("origin")
        if origin is None or origin.lower().rstrip("/") in self._origins:
            return
        if not origin.startswith(("http://", "https://")) or _netloc(origin) != host:
            raise RequestError(
                "pages of this origin may not call this server; add it to gateway.allowed_origins if they should",
                status=403,
                code="origin_not_allowed",
            )


def _netloc(url: str) -> tuple[str, int | None] | None:
    """Host and port of a URL that has nothing else in it, or None."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.hostname is None or parts.username is not None or parts.path not in ("", "/") or parts.query:
        return None
    return parts.hostname, port
