"""kill -9 of one of three engines under load: nobody is refused, and every answer is the one without a death."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from openclaw_rl.protocols import Renderer
from openclaw_rl.store import StoreReader
from openclaw_rl.types import split_turn_id
from tests.faults.audit import check_answers, check_sound
from tests.faults.crowd import Crowd
from tests.faults.processes import wait_for, workers
from tests.server import NO_TLS, OPEN_GATE, Server
from tests.tiny import build_tiny_model

pytestmark = pytest.mark.timeout(300)

NUM_KILLS = 6
QUICK_RESTARTS = ("engine.backoff_s=0.05", "engine.max_backoff_s=0.05")


def engines(server: Server) -> list[dict[str, Any]]:
    """How each engine is, as an owner of a key is told."""
    told: list[dict[str, Any]] = httpx.get(f"{server.url}/readyz", headers=server.headers, verify=NO_TLS).json()[
        "engines"
    ]
    return told


def all_answer(server: Server) -> bool:
    return [one["health"] for one in engines(server)] == ["answers"] * 3


def told_to_a_stranger(server: Server) -> dict[str, Any]:
    told: dict[str, Any] = httpx.get(f"{server.url}/readyz").json()
    return told


def metric(server: Server, name: str) -> list[float]:
    lines = httpx.get(f"{server.url}/metrics", headers=server.headers).text.splitlines()
    return [float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"openclaw_rl_{name}{{")]


async def test_one_of_three_scripted_engines_is_killed(tmp_path: Path, renderer: Renderer) -> None:
    dice, crowd = random.Random(9), Crowd(seed=9)
    settings = ("engine.replicas=3", "engine.scripted.tokens_per_s=300", *QUICK_RESTARTS)
    with Server(tmp_path / "data", *settings) as server:
        await asyncio.to_thread(wait_for, lambda: all_answer(server), "all three answered")
        enough = asyncio.Event()
        talking = asyncio.create_task(crowd.talk(server, until=enough, survives=True))
        for _ in range(NUM_KILLS):
            await asyncio.sleep(dice.uniform(0.1, 0.4))
            dice.choice(workers(server)).kill()
            await asyncio.to_thread(wait_for, lambda: not all_answer(server), "the death was noticed")
            assert server.is_ready(), "two others answer"
            await asyncio.to_thread(wait_for, lambda: all_answer(server), "it was back")
        enough.set()
        await talking
        check_sound(server.data_dir)
        check_answers(server.data_dir, renderer, crowd.chats)
        assert crowd.num_answered > 5 * NUM_KILLS
        assert all(len(ask.turn_ids) == 1 for chat in crowd.chats for ask in chat.asks)
        assert metric(server, "engine_member_up") == [1.0] * 3
        assert sum(metric(server, "engine_member_restarts")) == NUM_KILLS
        assert told_to_a_stranger(server) == {"ready": True, "reason": ""}
        assert server.stop() == 0
    assert not workers(server)


@pytest.fixture(scope="module")
def three_embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("embedded")
    tiny = build_tiny_model(folder / "model")
    settings = (f"model.name={tiny}", "engine.type=embedded", "engine.replicas=3", "engine.device=cpu")
    learns = ("training.batch_size=1", "training.max_wait_s=0.1", "training.truncated=score", "evaluation.judge=rules")
    server = Server(folder / "data", *settings, "engine.dtype=float32", *QUICK_RESTARTS, *learns, *OPEN_GATE)
    server.start()
    try:
        yield server
    finally:
        server.close()


def test_one_of_three_embedded_engines_is_killed(three_embedded: Server) -> None:
    server = three_embedded
    wait_for(lambda: all_answer(server), "all three answered", timeout_s=60)

    def ask(number: int, name: str) -> httpx.Response:
        said = f"Tell me about the {number}th of all things that there are, at length."
        return server.chat(said, temperature=0, max_tokens=120, headers={"X-Session-Id": f"{name}-{number}"})

    with ThreadPoolExecutor(24) as people:
        expected = [one.json()["choices"][0]["message"]["content"] for one in people.map(ask, range(24), ["a"] * 24)]
        victim = workers(server)[1]
        asking = [people.submit(ask, number, "b") for number in range(24)]
        wait_for(lambda: sum(one.done() for one in asking) >= 2, "the first were answered")
        victim.kill()
        answers = [one.result() for one in asking]
    assert [answer.status_code for answer in answers] == [200] * 24
    assert [answer.json()["choices"][0]["message"]["content"] for answer in answers] == expected
    reader = StoreReader.open(server.data_dir)
    for answer in answers:
        turn = reader.turn(*split_turn_id(answer.headers["X-OpenClaw-RL-Turn"]))
        assert turn is not None
        assert turn.skip is None
        assert len(turn.completion.logprobs) == len(turn.completion.token_ids) > 0
    wait_for(lambda: all_answer(server), "it was back", timeout_s=60)


def test_each_proves_what_was_learned_and_the_next_one_loads_it(three_embedded: Server) -> None:
    server, reader = three_embedded, StoreReader.open(three_embedded.data_dir)
    asked = [{"role": "user", "content": "what is rain"}]
    said = server.chat(asked, max_tokens=12).json()["choices"][0]["message"]["content"]
    corrected = [*asked, {"role": "assistant", "content": said}, {"role": "user", "content": "no, shorter please"}]
    server.chat(corrected, max_tokens=12)
    server.wait_until(lambda: any(one.state == "live" for one in reader.versions()), timeout_s=120.0)
    (live,) = [one for one in reader.versions() if one.state == "live"]
    assert live.gate["proof"]["verdict"] == "proved"
    for process in workers(server):
        process.kill()
    wait_for(lambda: not all_answer(server), "their deaths were noticed")
    wait_for(lambda: all_answer(server), "all were back", timeout_s=60)
    answers = [server.chat(f"what is ice {i}", max_tokens=4, headers={"X-Session-Id": f"c-{i}"}) for i in range(12)]
    assert {answer.headers["X-OpenClaw-RL-Version"] for answer in answers} == {live.label}
