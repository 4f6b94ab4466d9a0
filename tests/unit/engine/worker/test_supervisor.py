"""Supervision of real scripted workers."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tokenizers import Tokenizer

from openclaw_rl.backoff import Backoff
from openclaw_rl.engine.worker.hosts import SCRIPTED
from openclaw_rl.engine.worker.supervisor import Supervisor
from openclaw_rl.errors import EngineError, EngineLost, EngineRefused, EngineUnavailable
from openclaw_rl.types import ScoreRequest
from tests.unit.engine.prompts import BASE_AGAIN, ask, chat, saved, until_error, whole
from tests.unit.engine.worker.test_process import command


@asynccontextmanager
async def supervised(arguments: Sequence[str], socket: Path, **options: Any) -> AsyncIterator[Supervisor]:
    options = {"capabilities": SCRIPTED, "backoff": Backoff(first_s=0.01, longest_s=0.02), **options}
    supervisor = Supervisor.of_worker(arguments, socket, **options)
    running = asyncio.create_task(supervisor.run())
    try:
        yield supervisor
    finally:
        await supervisor.stop()
        assert running.done()


def worker_pid(caplog: pytest.LogCaptureFixture) -> int:
    """Of the last worker that said it was ready."""
    pids = [record.__dict__["worker_pid"] for record in caplog.records if record.getMessage() == "ready"]
    return int(pids[-1])


def pauses(caplog: pytest.LogCaptureFixture) -> list[float]:
    return [record.__dict__["pause_s"] for record in caplog.records if hasattr(record, "pause_s")]


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(autouse=True)
def _log_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "openclaw_rl")


async def test_a_worker_comes_up_serves_and_goes(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "s"
    socket.write_text("left behind by a crash")
    async with supervised(command(socket, tokenizer_folder), socket) as supervisor:
        readiness = [supervisor.is_ready]
        engine = supervisor.engine
        state = await engine.state()
        assert state.model == tokenizer_folder.name
        assert supervisor.state == state
        readiness.append(supervisor.is_ready)
        assert (await whole(engine, ask(chat(tokenizer, "hello")))).finish_reason == "stop"
        pid = worker_pid(caplog)
    assert not exists(pid)
    assert [*readiness, supervisor.is_ready] == [False, True, False]
    assert supervisor.num_restarts == 0


async def test_a_worker_inherits_no_key(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "sesame")
    socket = tmp_path / "s"
    async with supervised(command(socket, tokenizer_folder), socket) as supervisor:
        await supervisor.engine.state()
        assert "HF_TOKEN" not in psutil.Process(worker_pid(caplog)).environ()


async def test_a_worker_that_is_killed_comes_back(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "s"
    async with supervised(command(socket, tokenizer_folder), socket) as supervisor:
        engine = supervisor.engine
        for number in range(3):
            assert (await whole(engine, ask(chat(tokenizer, "hello")))).finish_reason == "stop"
            assert supervisor.num_restarts == number
            assert supervisor.last_error is None
            pid = worker_pid(caplog)
            os.kill(pid, signal.SIGKILL)
            # Until the death has been noticed a request fails at once; afterwards it waits for the next worker.
            while worker_pid(caplog) == pid:
                await until_error(engine, ask(chat(tokenizer, "hello")))
    assert [text for text in caplog.messages if "ended" in text] == ["engine ended: it died of SIGKILL"] * 3


async def test_an_answer_goes_on_from_its_tokens_after_a_crash(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    socket = tmp_path / "s"
    options = '{"replies": [{"match": "q", "reply": "one two three four", "fail_after_tokens": 4}]}'
    prompt = chat(tokenizer, "q")
    async with supervised(command(socket, tokenizer_folder, options), socket) as supervisor:
        engine = supervisor.engine
        got, error = await until_error(engine, ask(prompt))
        assert isinstance(error, EngineLost)
        assert len(got) == 4
        rest = await whole(engine, ask([*prompt, *got]))
        assert tokenizer.decode([*got, *rest.token_ids]) == "one two three four"
        assert supervisor.num_restarts == 1


async def test_after_a_loss_the_next_request_waits_instead_of_failing(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    socket = tmp_path / "s"
    options = '{"replies": [{"match": "die", "reply": "one two three", "fail_after_tokens": 2}]}'
    async with supervised(command(socket, tokenizer_folder, options), socket) as supervisor:
        engine = supervisor.engine
        _, error = await until_error(engine, ask(chat(tokenizer, "die")))
        assert isinstance(error, EngineLost)
        assert not supervisor.is_ready
        assert (await whole(engine, ask(chat(tokenizer, "hello")))).finish_reason == "stop"


async def test_a_worker_that_lives_but_does_not_answer_is_replaced(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "s"
    options = '{"tokens_per_s": 100, "replies": [{"match": "slow", "reply": "a b c d e f g h i j k l m n o p"}]}'
    async with supervised(command(socket, tokenizer_folder, options), socket) as supervisor:
        engine = supervisor.engine
        async with aclosing(engine.generate(ask(chat(tokenizer, "slow")))) as holds_the_open_connection:
            await anext(holds_the_open_connection)
            pid = worker_pid(caplog)
            socket.unlink()
            _, error = await until_error(engine, ask(chat(tokenizer, "hello")))
        assert isinstance(error, EngineLost)
        assert (await whole(engine, ask(chat(tokenizer, "hello")))).finish_reason == "stop"
        assert worker_pid(caplog) != pid
        assert not exists(pid)


async def test_a_broken_connection_does_not_cost_a_living_worker(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "s"
    async with supervised(command(socket, tokenizer_folder), socket) as supervisor:
        await supervisor.wait_ready()
        await supervisor.recheck()
        assert supervisor.is_ready
        assert exists(worker_pid(caplog))


async def test_a_worker_that_cannot_start_is_tried_again_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "s"
    async with supervised(command(socket, tmp_path / "nowhere"), socket, wait_s=30.0) as supervisor:
        while supervisor.num_restarts < 3:
            with pytest.raises(EngineUnavailable):
                await supervisor.wait_ready(0.05)
        assert supervisor.last_error is not None
        assert "tokenizer.json" in supervisor.last_error
        with pytest.raises(EngineUnavailable, match="no engine came up") as refusal:
            await supervisor.wait_ready(0.0)
        assert refusal.value.retry_after_s == 1
    assert pauses(caplog)[:3] == [0.01, 0.02, 0.02]


async def test_after_a_long_life_the_pause_is_short_again(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "s"
    async with supervised(
        command(socket, tokenizer_folder), socket, backoff=Backoff(first_s=0.01, longest_s=9.0), stable_s=0.0
    ) as supervisor:
        for num_restarts in range(1, 4):
            await supervisor.wait_ready()
            os.kill(worker_pid(caplog), signal.SIGKILL)
            while supervisor.num_restarts < num_restarts:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert pauses(caplog) == [0.01] * 3


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["/nonexistent/engine"], "cannot start /nonexistent/engine"),
        ([sys.executable, "-c", "import nonexistent_module"], "exit status 1: ModuleNotFoundError"),
        ([sys.executable, "-c", "print('x' * 3_000_000)"], "exit status 0"),
        ([sys.executable, "-c", "import time; time.sleep(3600)"], "did not answer within 0.3 s"),
    ],
)
async def test_the_last_error_says_how_a_worker_ended(tmp_path: Path, arguments: list[str], reason: str) -> None:
    async with supervised(arguments, tmp_path / "s", start_timeout_s=0.3) as supervisor:
        while supervisor.num_restarts < 1:
            with pytest.raises(EngineUnavailable):
                await supervisor.wait_ready(0.05)
        assert supervisor.last_error is not None
        assert reason in supervisor.last_error


async def test_only_so_many_requests_wait(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", "import time; time.sleep(3600)"]
    async with supervised(arguments, tmp_path / "s", max_waiting=2, wait_s=0.2) as supervisor:
        waiting = [asyncio.create_task(supervisor.wait_ready()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(EngineUnavailable, match="2 requests wait"):
            await supervisor.wait_ready(3600.0)
        for task in waiting:
            with pytest.raises(EngineUnavailable, match="no engine came up"):
                await task


async def test_a_worker_that_ignores_sigterm_is_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(3600)"
    async with supervised([sys.executable, "-c", code], tmp_path / "s", grace_s=0.1):
        while not any(record.getMessage() == "deaf" for record in caplog.records):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        pid = next(int(r.__dict__["worker_pid"]) for r in caplog.records if r.getMessage() == "deaf")
    assert not exists(pid)


async def test_a_cancelled_supervisor_leaves_no_process(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor.of_worker(command(tmp_path / "s", tokenizer_folder), tmp_path / "s", capabilities=SCRIPTED)
    running = asyncio.create_task(supervisor.run())
    await supervisor.wait_ready()
    running.cancel()
    await asyncio.wait((running,))
    assert not exists(worker_pid(caplog))


async def test_closing_the_iterator_reaches_the_worker(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    socket = tmp_path / "s"
    options = '{"tokens_per_s": 20, "replies": [{"match": "slow", "reply": "a b c d e f g h i j k l m n o p"}]}'
    async with supervised(command(socket, tokenizer_folder, options), socket) as supervisor:
        engine = supervisor.engine
        async with aclosing(engine.generate(ask(chat(tokenizer, "slow")))) as deltas:
            await anext(deltas)
        assert (await whole(engine, ask(chat(tokenizer, "hello"), max_tokens=2))).finish_reason == "length"


_GATED = """
import asyncio, os, signal, sys
from pathlib import Path
from openclaw_rl.engine.scripted import ScriptedEngine, ScriptedOptions
from openclaw_rl.engine.worker.process import run_worker

socket, folder, gate = map(Path, sys.argv[1:])

class Gated(ScriptedEngine):
    async def publish(self, publication):
        if publication.version == "v9" or gate.with_name("deadly").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        with gate.with_name("knocks").open("a") as knocks:
            print(publication.version, file=knocks)
        while not gate.exists():
            await asyncio.sleep(0.01)
        await super().publish(publication)

sys.exit(run_worker(socket, lambda: Gated(folder, ScriptedOptions())))
"""


class Gate:
    """Publications go through a worker of this command only while the gate is open."""

    def __init__(self, folder: Path, tokenizer_folder: Path) -> None:
        self.socket = folder / "s"
        self._gate = folder / "gate"
        self.command = [sys.executable, "-c", _GATED, str(self.socket), str(tokenizer_folder), str(self._gate)]

    def open(self) -> None:
        self._gate.touch()

    def close(self) -> None:
        self._gate.unlink()
        self._gate.with_name("knocks").unlink()

    async def knocks(self) -> list[str]:
        """The versions that have come to the gate, as soon as there is one."""
        while not self._gate.with_name("knocks").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return self._gate.with_name("knocks").read_text().split()


async def next_worker(supervisor: Supervisor, caplog: pytest.LogCaptureFixture) -> None:
    """Kills the worker; returns when the supervisor knows."""
    num_restarts = supervisor.num_restarts
    os.kill(worker_pid(caplog), signal.SIGKILL)
    while supervisor.num_restarts == num_restarts:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_a_change_shows_at_once(tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    socket = tmp_path / "s"
    async with supervised(command(socket, tokenizer_folder), socket) as supervisor:
        engine = supervisor.engine
        for change, versions, live in (
            (engine.publish(saved(tmp_path, "v1")), ("v0", "v1"), "v1"),
            (engine.publish(saved(tmp_path, "v2", live=False)), ("v0", "v1", "v2"), "v1"),
            (engine.publish(saved(tmp_path, "v2")), ("v0", "v1", "v2"), "v2"),
            (engine.retire("v1"), ("v0", "v2"), "v2"),
            (engine.publish(BASE_AGAIN), ("v0", "v2"), "v0"),
        ):
            await change
            state = supervisor.state
            assert state is not None
            assert (state.versions, state.live_version) == (versions, live)
            assert await engine.state() is state, "known, not asked for"
            assert (await whole(engine, ask(chat(tokenizer, "hello")))).version == live


async def test_a_new_worker_has_the_versions_before_it_is_ready(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "s"
    async with supervised(command(socket, tokenizer_folder), socket) as supervisor:
        engine = supervisor.engine
        for publication in (saved(tmp_path, "v1"), saved(tmp_path, "v2"), saved(tmp_path, "v3", live=False)):
            await engine.publish(publication)
        await engine.retire("v1")
        for _ in range(2):
            await next_worker(supervisor, caplog)
            state = await engine.state()
            assert (state.versions, state.live_version) == (("v0", "v2", "v3"), "v2")
            assert (await whole(engine, ask(chat(tokenizer, "hello")))).version == "v2"
            assert (await whole(engine, ask(chat(tokenizer, "hello"), version="v3"))).version == "v3"


async def test_a_version_that_is_gone_does_not_keep_the_engine_down(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "s"
    async with supervised(command(socket, tokenizer_folder), socket) as supervisor:
        engine = supervisor.engine
        for label in ("v1", "v2"):
            await engine.publish(saved(tmp_path, label))
        (tmp_path / "v2" / "adapter_model.safetensors").unlink()
        await next_worker(supervisor, caplog)
        state = await engine.state()
        assert (state.versions, state.live_version) == (("v0", "v1"), "v1")
    assert "version v2 was live and is lost; v1 takes its place" in caplog.messages


async def test_a_version_that_kills_every_worker_does_not_keep_the_engine_down(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(tmp_path, tokenizer_folder)
    gate.open()
    async with supervised(gate.command, gate.socket) as supervisor:
        engine = supervisor.engine
        await engine.publish(saved(tmp_path, "v1"))
        (tmp_path / "deadly").touch()
        await next_worker(supervisor, caplog)
        state = await engine.state()
        assert (state.versions, state.live_version) == (("v0",), "v0")
        assert supervisor.num_restarts == 4
    assert [text for text in caplog.messages if "ended" in text] == ["engine ended: it died of SIGKILL"] * 4


async def test_a_worker_that_says_ready_and_is_not_is_replaced(tmp_path: Path) -> None:
    code = """import time; print('{"event": "ready", "level": "info"}', flush=True); time.sleep(3600)"""
    async with supervised([sys.executable, "-c", code], tmp_path / "s") as supervisor:
        while supervisor.num_restarts < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert supervisor.last_error is not None
        assert "could not be made ready: the engine does not answer" in supervisor.last_error


_FOREIGN = """
import socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print('{"event": "ready", "level": "info"}', flush=True)
while True:
    connection, _ = listening.accept()
    connection.recv(9999)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
"""


async def test_a_worker_that_speaks_another_language_is_no_secret(tmp_path: Path) -> None:
    """Such a worker is a defect of ours: waiting for it would hide that."""
    supervisor = Supervisor.of_worker(
        [sys.executable, "-c", _FOREIGN, str(tmp_path / "s")], tmp_path / "s", capabilities=SCRIPTED
    )
    with pytest.raises(KeyError):
        await supervisor.run()


async def test_while_versions_are_loaded_again_everybody_waits(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(tmp_path, tokenizer_folder)
    async with supervised(gate.command, gate.socket) as supervisor:
        engine = supervisor.engine
        gate.open()
        await engine.publish(saved(tmp_path, "v1"))
        gate.close()
        await next_worker(supervisor, caplog)
        answer = asyncio.ensure_future(whole(engine, ask(chat(tokenizer, "hello"))))
        publishing = asyncio.ensure_future(engine.publish(saved(tmp_path, "v2")))
        await gate.knocks()
        assert not supervisor.is_ready
        assert supervisor._life is not None
        supervisor._life.kill_unstarted("loading takes longer than starting may")
        gate.open()
        assert (await answer).version == "v1"
        await publishing
        assert supervisor.num_restarts == 1, "loading was not taken for a worker that does not start"
        assert (await engine.state()).versions == ("v0", "v1", "v2")


async def test_one_change_comes_after_the_other(tokenizer_folder: Path, tmp_path: Path) -> None:
    gate = Gate(tmp_path, tokenizer_folder)
    async with supervised(gate.command, gate.socket) as supervisor:
        engine = supervisor.engine
        first = asyncio.ensure_future(engine.publish(saved(tmp_path, "v2")))
        await gate.knocks()
        second = asyncio.ensure_future(engine.publish(saved(tmp_path, "v1")))
        for _ in range(3):
            await supervisor.worker.state()  # long enough for the second to have arrived, had it been sent
        assert await gate.knocks() == ["v2"]
        gate.open()
        await asyncio.gather(first, second)
        state = await engine.state()
        assert (state.versions, state.live_version) == (("v0", "v2", "v1"), "v1")


async def test_a_change_goes_on_when_its_caller_leaves(tokenizer_folder: Path, tmp_path: Path) -> None:
    gate = Gate(tmp_path, tokenizer_folder)
    async with supervised(gate.command, gate.socket) as supervisor:
        engine = supervisor.engine
        left = asyncio.ensure_future(engine.publish(saved(tmp_path, "v1")))
        await gate.knocks()
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        gate.open()
        await engine.publish(saved(tmp_path, "v2", live=False))  # comes after it
        state = await engine.state()
        assert (state.versions, state.live_version) == (("v0", "v1", "v2"), "v1")


async def test_a_change_that_failed_is_forgotten(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(tmp_path, tokenizer_folder)
    gate.open()
    async with supervised(gate.command, gate.socket) as supervisor:
        engine = supervisor.engine
        await engine.publish(saved(tmp_path, "v1"))
        damaged = saved(tmp_path, "v2")
        (tmp_path / "v2" / "adapter_model.safetensors").write_text("half")
        with pytest.raises(EngineRefused):
            await engine.publish(damaged)
        with pytest.raises(EngineRefused):
            await engine.retire("v1")
        with pytest.raises(EngineLost):
            await engine.publish(saved(tmp_path, "v9"))
        assert not supervisor.is_ready, "the death is known before the caller hears of it"
        state = await engine.state()
        assert (state.versions, state.live_version) == (("v0", "v1"), "v1")
        assert supervisor.num_restarts == 1


async def test_closing_ends_a_change_that_waits(tokenizer_folder: Path, tmp_path: Path) -> None:
    gate = Gate(tmp_path, tokenizer_folder)
    async with supervised(gate.command, gate.socket) as supervisor:
        engine = supervisor.engine
        publishing = asyncio.ensure_future(engine.publish(saved(tmp_path, "v1")))
        await gate.knocks()
        await engine.close()
        await asyncio.wait((publishing,))
        assert publishing.cancelled() or isinstance(publishing.exception(), EngineError)


async def test_scores_pass_through_and_wait_for_the_worker(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "s"
    request = ScoreRequest(request_id="s", sequences=((1, 2, 3),), starts=(1,))
    async with supervised(command(socket, tokenizer_folder), socket) as supervisor:
        engine = supervisor.engine
        (first,) = await engine.score(request)
        assert len(first.logprobs) == 2
        await next_worker(supervisor, caplog)
        assert await engine.score(request) == (first,)


async def test_a_worker_that_is_gone_took_its_cache_with_it(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "s"
    async with supervised(command(socket, tokenizer_folder), socket) as supervisor:
        engine = supervisor.engine
        await engine.state()
        await engine.forget_cache({"5a17"})
        os.kill(worker_pid(caplog), signal.SIGKILL)
        await engine.forget_cache({"5a17"})  # it is not seen to be dead yet
        assert not supervisor.is_ready
        await engine.forget_cache({"5a17"})  # and now nobody is asked


async def test_a_score_that_is_lost_says_so(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "s"
    slow = command(socket, tokenizer_folder, '{"first_token_delay_s": 3600}')
    async with supervised(slow, socket) as supervisor:
        engine = supervisor.engine
        await engine.state()
        scoring = asyncio.ensure_future(engine.score(ScoreRequest(request_id="s", sequences=((1, 2),), starts=(1,))))
        await asyncio.sleep(0.05)
        os.kill(worker_pid(caplog), signal.SIGKILL)
        with pytest.raises(EngineLost):
            await scoring
        assert not supervisor.is_ready
