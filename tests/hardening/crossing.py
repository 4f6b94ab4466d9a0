"""Every route with every name of another user's things in every place: nothing of his comes back or changes.

The routes are read off the application. One that has no `BODIES` entry fails: whoever adds a route says here what a
request to it looks like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import httpx

from openclaw_rl.config import GatewayConfig
from openclaw_rl.gateway.access.auth import KeyRing
from openclaw_rl.gateway.api.admin import build_admin
from openclaw_rl.gateway.api.app import App
from openclaw_rl.gateway.api.metrics import Metrics
from openclaw_rl.gateway.api.openapi import OPERATIONS, Operation
from openclaw_rl.types import Json
from tests.server import Server
from tests.wire.asking import CHAT, Admin, reader, user

MARKER = "marker-of-ann-7731"
TEXT = "what is the weather"
BODIES: Mapping[str, dict[str, Json] | None] = {
    CHAT: {"messages": [user(TEXT)], "max_tokens": 8},
    "/v1/responses": {"input": TEXT, "max_output_tokens": 8},
    "/v1/responses/{id}": None,
    "/v1/messages": {"messages": [user(TEXT)], "max_tokens": 8},
    "/v1/messages/count_tokens": {"messages": [user(TEXT)]},
    "/v1/feedback": {"turn_id": "nobody.0", "score": 1},
    "/v1/sessions/{name}/done": {},
    "/rollout": {"session_id": "nobody"},
    "/v1/rollouts": None,
    "/v1/models": None,
    "/v1/models/{name}": None,
    "/healthz": None,
    "/api/hello": None,
    "/readyz": None,
    "/metrics": None,
    "/openapi.json": None,
}
"""A request that is right, of each route; None: it has no body."""
HEADERS = (
    *("X-Session-Id", "X-Session-Affinity", "Session-Id", "Session_Id", "X-Claude-Code-Session-Id", "X-Session-Key"),
    *("Idempotency-Key", "X-Request-Id", "X-OpenClaw-RL-Turn", "X-OpenClaw-RL-Version", "X-Api-Key"),
)
SLOW = ("wait_s", "limit", "stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One request: `what` is tried `where`."""

    what: str
    where: str
    verb: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Json = None


class Household:
    """A server on which ann has everything that can be named, and bob is curious."""

    def __init__(self, server: Server) -> None:
        self.server = server
        with Admin(server) as admin:
            self.ann_key_id, self._ann = admin.add_key("ann")
            _, self.bob = admin.add_key("bob")
        self._client = httpx.Client(base_url=server.url, timeout=60)
        self.names = self._furnish()

    def _ask(self, path: str, body: Json, **headers: str) -> httpx.Response:
        answer = self._client.post(path, json=body, headers={"Authorization": f"Bearer {self._ann}", **headers})
        assert answer.status_code == 200, answer.text
        return answer

    def _furnish(self) -> dict[str, str]:
        """What ann's things are called."""
        secret = f"keep {MARKER} to yourself"
        named = self._ask(CHAT, {"messages": [user(secret)]}, **{"X-Session-Id": "diary"})
        said = named.json()["choices"][0]["message"]
        more = [user(secret), said, user(f"thanks, {MARKER}")]
        self._ask(CHAT, {"messages": more}, **{"X-Session-Id": "diary", "Idempotency-Key": "ann-once"})
        unnamed = self._ask("/v1/responses", {"input": secret})
        hidden = self._ask("/v1/responses", {"input": f"between us: {MARKER}", "store": False})
        turn = named.headers["X-OpenClaw-RL-Turn"]
        self._ask("/v1/feedback", {"turn_id": turn, "score": 1, "text": MARKER})
        page = self._client.get("/v1/rollouts", headers={"Authorization": f"Bearer {self._ann}"}).json()
        other = unnamed.headers["X-OpenClaw-RL-Turn"]
        return {
            "session name": "diary",
            "session id": turn.rpartition(".")[0],
            "unnamed session id": other.rpartition(".")[0],
            "turn id": turn,
            "unnamed turn id": other,
            "response id": unnamed.json()["id"],
            "hidden response id": hidden.json()["id"],
            "key id": self.ann_key_id,
            "user": "ann",
            "version": "v1.ann",
            "pin": "any@v1.ann",
            "cursor": page["cursor"],
            "idempotency key": "ann-once",
        }

    def state(self) -> list[str]:
        """All that is ann's, as it is stored."""
        rows = reader(self.server)
        mine = [summary.session for summary in rows.sessions() if summary.session.user == "ann"]
        return sorted(repr((session, rows.records(session.id))) for session in mine)

    def attempts(self, operation: Operation) -> Iterator[Attempt]:
        """Each name in each place of a request to this route."""
        body = BODIES[operation.path]
        fields = () if operation.body is None else operation.body.model_json_schema(by_alias=True)["properties"]
        queries = () if operation.query is None else operation.query.model_json_schema()["properties"]
        for what, name in self.names.items():
            path = re.sub(r"\{\w+\}", quote(name, safe=""), operation.path)
            common: dict[str, Any] = {"what": what, "verb": operation.verb.upper(), "path": path}
            yield Attempt(where="the path", body=body, **common)
            for header in HEADERS:
                yield Attempt(where=header, headers={header: name}, body=body, **common)
            for query in (*(one for one in queries if one not in SLOW), "user", "session_id", "id"):
                yield Attempt(where=f"?{query}", query={query: name}, body=body, **common)
            if body is None:
                continue
            for one in (*fields, "user", "session_id", "metadata", "prompt_cache_key"):
                value: Json = {"user_id": name, "session_id": name} if one == "metadata" else name
                yield Attempt(where=one, body={**body, one: value}, **common)

    def check(self, attempt: Attempt, key: str | None) -> None:
        """Sends it; what comes back is bob's own, or a refusal."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        answer = self._client.request(
            attempt.verb,
            attempt.path,
            params=attempt.query or None,
            json=attempt.body,
            headers={**headers, **attempt.headers},
        )
        told = f"{attempt.verb} {attempt.path}: {attempt.what} in {attempt.where} got {answer.status_code}"
        assert answer.status_code < 500, f"{told}: {answer.text[:300]}"
        shown = answer.text + repr(answer.headers)
        assert MARKER not in shown, told
        turn = answer.headers.get("X-OpenClaw-RL-Turn")
        assert turn is None or turn.startswith("bob/"), f"{told}: {turn}"
        if key != self.bob and answer.status_code < 400:
            others = {"session id", "unnamed session id"} - {attempt.what}  # what was sent may come back
            assert all(self.names[one] not in shown for one in others), told

    def close(self) -> None:
        self._client.close()


def routes() -> set[tuple[str, str]]:
    """Every verb and path of the application, read off its router."""
    app = App(
        cast("Any", None),
        GatewayConfig(),
        model="m",
        keys=KeyRing([]),
        metrics=Metrics(),
        host=cast("Any", None),
    ).build()
    found = {(route.method.lower(), canonical(route)) for route in app.router.routes()}
    return {one for one in found if one[0] != "head"}


def admin_paths() -> set[str]:
    """The paths of the admin socket, which nobody reaches over HTTP."""
    anything = cast("Any", SimpleNamespace())
    app = build_admin(anything, KeyRing([]), anything, anything, examine=anything, commands=anything)
    return {canonical(route) for route in app.router.routes()}


def canonical(route: Any) -> str:
    return re.sub(r":[^}]*", "", route.resource.canonical)


def cross(household: Household, *, every: int) -> int:
    """Tries everything, or one in `every`; how many requests it took."""
    before, count = household.state(), 0
    for operation in OPERATIONS:
        for number, attempt in enumerate(household.attempts(operation)):
            callers = (household.bob, None, "wrong") if every == 1 else (household.bob,)
            for key in callers if number % every == 0 else ():
                household.check(attempt, key)
                count += 1
    assert household.state() == before, "something of ann's was changed"
    return count
