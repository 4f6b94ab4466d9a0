"""Real processes on one PostgreSQL: one is killed over its leases; the server itself goes away and comes back."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from openclaw_rl.store import PostgresStore, open_reader
from openclaw_rl.types import Message, NextState
from tests.factories.planned import LINE, made
from tests.factories.stored import put_samples
from tests.factories.turns import SESSION, make_session, make_turn
from tests.postgres import CannotStart, Postgres, running
from tests.server import Server

NUM_TURNS, NUM_SAMPLES = 40, 16


def start(directory: Path, url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.faults.shared_child", str(directory), url]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


def wait_until(condition: Callable[[], object], *, timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come so far"
        time.sleep(0.05)


async def fill(directory: Path, url: str) -> None:
    async with await PostgresStore.open(directory, url) as store:
        await put_samples(store, [made(f"s{number:02}") for number in range(NUM_SAMPLES)])
        await store.put_session(make_session())
        said = (Message(role="user", content="no"),)
        for index in range(NUM_TURNS):
            store.put_turn(make_turn(index))
            await store.put_next_state(NextState(session=SESSION, index=index, messages=said, arrived_at=1.0))


async def test_what_a_killed_process_was_at_is_done_by_another_one_and_counted_once(
    tmp_path: Path, postgres: Postgres
) -> None:
    url = postgres.url()
    await fill(tmp_path / "fill", url)
    reader = open_reader(tmp_path, url)
    killed, survivor = start(tmp_path / "killed", url), start(tmp_path / "survivor", url)
    try:
        for child in (killed, survivor):
            assert child.stdin is not None
            child.stdin.write(b"go\n")
            child.stdin.close()
        schema = url.rpartition("%3D")[2]
        held = f"SELECT 1 FROM {schema}.task WHERE wanted > done AND owner LIKE '%:{killed.pid}:%'"
        wait_until(lambda: postgres.query(held))
        killed.kill()
        killed.wait()
        left = postgres.query(held)
        wait_until(lambda: reader.num_open("judge") == 0 and not reader.waiting() and not reader.planned_steps())
    finally:
        for child in (killed, survivor):
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()
    assert left, "it was killed over its leases"
    judged = reader.judgements(SESSION)
    assert [one.index for one in judged] == list(range(NUM_TURNS)), "nothing is lost"
    assert {one.judge for one in judged} <= {"killed", "survivor"}
    steps = reader.steps(LINE)
    learned = Counter(sample for step in steps for sample in step.sample_ids)
    assert sorted(learned.values()) == [1] * NUM_SAMPLES, "nothing is learned twice"
    assert {step.state for step in steps} == {"done"}
    assert [step.number for step in steps] == list(range(1, NUM_SAMPLES + 1))


def test_a_server_that_goes_away_is_told_in_each_dialect_and_outlived(tmp_path: Path) -> None:
    try:
        with running() as own:
            check_outage(tmp_path, own)
    except CannotStart as reason:
        pytest.skip(f"no PostgreSQL here: {reason}")


def check_outage(tmp_path: Path, own: Postgres) -> None:
    url = own.url()
    with Server(tmp_path / "data", f"store.url={url}") as server:
        before = server.chat("before")
        assert before.status_code == 200
        own.kill()

        def ask(path: str, **body: object) -> httpx.Response:
            return httpx.post(f"{server.url}{path}", headers=server.headers, json=body, timeout=60.0)

        said = [{"role": "user", "content": "meanwhile"}]
        chat = ask("/v1/chat/completions", model="x", messages=said)
        messages = ask("/v1/messages", model="x", max_tokens=9, messages=said)
        responses = ask("/v1/responses", model="x", input="meanwhile")
        assert [one.status_code for one in (chat, messages, responses)] == [503, 503, 503]
        assert messages.json()["error"]["type"] == "api_error"
        assert chat.json()["error"]["code"] == responses.json()["error"]["code"] == "store_unavailable"
        assert all(int(one.headers["Retry-After"]) >= 1 for one in (chat, messages, responses))
        assert str(own.sockets) not in chat.text + messages.text + responses.text
        server.wait_until(lambda: not server.is_ready())
        own.process = own.start()
        server.wait_until(server.is_ready)
        after = server.chat("after")
        assert after.status_code == 200
        reader = open_reader(tmp_path, url)
        texts = [turn.messages[-1].content for one in reader.sessions() for turn in reader.turns(one.session.id)]
        assert sorted(texts) == ["after", "before"], "what was acknowledged is there, and nothing else"
