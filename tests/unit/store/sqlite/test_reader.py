"""Looking at the log: while a writer runs, after it stopped or died, and where there is nothing to look at."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection

from openclaw_rl.errors import StoreError
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.store.sqlite.migrations import SCHEMA_VERSION
from openclaw_rl.types import Turn
from tests.factories.turns import SESSION, make_conversation, make_session

TURNS = make_conversation(3)


async def _write(directory: Path) -> None:
    async with await SqliteStore.open(directory) as store:
        await store.put_session(make_session())
        for turn in TURNS:
            await store.put_turn(turn)


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


async def test_beside_a_running_writer_it_sees_what_is_committed(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path) as store:
        reader = StoreReader.open(tmp_path)
        assert reader.sessions() == []
        await store.put_session(make_session())
        for turn in TURNS:
            await store.put_turn(turn)
            assert reader.turns(SESSION)[-1] == turn
    assert reader.turns(SESSION) == TURNS


async def test_after_an_orderly_stop_it_creates_no_file(tmp_path: Path) -> None:
    await _write(tmp_path)
    assert _names(tmp_path) == {"store.sqlite3", "writer.lock"}
    assert StoreReader.open(tmp_path).turns(SESSION) == TURNS
    assert _names(tmp_path) == {"store.sqlite3", "writer.lock"}


async def test_after_a_killed_writer_it_reads_the_log(tmp_path: Path) -> None:
    """The files of a running writer, copied, are what a killed one leaves."""
    left = tmp_path / "left"
    async with await SqliteStore.open(tmp_path / "data") as store:
        await store.put_session(make_session())
        for turn in TURNS:
            await store.put_turn(turn)
        shutil.copytree(tmp_path / "data", left)
    before = (left / "store.sqlite3").read_bytes()
    assert StoreReader.open(left).turns(SESSION) == TURNS
    assert (left / "store.sqlite3").read_bytes() == before
    assert (left / "store.sqlite3-wal").stat().st_size > 0


async def test_a_writer_that_starts_in_between_is_noticed(tmp_path: Path) -> None:
    """Without a log the file is read as if nobody wrote it; an answer during which that changed is asked for again."""
    await _write(tmp_path)
    reader = StoreReader.open(tmp_path)
    asked: list[int] = []

    def count(connection: Connection) -> int:
        found = connection.exec_driver_sql("SELECT count(*) FROM turn").scalar_one()
        if not asked:
            with sqlite3.connect(tmp_path / "store.sqlite3", isolation_level=None) as other:
                other.execute("DELETE FROM turn")
            other.close()
        asked.append(found)
        return int(found)

    assert reader._ask(count) == 0
    assert asked == [3, 0]


async def test_it_cannot_write(tmp_path: Path) -> None:
    await _write(tmp_path)
    reader = StoreReader.open(tmp_path)
    with pytest.raises(StoreError, match="readonly"):
        reader._ask(lambda connection: connection.exec_driver_sql("DELETE FROM turn"))
    async with await SqliteStore.open(tmp_path):
        with pytest.raises(StoreError, match="readonly"):
            reader._ask(lambda connection: connection.exec_driver_sql("DELETE FROM turn"))


@pytest.mark.parametrize("exists", [True, False])
def test_no_store_yet(tmp_path: Path, exists: bool) -> None:
    directory = tmp_path if exists else tmp_path / "absent"
    with pytest.raises(StoreError, match=r"no store in .* `openclaw-rl up`"):
        StoreReader.open(directory)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite3").write_text("not a database " * 100)
    with pytest.raises(StoreError, match="its first bytes are no database"):
        StoreReader.open(tmp_path)


@pytest.mark.parametrize(("version", "remedy"), [(SCHEMA_VERSION + 1, "upgrade openclaw-rl"), (0, "to upgrade it")])
async def test_tables_of_another_release(tmp_path: Path, version: int, remedy: str) -> None:
    await _write(tmp_path)
    with sqlite3.connect(tmp_path / "store.sqlite3") as connection:
        connection.execute("UPDATE meta SET value = ?", (version,))
    connection.close()
    (tmp_path / "store.sqlite3-wal").unlink(missing_ok=True)
    with pytest.raises(StoreError, match=remedy):
        StoreReader.open(tmp_path)


async def test_nothing_is_found_under_a_wrong_name(tmp_path: Path) -> None:
    await _write(tmp_path)
    reader = StoreReader.open(tmp_path)
    assert reader.session("other") is None
    assert reader.turn(SESSION, 3) is None
    assert not reader.turns("other")
    assert not reader.next_states("other")
    assert not reader.feedback("other")


@pytest.mark.parametrize(
    "damage",
    [
        'UPDATE turn SET token_ids = zeroblob(length(token_ids)) WHERE "index" = 1',
        'UPDATE turn SET prompt_ids = zeroblob(length(prompt_ids)) WHERE "index" = 0',
        'UPDATE turn SET logprobs = zeroblob(length(logprobs)) WHERE "index" = 1',
        "UPDATE turn SET model = 'other' WHERE \"index\" = 1",
        "UPDATE turn SET skip = 'nonsense' WHERE \"index\" = 1",
        "UPDATE message SET body = CAST(replace(body, 'question', 'answered') AS BLOB)",
        "DELETE FROM message",
        'DELETE FROM turn WHERE "index" = 0',
    ],
)
async def test_a_damaged_turn_is_never_handed_out(tmp_path: Path, damage: str) -> None:
    await _write(tmp_path)
    with sqlite3.connect(tmp_path / "store.sqlite3") as connection:
        connection.execute(damage)
    connection.close()
    reader = StoreReader.open(tmp_path)
    with pytest.raises(StoreError, match="damaged|cannot be read"):
        reader.turn(SESSION, 1)
    with pytest.raises(StoreError, match="damaged|cannot be read"):
        reader.turns(SESSION)


async def test_a_flipped_bit_is_never_handed_out(tmp_path: Path) -> None:
    """Either the turn is exact, or there is an error; only what may still change (mark and skip) has no digest."""
    await _write(tmp_path / "data")
    image = (tmp_path / "data" / "store.sqlite3").read_bytes()
    copy = tmp_path / "copy" / "store.sqlite3"
    copy.parent.mkdir()
    dice = random.Random(7)
    refused = 0
    for _ in range(300):
        damaged = bytearray(image)
        damaged[dice.randrange(len(image))] ^= 1 << dice.randrange(8)
        copy.write_bytes(damaged)
        try:
            turns: list[Turn] = StoreReader.open(copy.parent).turns(SESSION)
        except StoreError:
            refused += 1
        else:
            exact = [turn for turn in turns if turn in TURNS]
            assert exact == turns
    assert refused > 10
