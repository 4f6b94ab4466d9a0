"""Kills, failing disks and torn logs: what was acknowledged is there, byte for byte, and the store goes on by itself.

A killed process leaves its page cache behind, so kills alone prove nothing about a power cut: the torn and flipped
logs stand for that.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from openclaw_rl.faults import CRASH_POINTS
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.store.sqlite.migrations import SCHEMA_VERSION
from openclaw_rl.types import Turn
from tests.factories.turns import SESSION, make_conversation, make_session, make_turn
from tests.faults.judging_child import LEARNING
from tests.faults.store_child import SCENARIOS, session_turns
from tests.faults.training_child import TRAINING

ROOT = Path(__file__).parents[2]
NUM_IMAGES = 120
SERVING = [n for n in CRASH_POINTS if n.startswith("store.") and n not in (*LEARNING, *TRAINING)]


def _start(*arguments: str, crash_at: str = "") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.faults.store_child", *arguments]
    environment = {**os.environ, "OPENCLAW_RL_CRASH_AT": crash_at}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, bufsize=0)


def _acknowledged(output: bytes) -> dict[str, int]:
    """The last turn of each session that the child knew to be on disk. The last line may be torn."""
    lines = [line.split() for line in output.decode().splitlines(keepends=True) if line.endswith("\n")]
    return {session: int(index) for session, index in lines}


def _audit(directory: Path, acknowledged: dict[str, int]) -> None:
    """Every acknowledged turn is there, no session has a gap, and everything that is there is exact."""
    reader = StoreReader.open(directory)
    stored = {summary.session.id: reader.turns(summary.session.id) for summary in reader.sessions()}
    for session, index in acknowledged.items():
        assert len(stored[session]) > index, f"turn {index} of {session} was acknowledged and is gone"
    stored.pop("after", None)
    for session, turns in stored.items():
        assert [replace(turn, delivered=False) for turn in turns] == session_turns(session)[: len(turns)]


async def _goes_on(directory: Path) -> None:
    async with await SqliteStore.open(directory) as store:
        await store.put_session(make_session("after"))
        await store.put_turn(make_turn(session="after"))
        assert await store.get_turn("after", 0) == make_turn(session="after")
    async with await SqliteStore.open(directory) as store:
        assert store.recovery.wal_bytes == 0


@pytest.mark.parametrize("passes", [1, 8])
@pytest.mark.parametrize("name", SERVING)
async def test_killed_at_a_named_place(tmp_path: Path, name: str, passes: int) -> None:
    child = _start("stream", str(tmp_path), "r", crash_at=f"{name}:{passes}")
    output, _ = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL
    acknowledged = _acknowledged(output)
    assert bool(acknowledged) == (passes == 8 and name != "store.in_migration")
    async with await SqliteStore.open(tmp_path) as store:
        half_made = name == "store.in_migration" or (name, passes) == ("store.in_checkpoint", 1)
        assert store.recovery.schema_from == (0 if half_made else SCHEMA_VERSION)
    _audit(tmp_path, acknowledged)
    await _goes_on(tmp_path)


@pytest.mark.parametrize("num_kills", [8, pytest.param(48, marks=pytest.mark.hardening)])
def test_killed_at_any_time(tmp_path: Path, num_kills: int) -> None:
    """One directory, killed over and over: while writing, and every third time while it starts and recovers."""
    dice = random.Random(20)
    acknowledged: dict[str, int] = {}
    for number in range(num_kills):
        child = _start("stream", str(tmp_path), f"r{number}")
        assert child.stdout is not None
        early = number % 3 == 2
        first = b"" if early else child.stdout.readline()
        time.sleep(dice.uniform(0.0, 0.6 if early else 0.1))
        child.kill()
        rest, _ = child.communicate(timeout=60)
        assert child.returncode == -signal.SIGKILL
        acknowledged |= _acknowledged(first + rest)
    assert len(acknowledged) >= num_kills // 2
    _audit(tmp_path, acknowledged)
    asyncio.run(_goes_on(tmp_path))
    _audit(tmp_path, acknowledged)


async def test_what_was_found_after_a_kill_is_reported(tmp_path: Path) -> None:
    _start("stream", str(tmp_path), "r", crash_at="store.after_commit:5").communicate(timeout=60)
    left = (tmp_path / "store.sqlite3-wal").stat().st_size
    async with await SqliteStore.open(tmp_path) as store:
        assert store.recovery.wal_bytes == left > 0
        assert left > 0


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_disk_that_fails_and_recovers(tmp_path: Path, scenario: str) -> None:
    """Nothing is acknowledged while it fails, the answer says what to do, and the next put after it works again."""
    child = _start(scenario, str(tmp_path))
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    answers = dict(line.split(" ", 1) for line in output.decode().splitlines())
    failing = [name for name, answer in answers.items() if answer != "stored"]
    assert failing == [name for name in ("failed", "again") if name in answers]
    for name in failing:
        assert answers[name].startswith("StoreUnavailable")
        assert "nothing of this was acknowledged" in answers[name]
        assert "free some space" in answers[name]
    if scenario == "checkpoint_error":
        before, _, after = session_turns("s")[:3]
        expected = [before, after]
    else:
        before, early, _, _, after, last = session_turns("s")[:6]
        expected = [before, early, make_conversation(3, session="s", words=50)[2], after, last]
    assert StoreReader.open(tmp_path).turns("s") == expected
    await _goes_on(tmp_path)


async def test_a_torn_or_flipped_log_gives_back_an_exact_prefix(tmp_path: Path) -> None:
    """Power cuts and rot: damage at one place of the log costs what was written there and later, nothing before."""
    assert await tear_logs(tmp_path, num_images=NUM_IMAGES) > 20


async def tear_logs(tmp_path: Path, *, num_images: int) -> int:
    """How many different prefixes were recovered, each of them exact."""
    turns = make_conversation(30, words=20)
    origin, copy = tmp_path / "origin", tmp_path / "copy"
    wal = origin / "store.sqlite3-wal"
    async with await SqliteStore.open(origin):
        pass
    async with await SqliteStore.open(origin, checkpoint_bytes=2**40) as store:
        await store.put_session(make_session())
        ends = []
        for turn in turns:
            await store.put_turn(turn)
            ends.append(wal.stat().st_size)
        database, log = (origin / "store.sqlite3").read_bytes(), wal.read_bytes()

    copy.mkdir(mode=0o700)
    dice = random.Random(11)
    lengths = set()
    for number in range(num_images):
        at = dice.randrange(len(log))
        (copy / "store.sqlite3").write_bytes(database)
        (copy / "store.sqlite3-wal").write_bytes(_DAMAGES[number % len(_DAMAGES)](log, at, dice))
        (copy / "store.sqlite3-shm").unlink(missing_ok=True)
        async with await SqliteStore.open(copy):
            found: list[Turn] = StoreReader.open(copy).turns(SESSION)
        assert found == turns[: len(found)]
        assert len(found) >= sum(end <= at for end in ends)
        lengths.add(len(found))
    await _goes_on(copy)
    return len(lengths)


_DAMAGES: tuple[Callable[[bytes, int, random.Random], bytes], ...] = (
    lambda log, at, _: log[:at],
    lambda log, at, _: log[:at] + bytes(len(log) - at),
    lambda log, at, dice: log[:at] + bytes([log[at] ^ (1 << dice.randrange(8))]) + log[at + 1 :],
    lambda log, at, dice: log[:at] + dice.randbytes(len(log) - at),
)


async def test_a_store_that_is_stopped_in_the_middle_answers_everybody(tmp_path: Path) -> None:
    """The commit task is cancelled under its callers, as when an event loop is torn down: nobody hangs."""
    store = await SqliteStore.open(tmp_path)
    await store.put_session(make_session())
    puts = [store.put_turn(make_turn(index)) for index in range(300)]
    await asyncio.sleep(0)
    (committer,) = [task for task in asyncio.all_tasks() if task.get_name() == "store-commit"]
    committer.cancel()
    results = await asyncio.wait_for(asyncio.gather(*puts, return_exceptions=True), 10)
    assert all(result is not None for result in results)
    await store.close()
    await _goes_on(tmp_path)
