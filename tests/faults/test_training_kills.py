"""kill -9 of the process that trains and releases, and of its trainer: the weights are those of an undisturbed run.

A store is filled once, and worked off without a kill for comparison; then from the same start again, killed at every
named place or at any time, until a run comes to its end: that one, which nobody kills, is in this process, with a
trainer of its own. Batches have replayed samples, anchors and dropout in them.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from openclaw_rl.faults import CRASH_POINTS
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.store import SqliteStore
from tests.factories.orders import sample
from tests.factories.stored import put_samples
from tests.faults.processes import wait_for
from tests.faults.training_child import CONTROL, CRASH_AT, TRAINING, WORKER
from tests.faults.training_child import main as work_off
from tests.tiny import build_tiny_model

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten samples of one line, and two of another."""
    directory = tmp_path_factory.mktemp("filled")
    samples = [sample(index, created_at=10.0 + index) for index in range(10)]
    samples += [sample(index, id=f"ann/{index}", line="ann", session="a", created_at=15.5) for index in (10, 11)]

    async def fill() -> None:
        async with await SqliteStore.open(directory) as store:
            await put_samples(store, samples)

    asyncio.run(fill())
    return directory


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, filled: Path, model: Path) -> Path:
    directory = tmp_path_factory.mktemp("undisturbed") / "store"
    shutil.copytree(filled, directory)
    asyncio.run(work_off(directory, model, []))
    return directory


def _start(directory: Path, model: Path, *places: str, crash_at: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.training_child", str(directory), str(model), *places],
        cwd=ROOT,
        env={**os.environ, CRASH_AT: crash_at},
        stdout=subprocess.PIPE,
        bufsize=0,
    )


def _end(child: subprocess.Popen[bytes]) -> int:
    child.communicate(timeout=120)
    return child.returncode


def _trainers(model: Path) -> list[psutil.Process]:
    """The trainer's processes, whoever their parent is now."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            if {"openclaw_rl.train.worker", str(model)} <= set(process.cmdline()):
                found.append(process)
    return found


def _rows(directory: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{directory / 'store.sqlite3'}?mode=ro", uri=True)) as database:
        return database.execute(query).fetchall()


STEPS = (
    "SELECT line, number, state, parent, seed, sample_ids, replayed_ids, num_anchors, reason FROM step ORDER BY 1, 2"
)
VERSIONS = (
    "SELECT line, number, parent, state, sha256, CASE state WHEN 'retired' THEN '' ELSE reason END"
    " FROM version ORDER BY 1, 2"
)
"""Whether a retired version ever answered, or was overtaken in a chain of steps, depends on when somebody died."""
SAMPLES = "SELECT id, line, step, num_discarded FROM sample ORDER BY 1"


def _check_same(directory: Path, expected: Path) -> None:
    for query in (STEPS, VERSIONS, SAMPLES):
        assert _rows(directory, query) == _rows(expected, query)
    for label, path, sha256 in _rows(directory, "SELECT line || number, substr(weights, 6), sha256 FROM version"):
        assert folder_sha256(Path(path)) == sha256, f"{label} is not what its row says"
    found = {folder.name for folder in (directory / "versions").iterdir()}
    assert found == {folder.name for folder in (expected / "versions").iterdir()}, "a folder too many, or too few"
    assert len(found) == len(_rows(directory, VERSIONS))


def test_without_a_kill_every_sample_is_learned_from_once(undisturbed: Path) -> None:
    """What the others are compared with is not empty."""
    steps = _rows(undisturbed, STEPS)
    assert [(line, number, state, parent) for line, number, state, parent, *_ in steps] == [
        ("ann", 1, "done", 0),
        *(("local", number, "done", number - 1) for number in (1, 2, 3, 4)),
    ]
    learned = Counter(name for step in steps for name in orjson.loads(step[5]))
    assert set(learned) == {row[0] for row in _rows(undisturbed, SAMPLES)}
    assert set(learned.values()) == {1}
    assert {row[0]: row[2] for row in _rows(undisturbed, SAMPLES)} == {
        name: step[1] for step in steps for name in orjson.loads(step[5])
    }
    assert [len(orjson.loads(step[6])) for step in steps] == [0, 0, 0, 0, 2], "the last batch is filled up"
    versions = _rows(undisturbed, VERSIONS)
    assert [state for *_, state, _, _ in versions] == ["live", "retired", "retired", "retired", "live"]
    assert len({sha256 for *_, sha256, _ in versions}) == 5


def test_every_place_of_training_is_one_to_be_killed_at() -> None:
    prefixes = ("train.", "trainer.", "release.", "store.in_step")
    assert {name for name in CRASH_POINTS if name.startswith(prefixes)} == set(TRAINING)
    assert len(TRAINING) >= 10


def test_the_process_that_trains_dies_at_every_named_place(
    tmp_path: Path, filled: Path, undisturbed: Path, model: Path
) -> None:
    """The first eight places lie in the order in which a step passes them: each start gets as far as the next one."""
    directory = tmp_path / "store"
    shutil.copytree(filled, directory)
    for place in CONTROL:
        assert _end(_start(directory, model, crash_at=place)) == -signal.SIGKILL, f"it did not die at {place}"
        wait_for(lambda: not _trainers(model), f"the killed process's trainer was gone ({place})")
    asyncio.run(work_off(directory, model, []))
    _check_same(directory, undisturbed)


def test_the_trainer_dies_at_every_named_place(tmp_path: Path, filled: Path, undisturbed: Path, model: Path) -> None:
    """The loop goes on with a new one. Each new one finishes what the last was at, and dies over the next step."""
    directory = tmp_path / "store"
    shutil.copytree(filled, directory)
    child = _start(directory, model, *(f"{place}:{1 if number == 0 else 2}" for number, place in enumerate(WORKER)))
    output, _ = child.communicate(timeout=120)
    assert child.returncode == 0
    assert output.split() == [b"ready", *[b"lost"] * len(WORKER)]
    assert not _trainers(model)
    _check_same(directory, undisturbed)


@pytest.mark.parametrize("num_kills", [3, pytest.param(20, marks=pytest.mark.hardening)])
def test_killed_at_any_time(tmp_path: Path, filled: Path, undisturbed: Path, model: Path, num_kills: int) -> None:
    """The process that trains, or every third time its trainer."""
    dice = random.Random(11)
    directory = tmp_path / "store"
    shutil.copytree(filled, directory)
    for number in range(num_kills):
        child = _start(directory, model)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(dice.uniform(0.0, 4.0))
        if number % 3 == 2:
            for trainer in _trainers(model):
                with suppress(psutil.NoSuchProcess):
                    trainer.kill()
            time.sleep(dice.uniform(0.0, 0.3))
        child.kill()
        child.communicate(timeout=60)
        wait_for(lambda: not _trainers(model), "the killed process's trainer was gone")
    asyncio.run(work_off(directory, model, []))
    _check_same(directory, undisturbed)
