"""Who may ask for which version, over HTTP: the app, the real store and the scripted engine in this process."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp.test_utils import TestServer

from openclaw_rl.config import GatewayConfig
from openclaw_rl.engine.scripted import ScriptedEngine, ScriptedOptions
from openclaw_rl.engine.worker.hosts import SCRIPTED
from openclaw_rl.gateway.access.auth import KeyRing, new_key
from openclaw_rl.gateway.answer.exchange import Background, Gateway
from openclaw_rl.gateway.answer.memory import TokenMemory
from openclaw_rl.gateway.api.app import App
from openclaw_rl.gateway.api.metrics import Metrics
from openclaw_rl.gateway.sessions.placement import Sessions
from openclaw_rl.protocols import Renderer
from openclaw_rl.store import SqliteStore
from tests.fakes.hosts import AlwaysThere

LOADED = ("v1", "v12", "v3.ann", "v7.mallory", "vnext", "v0")
"""Of the local user, of two others, and of nobody. The last one is live."""
MINE = {"local": ["v1", "v12", "v0"], "ann": ["v3.ann", "v0"], "mallory": ["v7.mallory", "v0"], "new": ["v0"]}
KEYS = {user: new_key(user, 1.0) for user in MINE}

DIALECTS: Mapping[str, Mapping[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
    "/v1/responses": {"input": "hi"},
}
each_dialect = pytest.mark.parametrize("path", DIALECTS)
streamed_or_not = pytest.mark.parametrize("stream", [False, True])


@pytest.fixture
async def gateway(tmp_path: Path, model: Path, renderer: Renderer) -> AsyncIterator[Gateway]:
    async with await SqliteStore.open(tmp_path / "data") as store:
        background, numbers = Background(), itertools.count(1)
        yield Gateway(
            engine=ScriptedEngine(model, ScriptedOptions(tokens_per_s=0, versions=LOADED)),
            renderer=renderer,
            store=store,
            sessions=Sessions(timeout_s=60, new_id=lambda: f"s{next(numbers)}"),
            memory=TokenMemory(store.get_turn, model_id="tiny#1"),
            background=background,
            model_id="tiny#1",
        )
        await background.drain()


class Door:
    """The app over a gateway; requests are sent with a user's key, or with none."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def get(self, path: str, user: str | None) -> httpx.Response:
        return await self._client.get(path, headers=_key_of(user))

    async def ask(self, path: str, user: str, model: str, *, stream: bool = False) -> httpx.Response:
        return await self.post(path, user, {"model": model, "stream": stream, **DIALECTS[path]})

    async def post(self, path: str, user: str, body: dict[str, Any]) -> httpx.Response:
        return await self._client.post(path, json=body, headers=_key_of(user))

    async def listed(self, user: str | None) -> list[str]:
        models = (await self.get("/v1/models", user)).raise_for_status().json()["data"]
        return [model["id"] for model in models]


def _key_of(user: str | None) -> dict[str, str]:
    return {} if user is None else {"x-api-key": KEYS[user][1]}


@asynccontextmanager
async def opened(gateway: Gateway, **config: Any) -> AsyncIterator[Door]:
    state = await gateway.engine.state()
    app = App(
        gateway,
        GatewayConfig(**config),
        model="tiny",
        keys=KeyRing(key for key, _ in KEYS.values()),
        metrics=Metrics(),
        host=AlwaysThere(gateway.engine, state),
    )
    async with (
        TestServer(app.build()) as server,
        httpx.AsyncClient(base_url=str(server.make_url("/"))) as client,
    ):
        yield Door(client)


@pytest.fixture
async def door(gateway: Gateway) -> AsyncIterator[Door]:
    async with opened(gateway) as made:
        yield made


@each_dialect
@streamed_or_not
@pytest.mark.parametrize("user", MINE)
async def test_everybody_may_ask_for_the_own_versions_and_for_the_base(
    door: Door, path: str, stream: bool, user: str
) -> None:
    for label in MINE[user]:
        for version in (label, label.removeprefix("v")):
            answer = await door.ask(path, user, f"tiny@{version}", stream=stream)
            assert (answer.status_code, answer.headers["X-OpenClaw-RL-Version"]) == (200, label)


@each_dialect
@pytest.mark.parametrize("user", MINE)
async def test_a_version_of_somebody_else_is_as_one_that_is_not_there(door: Door, path: str, user: str) -> None:
    missing = await door.ask(path, user, "tiny@v999")
    assert missing.status_code == 404
    for label in set(LOADED) - set(MINE[user]):
        for version in (label, label.removeprefix("v")):
            theirs = await door.ask(path, user, f"tiny@{version}")
            assert theirs.status_code == 404
            assert theirs.text == missing.text.replace("v999", version)
    assert not names_others(missing.text, user)


@pytest.mark.parametrize("user", MINE)
async def test_models_are_the_own_ones(door: Door, user: str) -> None:
    assert await door.listed(user) == ["tiny", *(f"tiny@{label}" for label in MINE[user])]
    for label in MINE[user]:
        assert (await door.get(f"/v1/models/tiny@{label}", user)).json()["id"] == f"tiny@{label}"
    missing = await door.get("/v1/models/tiny@v999", user)
    assert missing.status_code == 404
    for label in set(LOADED) - set(MINE[user]):
        theirs = await door.get(f"/v1/models/tiny@{label}", user)
        assert (theirs.status_code, theirs.text) == (404, missing.text.replace("v999", label))
    assert not names_others(missing.text, user)


async def test_who_shows_no_key_sees_nobodys_versions(door: Door) -> None:
    assert await door.listed(None) == ["tiny", "tiny@v0"]


async def test_where_no_key_is_asked_for_everybody_is_the_local_user(gateway: Gateway) -> None:
    async with opened(gateway, require_key=False) as door:
        assert await door.listed(None) == ["tiny", "tiny@v1", "tiny@v12", "tiny@v0"]


@each_dialect
@streamed_or_not
async def test_an_engine_that_lost_a_version_names_no_other(gateway: Gateway, path: str, stream: bool) -> None:
    """It went between the look at the engine and the sampling; the engine's own words list all that it has."""

    async def went(user: str) -> str:
        return "v9.ann"

    async with opened(replace(gateway, live_label=went)) as door:
        refused = await door.ask(path, "ann", "tiny", stream=stream)
        assert refused.status_code == 404
        assert "v9.ann" in refused.text
        assert not names_others(refused.text, "ann")


def names_others(text: str, user: str) -> bool:
    """Whether a text has a label that is loaded and not this user's."""
    return any(f"{label}{end}" in text for label in set(LOADED) - set(MINE[user]) for end in (",", '"', "'", " "))


async def test_more_alternatives_than_the_engine_reports_are_refused(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"messages": [{"role": "user", "content": "hi"}], "logprobs": True, "top_logprobs": 3}
    async with opened(gateway) as door:
        monkeypatch.setattr(AlwaysThere, "capabilities", replace(SCRIPTED, top_k=3))
        assert (await door.post("/v1/chat/completions", "ann", asked)).status_code == 200
        monkeypatch.setattr(AlwaysThere, "capabilities", replace(SCRIPTED, top_k=2))
        refused = await door.post("/v1/chat/completions", "ann", asked)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, "top_logprobs")
    assert error["message"] == "top_logprobs must be at most 2 on this engine"
