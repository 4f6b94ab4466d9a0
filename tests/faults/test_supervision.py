"""The engine dies and comes back, or does not; the gateway is asked to stop, politely, twice, or too early."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from openclaw_rl.store import StoreReader
from openclaw_rl.types import Skip, Turn, split_turn_id
from tests.faults.crowd import echo
from tests.faults.processes import gateway, wait_for, worker, workers
from tests.faults.streams import BareClient, request_bytes
from tests.server import NO_TLS, Server

TEXT = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
SLOW = "engine.scripted.tokens_per_s=10"
CRAWLING = "engine.scripted.tokens_per_s=2"


def ready_state(server: Server, **options: Any) -> dict[str, Any]:
    answer = httpx.get(f"{server.url}/readyz", verify=NO_TLS, **options)
    state: dict[str, Any] = answer.json()
    assert answer.status_code == (200 if state["ready"] else 503)
    return state


def refuses(server: Server) -> bool:
    try:
        httpx.get(f"{server.url}/healthz", verify=NO_TLS)
    except httpx.ConnectError:
        return True
    return False


def stored(server: Server, turn_id: str) -> Turn:
    turn = StoreReader.open(server.data_dir).turn(*split_turn_id(turn_id))
    assert turn is not None
    return turn


def is_still(measure: Callable[[], int]) -> bool:
    before = measure()
    time.sleep(1.0)
    return measure() == before


def cpu_seconds(server: Server) -> float:
    times = gateway(server).cpu_times()
    return float(times.user + times.system)


def begin(server: Server, text: str = TEXT) -> BareClient:
    """A stream whose first words have come."""
    client = BareClient(server)
    client.send(request_bytes(server, text, stream=True))
    client.read_until(b'"content":', times=3)
    assert not client.is_complete
    return client


def test_requests_wait_for_an_engine_that_is_down(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "engine.backoff_s=1") as server:
        before = worker(server)
        before.kill()
        wait_for(lambda: not server.is_ready(), "the death was noticed")
        assert "SIGKILL" in ready_state(server, headers=server.headers)["reason"]
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        answer = server.chat("are you there")
        assert answer.status_code == 200
        assert answer.json()["choices"][0]["message"]["content"] == echo("are you there")
        assert worker(server).pid != before.pid


@pytest.fixture
def breakable(tmp_path: Path, model: Path) -> Path:
    """A model folder of our own, complete for the scripted engine: its workers cannot start without the tokenizer."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (*model.glob("*.json"), *model.glob("*.jinja")):
        shutil.copy(file, folder)
    header = json.dumps({"weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    return folder


def test_an_engine_that_cannot_start(tmp_path: Path, breakable: Path) -> None:
    settings = ("engine.wait_s=0.3", "engine.backoff_s=0.1", "engine.max_backoff_s=0.2", SLOW)
    with Server(tmp_path / "data", f"model.checkpoint_path={breakable}", *settings) as server:
        with begin(server) as stream:
            tokenizer = breakable / "tokenizer.json"
            tokenizer.rename(breakable / "away")
            worker(server).kill()
            stream.read_all()
        assert not stream.is_complete
        assert stream.events[-1]["error"]["type"] == "service_unavailable_error"
        cut = stored(server, stream.turn_id)
        assert (cut.skip, cut.completion.finish_reason) == (Skip.ENGINE_LOST, "error")
        assert cut.completion.token_ids
        assert cut.message.content == stream.text

        key = {"headers": server.headers}
        wait_for(lambda: "tokenizer.json" in ready_state(server, **key)["reason"], "/readyz told why")
        for stranger in ({}, {"headers": {"x-api-key": "wrong"}}):
            state = ready_state(server, **stranger)
            assert (state["ready"], "/" in state["reason"]) == (False, False), "paths are for who has a key"
        for streamed in (False, True):
            refused = server.chat("hello?", stream=streamed)
            assert refused.status_code == 503
            assert int(refused.headers["Retry-After"]) >= 1
            error = refused.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert (error["type"], error["code"]) == ("service_unavailable_error", "engine_unavailable")
            assert str(tmp_path) not in error["message"], "a path of this machine reaches a client"
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert httpx.get(f"{server.url}/v1/models", headers=server.headers).status_code == 200

        (breakable / "away").rename(tokenizer)
        wait_for(server.is_ready, "the mended engine was up")
        with begin(server) as again:
            again.read_all()
        assert again.is_complete
        assert again.turn_id == stream.turn_id
        whole = stored(server, stream.turn_id)
        assert (whole.skip, whole.message.content) == (None, echo(TEXT))


def test_a_slow_reader_does_not_kill_the_next_engine(tmp_path: Path) -> None:
    """A stream that learns late of its engine's death must not take the starting successor for a dead one."""
    reply = "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 300
    rules = json.dumps([{"match": "long", "reply": reply}])
    with (
        Server(tmp_path / "data", f"engine.scripted.replies={rules}", "engine.backoff_s=0.2") as server,
        BareClient(server, receive_buffer=4096) as client,
        ThreadPoolExecutor(1) as reader,
    ):
        # Twenty alternatives for each token are more bytes than all the buffers on the way hold.
        client.send(request_bytes(server, "long", stream=True, logprobs=True, top_logprobs=20, max_tokens=100_000))
        client.read_until(b'"content":')
        old = worker(server)
        wait_for(lambda: old.cpu_percent(0.2) < 5.0, "everybody waited for the slow reader")
        old.kill()
        wait_for(lambda: workers(server) not in ([], [old]), "the next engine was started")
        successor = worker(server)
        successor.suspend()  # it takes its time
        reading = reader.submit(client.read_all)
        wait_for(lambda: is_still(lambda: len(client.received)), "the client had all that the first engine said")
        assert workers(server) == [successor], "the successor was killed while it started"
        assert not reading.done()
        successor.resume()
        reading.result()
        assert client.is_complete
        assert client.text == reply


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_running_answers_finish(tmp_path: Path, name: signal.Signals) -> None:
    with Server(tmp_path / "data", SLOW) as server:
        assert server.process is not None
        with begin(server) as stream:
            server.process.send_signal(name)
            wait_for(lambda: refuses(server), "new connections were refused")
            assert server.process.poll() is None
            stream.read_all()
        assert stream.is_complete
        assert stream.text == echo(TEXT)
        assert server.process.wait(timeout=30) == 0
        assert not workers(server)
        turn = stored(server, stream.turn_id)
        assert (turn.message.content, turn.skip, turn.delivered) == (echo(TEXT), None, True)
        assert not (server.data_dir / "run" / "address.json").exists()
        assert "Traceback" not in (server.data_dir / "output.txt").read_text()


@pytest.mark.parametrize("seconds", [0.5, 0.0])
def test_draining_has_a_limit(tmp_path: Path, seconds: float) -> None:
    with Server(tmp_path / "data", CRAWLING, f"gateway.drain_s={seconds}") as server:
        assert server.process is not None
        with BareClient(server) as stream:
            stream.send(request_bytes(server, TEXT, stream=True))
            stream.read_until(b'"content":', times=2)
            assert server.stop() == 0
            stream.read_all()
        assert not stream.is_complete
        assert not workers(server)
        turn = stored(server, stream.turn_id)
        assert (turn.skip, turn.completion.finish_reason) == (Skip.ABORTED, "abort")
        assert turn.message.content == stream.text
        assert "Traceback" not in (server.data_dir / "output.txt").read_text()


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    with Server(tmp_path / "data", CRAWLING, "gateway.drain_s=3600") as server:
        assert server.process is not None
        with BareClient(server) as stream:
            stream.send(request_bytes(server, TEXT, stream=True))
            stream.read_until(b'"content":', times=2)
            server.process.send_signal(signal.SIGINT)
            wait_for(lambda: refuses(server), "new connections were refused")
            server.process.send_signal(signal.SIGINT)
            server.process.wait(timeout=20)
            stream.read_all()
        assert not stream.is_complete
        wait_for(lambda: not workers(server), "the engine was gone")
        assert "Traceback" not in (server.data_dir / "output.txt").read_text()


def test_a_gateway_killed_while_its_engine_starts_leaves_none(tmp_path: Path) -> None:
    server = Server(tmp_path / "data").start(wait=False)
    wait_for(lambda: bool(workers(server)), "the engine was started")
    server.kill()
    wait_for(lambda: not workers(server), "the engine was gone")


@pytest.mark.parametrize(
    ("moment", "name"),
    [
        ("imports", signal.SIGTERM),
        ("imports", signal.SIGINT),
        ("opens the store", signal.SIGTERM),
        ("starts the engine", signal.SIGINT),
        pytest.param("opens the store", signal.SIGINT, marks=pytest.mark.hardening),
        pytest.param("starts the engine", signal.SIGTERM, marks=pytest.mark.hardening),
    ],
)
def test_stopped_while_it_starts(tmp_path: Path, moment: str, name: signal.Signals) -> None:
    server = Server(tmp_path / "data").start(wait=False)
    assert server.process is not None
    try:
        reached: dict[str, Callable[[], bool]] = {
            "imports": lambda: cpu_seconds(server) > 0.2,
            "opens the store": (server.data_dir / "store.sqlite3").exists,
            "starts the engine": lambda: bool(workers(server)),
        }
        wait_for(reached[moment], f"it {moment}")
        server.process.send_signal(name)
        status = server.process.wait(timeout=30)
    finally:
        if server.process.poll() is None:
            server.kill()
    output = (server.data_dir / "output.txt").read_text()
    assert status in (0, 130, -name), output
    assert "Traceback" not in output
    wait_for(lambda: not workers(server), "the engine was gone")
    with server:
        assert server.chat("hello").status_code == 200


def test_a_second_server_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        command = [sys.executable, "-m", "openclaw_rl", "up", "--data-dir", str(server.data_dir), "--port", "0"]
        second = subprocess.run([*command, "engine.type=scripted"], capture_output=True, text=True, timeout=60)
        assert second.returncode == 1
        assert "Traceback" not in second.stderr
        assert len(second.stderr.strip().splitlines()) >= 1
        assert server.chat("still here").status_code == 200
        assert (server.data_dir / "run" / "address.json").exists()


def test_logs_are_json_lines_without_conversation_text(tmp_path: Path) -> None:
    secret = "xylophone-4711"
    with Server(tmp_path / "data", SLOW, "tracking.log_level=debug", "engine.backoff_s=0.1") as server:
        server.chat(f"my word is {secret}", temperature=0)
        with begin(server, f"{secret} {TEXT}") as stream:
            worker(server).kill()
            stream.read_all()
        assert stream.is_complete
        with begin(server, f"{secret} {secret} {TEXT}") as stream:
            stream.leave(rudely=True)
        bad = {"messages": [{"role": secret, "content": secret}]}
        assert httpx.post(f"{server.url}/v1/chat/completions", json=bad, headers=server.headers).status_code == 400
        httpx.get(f"{server.url}/{secret}?q={secret}")
        assert server.stop() == 0
        written = [server.data_dir / "output.txt", *(f for f in (server.data_dir / "run").iterdir() if f.is_file())]
        for file in written:
            assert secret not in file.read_text(), f"{file.name} holds what was said"
            assert server.key not in file.read_text() or file.name == "output.txt"
        log = server.data_dir / "run" / "log.jsonl"
        records = [json.loads(line) for line in log.read_text().splitlines()]
        assert all({"ts", "level", "logger", "event"} <= set(record) for record in records)
        events = [record["event"] for record in records]
        assert {"started", "request", "stopped"} <= set(events)
        assert any(event.startswith("engine ended") and "SIGKILL" in event for event in events)
        for path in (log, server.data_dir / "key", server.data_dir / "store.sqlite3"):
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
