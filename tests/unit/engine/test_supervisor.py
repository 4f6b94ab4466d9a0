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

import pytest
from tokenizers import Tokenizer

from openclaw_rl.engine.supervisor import SupervisedEngine, Supervisor
from openclaw_rl.errors import EngineLost, EngineUnavailable
from tests.unit.engine.prompts import ask, chat, until_error, whole
from tests.unit.engine.test_worker_process import command


@asynccontextmanager
async def supervised(arguments: Sequence[str], socket: Path, **options: Any) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(arguments, socket, **{"backoff_s": 0.01, "max_backoff_s": 0.02, **options})
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
        engine = SupervisedEngine(supervisor)
        state = await engine.state()
        assert state.model == tokenizer_folder.name
        assert supervisor.state == state
        readiness.append(supervisor.is_ready)
        assert (await whole(engine, ask(chat(tokenizer, "hello")))).finish_reason == "stop"
        pid = worker_pid(caplog)
    assert not exists(pid)
    assert [*readiness, supervisor.is_ready] == [False, True, False]
    assert supervisor.num_restarts == 0


async def test_a_worker_that_is_killed_comes_back(
    tokenizer_folder: Path, tokenizer: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "s"
    async with supervised(command(socket, tokenizer_folder), socket) as supervisor:
        engine = SupervisedEngine(supervisor)
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
        engine = SupervisedEngine(supervisor)
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
        engine = SupervisedEngine(supervisor)
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
        engine = SupervisedEngine(supervisor)
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
    async with supervised(command(socket, tokenizer_folder), socket, max_backoff_s=9.0, stable_s=0.0) as supervisor:
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
    supervisor = Supervisor(command(tmp_path / "s", tokenizer_folder), tmp_path / "s")
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
        engine = SupervisedEngine(supervisor)
        async with aclosing(engine.generate(ask(chat(tokenizer, "slow")))) as deltas:
            await anext(deltas)
        assert (await whole(engine, ask(chat(tokenizer, "hello"), max_tokens=2))).finish_reason == "length"
