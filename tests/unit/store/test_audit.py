"""`doctor --deep` names each turn, session and version that is not what its digest says; all others stay readable."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from openclaw_rl.cli.doctor.examine import examine_deep
from openclaw_rl.config import StoreConfig
from openclaw_rl.store import StoreReader
from openclaw_rl.store.audit import Audited, audit
from tests.unit.store.test_backup import fill, flip


def change(data: Path, statement: str) -> None:
    with closing(sqlite3.connect(data / "store.sqlite3")) as connection, connection:
        assert connection.execute(statement).rowcount > 0


def named(data: Path) -> list[str]:
    return [damage.what for damage in audit(StoreReader.open(data), Audited())]


async def test_a_whole_store_is_counted(tmp_path: Path) -> None:
    await fill(tmp_path)
    audited = Audited()
    assert list(audit(StoreReader.open(tmp_path), audited)) == []
    assert (audited.num_sessions, audited.num_turns, audited.num_versions) == (2, 7, 1)
    (told,) = examine_deep(StoreConfig(data_dir=tmp_path))
    assert (told.state, told.text) == (
        "ok",
        "7 turns of 2 conversations, 1 versions: all are what their digests say",
    )


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE turn SET token_ids = x'00000000' WHERE session = 'talk' AND \"index\" = 5", ["turn talk.5"]),
        (
            "UPDATE message SET body = '{}' WHERE session = 'talk' AND digest = "
            "(SELECT answer FROM turn WHERE session = 'talk' AND \"index\" = 4)",
            ["turn talk.4", "turn talk.5"],
        ),
        (
            "UPDATE next_state SET messages = x'0102' WHERE session = 'lesson'",
            ["session lesson, what followed its turns"],
        ),
    ],
)
async def test_what_rotted_is_named_and_nothing_else(tmp_path: Path, statement: str, expected: list[str]) -> None:
    await fill(tmp_path)
    change(tmp_path, statement)
    assert named(tmp_path) == expected
    reader = StoreReader.open(tmp_path)
    assert reader.turn("talk", 3) is not None
    assert len(reader.sessions()) == 2
    found = list(examine_deep(StoreConfig(data_dir=tmp_path)))
    assert [one.state for one in found] == ["broken"] * len(expected) + ["remark"]
    assert all("restore a backup" in one.remedy for one in found[:-1])


async def test_weights_that_changed_or_are_gone_are_named(tmp_path: Path) -> None:
    await fill(tmp_path)
    weights = tmp_path / "versions" / "v1" / "weights" / "adapter_model.safetensors"
    flip(weights)
    assert named(tmp_path) == ["version v1"]
    weights.unlink()
    assert named(tmp_path) == ["version v1"]


async def test_a_damaged_page_is_told_with_what_it_held(tmp_path: Path) -> None:
    await fill(tmp_path)
    with closing(sqlite3.connect(tmp_path / "store.sqlite3")) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'api_key'").fetchone()
    with (tmp_path / "store.sqlite3").open("r+b") as file:
        file.seek(4096 * (page - 1))
        file.write(b"\x55" * 4096)
    assert set(named(tmp_path)) == {"the database"}
    assert StoreReader.open(tmp_path).turns("talk"), "what is whole is read past it"


async def test_bytes_behind_the_end_are_told(tmp_path: Path) -> None:
    await fill(tmp_path)
    with (tmp_path / "store.sqlite3").open("ab") as file:
        file.write(b"tail")
    told, _ = examine_deep(StoreConfig(data_dir=tmp_path))
    assert (told.state, told.text) == ("remark", "4 bytes stand behind the end of the database")
