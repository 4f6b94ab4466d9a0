"""Attempts at tasks through the app: what comes in with an attempt's key is its own, and nobody else's."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp.test_utils import TestServer

from openclaw_rl.config import GatewayConfig
from openclaw_rl.engine.scripted import ScriptedEngine, ScriptedOptions
from openclaw_rl.gateway.access.auth import KeyRing, new_key
from openclaw_rl.gateway.access.desk import INTERRUPTED, AttemptDesk
from openclaw_rl.gateway.answer.exchange import Background, Gateway
from openclaw_rl.gateway.answer.memory import TokenMemory
from openclaw_rl.gateway.api.app import App
from openclaw_rl.gateway.api.metrics import Metrics
from openclaw_rl.gateway.sessions.placement import Sessions
from openclaw_rl.protocols import Renderer
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Door, Episode, Outcome, Session, Skip, Turn, line_of
from tests.fakes.hosts import AlwaysThere

SAYS_HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


@dataclass
class Place:
    """A gateway over HTTP with a desk, and its store."""

    store: SqliteStore
    gateway: Gateway
    desk: AttemptDesk
    keys: KeyRing
    url: str

    async def ask(self, key: str, path: str = "/v1/chat/completions", **body: Any) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, timeout=30) as client:
            return await client.post(path, json=body or SAYS_HI, headers={"x-api-key": key})

    async def sessions(self, episode: Episode) -> list[Session]:
        (_, _, names) = next(row for row in await self.store.lessons.group(episode.group) if row[0] == episode)
        return [found for name in names if (found := await self.store.lessons.get_session(name)) is not None]


def episode(number: int = 0) -> Episode:
    return Episode(id=f"e-{number}", environment="toy", task="count", group="run/count", attempt=number, group_size=8)


@pytest.fixture
async def place(tmp_path: Path, model: Path, renderer: Renderer) -> AsyncIterator[Place]:
    engine = ScriptedEngine(model, ScriptedOptions(tokens_per_s=0, versions=("v0", "v3-env.toy", "v9")))
    async with await SqliteStore.open(tmp_path / "data") as store:
        background, numbers, keys = Background(), itertools.count(1), KeyRing()
        gateway = Gateway(
            engine=engine,
            renderer=renderer,
            store=store,
            sessions=Sessions(timeout_s=60, new_id=lambda: f"s{next(numbers)}"),
            memory=TokenMemory(store.get_turn, model_id="tiny#1"),
            background=background,
            model_id="tiny#1",
        )
        host = AlwaysThere(engine, await engine.state())
        app = App(gateway, GatewayConfig(), model="tiny", keys=keys, metrics=Metrics(), host=host).build()
        async with TestServer(app) as server:
            url = asyncio.get_running_loop().create_future()
            url.set_result(str(server.make_url("")).rstrip("/"))
            desk = AttemptDesk(gateway, store.lessons, keys, model="tiny", listens_at=url)
            yield Place(store=store, gateway=gateway, desk=desk, keys=keys, url=url.result())
        await background.drain()


async def test_what_comes_in_with_the_key_belongs_to_the_attempt_and_teaches_its_line(place: Place) -> None:
    door = await place.desk.begin(episode(), learn=True)
    assert (door.url, door.model) == (place.url, "tiny")
    assert (await place.ask(door.key)).status_code == 200
    await place.desk.end(Outcome(episode="e-0", reward=1.0, ended_at=5.0))
    (session,) = await place.sessions(episode())
    assert line_of(session) == "env:toy"
    assert (session.user, session.opted_out, session.closed_at is not None) == ("e-0", False, True)
    assert await place.store.lessons.episode("e-0") == (
        episode(),
        Outcome(episode="e-0", reward=1.0, ended_at=5.0),
    )


async def test_who_watches_hears_of_each_main_turn_when_it_is_stored(place: Place) -> None:
    heard: list[Turn] = []
    door = await place.desk.begin(episode(), learn=True, heard=heard.append)
    other = await place.desk.begin(episode(1), learn=True)
    await place.ask(door.key)
    (turn,) = heard
    kept = await place.store.lessons.get_turn(turn.session, turn.index)
    assert kept is not None
    assert (kept.message, kept.kind) == (turn.message, "main")
    async with httpx.AsyncClient(base_url=place.url, timeout=30) as client:
        for key, kind in ((door.key, "side"), (other.key, "main")):
            headers = {"x-api-key": key, "x-turn-type": kind}
            assert (await client.post("/v1/chat/completions", json=SAYS_HI, headers=headers)).is_success
    await place.desk.end(Outcome(episode="e-0", reward=1.0, ended_at=5.0))
    assert heard == [turn]
    assert not place.gateway.watched


async def test_an_attempt_that_is_not_to_learn_is_kept_from_training(place: Place) -> None:
    door = await place.desk.begin(episode(), learn=False)
    await place.ask(door.key)
    (session,) = await place.sessions(episode())
    assert session.opted_out


async def test_a_version_of_the_line_answers_where_one_is_named(place: Place) -> None:
    door = await place.desk.begin(episode(), learn=False, version="v3-env.toy")
    answer = await place.ask(door.key, model=door.model, **SAYS_HI)
    assert answer.headers["x-openclaw-rl-version"] == "v3-env.toy"
    other = await place.desk.begin(episode(1), learn=False, version="v9")
    assert (await place.ask(other.key, model=other.model, **SAYS_HI)).status_code == 404, "a person's version"


async def test_the_key_opens_nothing_once_the_attempt_has_ended(place: Place) -> None:
    door = await place.desk.begin(episode(), learn=True)
    await place.desk.end(Outcome(episode="e-0", failure="the box died", ended_at=5.0))
    assert (await place.ask(door.key)).status_code == 401


async def test_attempts_read_neither_each_other_nor_people(place: Place) -> None:
    key, secret = new_key("local", 1.0)
    place.keys.add(key)
    person = await place.ask(secret, "/v1/responses", input="my secret", store=True)
    first, second = [await place.desk.begin(episode(number), learn=True) for number in (0, 1)]
    mine = await place.ask(first.key, "/v1/responses", input="hello", store=True)
    async with httpx.AsyncClient(base_url=place.url) as client:
        for name in (person.json()["id"], mine.json()["id"]):
            found = await client.get(f"/v1/responses/{name}", headers={"x-api-key": second.key})
            assert found.status_code == 404
        assert (await client.get(f"/v1/responses/{mine.json()['id']}", headers={"x-api-key": first.key})).is_success
        assert "secret" not in (await client.get("/v1/rollouts", headers={"x-api-key": second.key})).text
    await place.ask(second.key)
    assert len({session.id for number in (0, 1) for session in await place.sessions(episode(number))}) == 2


async def test_an_agent_cannot_rate_itself(place: Place) -> None:
    door = await place.desk.begin(episode(), learn=True)
    turn = (await place.ask(door.key)).headers["x-openclaw-rl-turn"]
    refused = await place.ask(door.key, "/v1/feedback", turn_id=turn, score=1)
    assert refused.status_code == 403
    assert "does not rate itself" in refused.text


async def test_what_the_grader_said_follows_the_last_answer(place: Place) -> None:
    door = await place.desk.begin(episode(), learn=True)
    first = (await place.ask(door.key)).json()["choices"][0]["message"]
    said = [*SAYS_HI["messages"], first, {"role": "user", "content": "go on"}]
    await place.ask(door.key, messages=said)
    await place.desk.end(Outcome(episode="e-0", reward=-1.0, ended_at=5.0), report="1 of 3 tests failed")
    (session,) = await place.sessions(episode())
    state = await place.store.lessons.next_state(session.id, 1)
    assert state is not None
    assert [(one.role, one.content) for one in state.messages] == [("tool", "1 of 3 tests failed")]
    turn = await place.store.lessons.get_turn(session.id, 1)
    assert turn is not None
    assert turn.skip is not Skip.NO_NEXT_STATE


async def test_attempts_that_a_killed_process_left_open_have_failed(place: Place) -> None:
    await place.desk.begin(episode(), learn=True)
    await place.desk.begin(episode(1), learn=True)
    await place.desk.end(Outcome(episode="e-1", reward=1.0, ended_at=5.0))
    assert await place.desk.recover() == 1
    found = await place.store.lessons.episode("e-0")
    assert found is not None
    assert found[1] is not None
    assert found[1].failure == INTERRUPTED
    assert await place.desk.recover() == 0


async def test_beginning_the_same_attempt_again_gives_one_key_that_opens(place: Place) -> None:
    doors: list[Door] = [await place.desk.begin(episode(), learn=True) for _ in range(2)]
    assert [(await place.ask(door.key)).status_code for door in doors] == [401, 200]
