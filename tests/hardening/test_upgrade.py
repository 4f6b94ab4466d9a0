"""Stores that older releases wrote: each is upgraded whole, also when it is killed at a statement of its migration."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.store.audit import Audited, audit
from openclaw_rl.store.backup import back_up, restore
from openclaw_rl.store.sqlite.migrations import MIGRATIONS, SCHEMA_VERSION
from openclaw_rl.types import Turn
from tests.hardening.report import report

ROOT = Path(__file__).parents[2]
FIXTURES = sorted((ROOT / "tests" / "data" / "stores").glob("schema-*.sqlite3.gz"))


def unpack(fixture: Path, directory: Path) -> int:
    """Puts a fixture where a store lies; its schema version."""
    directory.mkdir(mode=0o700, parents=True)
    (directory / "store.sqlite3").write_bytes(gzip.decompress(fixture.read_bytes()))
    return int(fixture.name.split(".")[0].removeprefix("schema-"))


def num_statements(version: int) -> int:
    return sum(len(steps) for number, steps in MIGRATIONS.items() if number > version)


def killed_at(directory: Path, statement: int) -> None:
    """Starts the upgrade in a process of its own, which dies after this statement."""
    environment = {**os.environ, "OPENCLAW_RL_CRASH_AT": f"store.in_migration:{statement}"}
    command = [sys.executable, "-m", "tests.faults.store_child", "stream", str(directory), "r"]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL


async def upgraded(directory: Path) -> dict[str, list[Turn]]:
    async with await SqliteStore.open(directory) as store:
        assert store.recovery.schema_to == SCHEMA_VERSION
    reader = StoreReader.open(directory)
    # The fixtures' versions were never on this machine.
    assert [found.what for found in audit(reader, Audited()) if not found.what.startswith("version")] == []
    return {name: reader.turns(name) for name in reader.names()}


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=[pytest.mark.hardening, pytest.mark.timeout(900)])])
async def test_every_turn_is_there_after_the_upgrade(tmp_path: Path, fixture: Path, every: int) -> None:
    version = unpack(fixture, tmp_path / "whole")
    turns = await upgraded(tmp_path / "whole")
    assert sum(map(len, turns.values())) > 0
    statements = range(1, num_statements(version) + 1, every)
    for statement in statements:
        unpack(fixture, tmp_path / str(statement))
        killed_at(tmp_path / str(statement), statement)
        assert await upgraded(tmp_path / str(statement)) == turns
    back_up(tmp_path / "whole", tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "restored")
    assert await upgraded(tmp_path / "restored") == turns
    report("upgrade", fixture=fixture.name, turns=sum(map(len, turns.values())), kills=len(statements), lost=0)
