"""A full disk under the running system: nothing is acknowledged, the error is clear, and service resumes by itself.

The limit on file sizes of the live process stands for the full disk: a write to the log fails in the middle, with an
error that SQLite treats like ENOSPC. Failing fsyncs are in test_store_faults.py.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from openclaw_rl.store import StoreReader
from openclaw_rl.types import Turn, split_turn_id
from tests.faults.audit import check_sound
from tests.faults.crowd import echo
from tests.server import Server


@contextmanager
def full_disk(server: Server, *, room: int | None = None) -> Iterator[None]:
    """No file of the server can be written, or none can grow by more than `room` bytes beyond the log as it is now."""
    assert server.process is not None
    largest = 1 if room is None else (server.data_dir / "store.sqlite3-wal").stat().st_size + room
    unlimited = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (largest, unlimited[1]))
    try:
        yield
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)


def stored(server: Server, turn_id: str) -> Turn:
    turn = StoreReader.open(server.data_dir).turn(*split_turn_id(turn_id))
    assert turn is not None
    return turn


def check_refusal(answer: httpx.Response, server: Server) -> None:
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
    check_error(answer.json(), server)


def check_error(body: dict[str, Any], server: Server) -> None:
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "service_unavailable_error"
    assert "acknowledged" in error["message"]
    assert "space" in error["message"]
    assert str(server.data_dir) not in error["message"], "a path of this machine reaches a client"


def test_a_full_disk_is_told_and_outlived(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        before = server.chat("before")
        history = [
            {"role": "user", "content": "before"},
            {"role": "assistant", "content": before.json()["choices"][0]["message"]["content"]},
            {"role": "user", "content": "and on"},
        ]
        with full_disk(server):
            whole = server.chat("whole")
            follow_up = server.chat(history)
            streamed = server.chat("streamed", stream=True)
            feedback = httpx.post(
                f"{server.url}/v1/feedback",
                json={"turn_id": before.headers["X-OpenClaw-RL-Turn"], "text": "good"},
                headers=server.headers,
            )
            assert httpx.get(f"{server.url}/healthz").status_code == 200
            unready = httpx.get(f"{server.url}/readyz")
            assert (unready.status_code, unready.json()["ready"]) == (503, False)
            assert "the store cannot be written: free some space" in unready.json()["reason"]
            assert str(server.data_dir) not in unready.text
        assert server.is_ready(), "it finds out by itself that there is space again"
        check_refusal(whole, server)
        check_refusal(follow_up, server)
        check_refusal(feedback, server)
        assert streamed.status_code == 200
        *chunks, last, rest = streamed.text.split("\n\n")
        assert rest == ""
        assert "[DONE]" not in streamed.text
        assert not any('"finish_reason":"stop"' in chunk for chunk in chunks)
        check_error(json.loads(last.removeprefix("data: ")), server)

        again = server.chat("streamed", stream=True)
        assert again.text.endswith("data: [DONE]\n\n")
        assert again.headers["X-OpenClaw-RL-Turn"] == streamed.headers["X-OpenClaw-RL-Turn"]
        assert stored(server, again.headers["X-OpenClaw-RL-Turn"]).message.content == echo("streamed")
        followed = server.chat(history)
        assert followed.status_code == 200
        parent = stored(server, before.headers["X-OpenClaw-RL-Turn"])
        child = stored(server, followed.headers["X-OpenClaw-RL-Turn"])
        assert (child.session, child.parent) == (parent.session, parent.index)
        assert server.chat("whole").status_code == 200
        check_sound(server.data_dir)
        num_main = sum(s.main_turns for s in StoreReader.open(server.data_dir).sessions())
        assert num_main == 4, "before, the streamed one, the follow-up and the whole one: each once"


def test_a_full_disk_under_many_requests(tmp_path: Path) -> None:
    """Full and free again, five times; whoever got an answer has it in the store, whoever got none gets it later."""
    # A log that is copied into the tables starts over within the size it has, and finds room there.
    with Server(tmp_path / "data", "store.checkpoint_bytes=1000000000") as server, ThreadPoolExecutor(16) as pool:
        server.chat("first")
        for number in range(5):
            texts = [f"{number}.{i} " + "words " * 300 for i in range(32)]
            with full_disk(server, room=40_000):
                answers = list(pool.map(server.chat, texts))
            refused = [text for text, answer in zip(texts, answers, strict=True) if answer.status_code != 200]
            assert refused, "the disk was never full"
            for answer in answers:
                if answer.status_code != 200:
                    check_refusal(answer, server)
            retried = list(pool.map(server.chat, refused))
            for text, answer in [*zip(texts, answers, strict=True), *zip(refused, retried, strict=True)]:
                if answer.status_code == 200:
                    turn = stored(server, answer.headers["X-OpenClaw-RL-Turn"])
                    assert turn.message.content == answer.json()["choices"][0]["message"]["content"] == echo(text)
            assert all(answer.status_code == 200 for answer in retried)
            check_sound(server.data_dir)
        num_main = sum(s.main_turns for s in StoreReader.open(server.data_dir).sessions())
        assert num_main == 1 + 5 * 32
        assert server.stop() == 0
