"""kill -9 of the gateway and of the engine under twenty streams, over and over on one growing data directory.

Whatever was delivered to its end is there, byte for byte; a request that broke off is asked again and is the same
turn; the system recovers by itself and leaves no process behind.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from openclaw_rl.faults import CRASH_POINTS
from openclaw_rl.protocols import Renderer
from tests.faults.audit import check_answers, check_sound
from tests.faults.crowd import Chat, Crowd
from tests.faults.judging_child import LEARNING
from tests.faults.processes import comes_up, wait_for, worker, workers
from tests.faults.training_child import TRAINING
from tests.server import Server

pytestmark = pytest.mark.timeout(600)

LATER_PASS = {"store.in_migration": 5, "store.in_checkpoint": 2, "gateway.mid_stream": 500}
"""A migration has few statements, the second checkpoint comes after many turns, and an answer has many tokens."""
SERVING = [name for name in CRASH_POINTS if name not in (*LEARNING, *TRAINING)]
FIRST = ("store.in_migration", 1)
PLACES = [FIRST, *((name, LATER_PASS.get(name, 40)) for name in SERVING)]
"""In the midst of work. The long form, in tests/hardening, has every first pass as well."""
EVERY_PASS = [(name, passes) for name in SERVING for passes in (1, LATER_PASS.get(name, 40))]
NUM_RANDOM_KILLS = 4
NUM_ENGINE_KILLS = 8
PACED = ("engine.scripted.tokens_per_s=300", "store.checkpoint_bytes=150000")


async def test_the_gateway_is_killed(tmp_path: Path, renderer: Renderer) -> None:
    assert await kill_gateway(tmp_path, renderer, places=PLACES, num_random=NUM_RANDOM_KILLS) > 100


async def kill_gateway(
    tmp_path: Path, renderer: Renderer, *, places: Sequence[tuple[str, int]], num_random: int
) -> int:
    """At every place, and so often at any moment; how many answers were delivered, all of which are stored."""
    dice = random.Random(7)
    # A migration happens only before there is a store.
    first, others = places[:2], [*places[2:], *[None] * num_random]
    dice.shuffle(others)
    crowd = Crowd(seed=7)
    audited: list[Chat] = []
    server = Server(tmp_path / "data", *PACED)
    with ExitStack() as cleanup:
        cleanup.push(server)
        for place in [*first, *others]:
            server.start(wait=False, env={"OPENCLAW_RL_CRASH_AT": f"{place[0]}:{place[1]}"} if place else None)
            if comes_up(server):
                check_sound(server.data_dir)
                check_answers(server.data_dir, renderer, [chat for chat in crowd.chats if chat not in audited])
                audited = [chat for chat in crowd.chats if chat.over]
                await _talk_until_it_dies(server, crowd, None if place else dice.uniform(0.1, 1.2))
            assert server.process is not None
            assert server.process.wait(timeout=60) == -signal.SIGKILL, f"it did not die at {place}"
            wait_for(lambda: not workers(server), f"the killed gateway's engine was gone ({place})")
    with server:
        await crowd.talk(server, until=_after(1.0), survives=True)
        check_sound(server.data_dir)
        check_answers(server.data_dir, renderer, crowd.chats)
        assert server.stop() == 0
    assert not workers(server)
    return crowd.num_answered


async def test_the_engine_is_killed(tmp_path: Path, renderer: Renderer) -> None:
    await kill_engine(tmp_path, renderer, num_kills=NUM_ENGINE_KILLS)


async def kill_engine(tmp_path: Path, renderer: Renderer, *, num_kills: int) -> int:
    """No request fails: every stream pauses, and goes on from the tokens that it has. How many answers there were."""
    dice = random.Random(8)
    crowd = Crowd(seed=8)
    quick_restarts = ("engine.backoff_s=0.05", "engine.max_backoff_s=0.05")
    with Server(tmp_path / "data", *PACED, *quick_restarts) as server:
        enough = asyncio.Event()
        talking = asyncio.create_task(crowd.talk(server, until=enough, survives=True))
        for _ in range(num_kills):
            await asyncio.sleep(dice.uniform(0.05, 0.5))
            worker(server).kill()
            await asyncio.to_thread(wait_for, lambda: not server.is_ready(), "the death of the engine was noticed")
            await asyncio.to_thread(wait_for, server.is_ready, "another engine was up")
        enough.set()
        await talking
        check_sound(server.data_dir)
        check_answers(server.data_dir, renderer, crowd.chats)
        assert crowd.num_answered > 2 * num_kills
        assert all(len(ask.turn_ids) == 1 for chat in crowd.chats for ask in chat.asks)
        assert server.stop() == 0
    assert not workers(server)
    return crowd.num_answered


async def _talk_until_it_dies(server: Server, crowd: Crowd, kill_after_s: float | None) -> None:
    assert server.process is not None
    if kill_after_s is not None:
        asyncio.get_running_loop().call_later(kill_after_s, server.process.kill)
    await crowd.talk(server, until=asyncio.Event(), survives=False)


def _after(seconds: float) -> asyncio.Event:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, event.set)
    return event
