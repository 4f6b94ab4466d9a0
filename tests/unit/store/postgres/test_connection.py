"""What cannot be connected to is said in one sentence, with the remedy and without the password."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from openclaw_rl.errors import StoreError
from openclaw_rl.store import PostgresStore, open_reader
from openclaw_rl.store.postgres.connection import connect
from openclaw_rl.store.postgres.text import escape, unescape
from tests.postgres import LOCKED, PASSWORD, Postgres


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://ann@db/x", "write postgresql\\+psycopg://"),
        ("mysql://ann@db/x", "'mysql', which no store is kept in: leave it out for SQLite"),
        ("nonsense", "is no database URL; write postgresql\\+psycopg://USER@HOST/DATABASE"),
        ("postgresql+psycopg://ann@127.0.0.1:1/x", "refused.*start PostgreSQL, or check host and port"),
        ("postgresql+psycopg://ann@host.invalid/x", "check the host in store.url"),
    ],
)
async def test_an_address_that_leads_nowhere(tmp_path: Path, url: str, why: str) -> None:
    with pytest.raises(StoreError, match=why) as raised:
        await PostgresStore.open(tmp_path, url)
    assert "\n" not in str(raised.value)
    with pytest.raises(StoreError, match=why):
        open_reader(tmp_path, url)


async def test_what_the_server_refuses(tmp_path: Path, postgres: Postgres) -> None:
    refusals = {
        postgres.url(user=LOCKED).replace(f"{LOCKED}@", f"{LOCKED}:wrong@"): "check user and password",
        postgres.url(user="nobody-here"): "check the user in store.url",
        postgres.url(database="missing"): "make it with `createdb`",
        postgres.url(user=LOCKED).replace(f"{LOCKED}@", f"{LOCKED}:{PASSWORD}@"): "GRANT CREATE, USAGE ON SCHEMA",
    }
    for number, (url, remedy) in enumerate(refusals.items()):
        with pytest.raises(StoreError, match=remedy) as raised:
            await PostgresStore.open(tmp_path / str(number), url)
        assert "\n" not in str(raised.value)
        assert "wrong" not in str(raised.value)


async def test_without_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"pip install 'openclaw-rl\[postgres\]'"):
        await PostgresStore.open(tmp_path, "postgresql+psycopg://ann@db/x")


def test_nobody_who_only_looks_can_write_or_see_a_store_that_is_not_there(tmp_path: Path, url: str) -> None:
    with pytest.raises(StoreError, match="there is no store in the database"):
        open_reader(tmp_path, url)
    with connect(url, reads_only=True) as connection, pytest.raises(Exception, match="read-only transaction"):
        connection.exec_driver_sql("CREATE TABLE x (y TEXT)")


@pytest.mark.parametrize("text", ["a\0b", "\x1b0", "\x1b", "\0\x1b\0\x1b11", "", "ä"])
def test_any_text_comes_back(url: str, text: str) -> None:
    assert unescape(escape(text)) == text
    with connect(url, reads_only=True) as connection:
        assert connection.exec_driver_sql("SELECT %s::text", (text,)).scalar_one() == text
