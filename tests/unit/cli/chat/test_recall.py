"""What the up key finds is what the store holds of the chat, as long as it holds it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from openclaw_rl.cli.chat.loop import CLIENT_NAME
from openclaw_rl.cli.chat.recall import said_before
from openclaw_rl.config import StoreConfig
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Message
from tests.factories.turns import make_session, make_turn


async def put(store: SqliteStore, name: str, *texts: str, seen_at: float, **changes: object) -> None:
    mine = {"user": "local", "client": CLIENT_NAME, "key": name, "last_seen_at": seen_at}
    await store.put_session(replace(make_session(name), **(mine | changes)))  # type: ignore[arg-type]
    for index, text in enumerate(texts):
        await store.put_turn(make_turn(index, session=name, messages=(Message(role="user", content=text),)))


async def test_it_is_the_local_users_public_words_in_order(tmp_path: Path) -> None:
    assert said_before(StoreConfig(data_dir=tmp_path)) == []
    async with await SqliteStore.open(tmp_path) as store:
        await put(store, "new", "third", "fourth", seen_at=9.0)
        await put(store, "old", "first", "two\nlines", seen_at=2.0)
        await put(store, "private", "hidden", seen_at=5.0, opted_out=True)
        await put(store, "anns", "hers", seen_at=5.0, user="ann")
        await put(store, "agents", "its", seen_at=5.0, client="codex")
        assert said_before(StoreConfig(data_dir=tmp_path)) == ["first", "two\nlines", "third", "fourth"]
        await store.lessons.delete_session("old")
        assert said_before(StoreConfig(data_dir=tmp_path)) == ["third", "fourth"]


def test_a_store_that_cannot_be_read_recalls_nothing(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite3").write_text("no database " * 100)
    assert said_before(StoreConfig(data_dir=tmp_path)) == []
