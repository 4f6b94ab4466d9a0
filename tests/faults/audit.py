"""What must be true of the store after any crash, checked from outside, while the recovered server runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from openclaw_rl.protocols import Renderer
from openclaw_rl.store import StoreReader
from openclaw_rl.types import Turn, split_turn_id
from tests.faults.crowd import Ask, Chat


def check_sound(data_dir: Path) -> None:
    """The file is whole, and no request has two turns."""
    database = f"file:{data_dir / 'store.sqlite3'}?mode=ro"
    with closing(sqlite3.connect(database, uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        twice = 'SELECT session, "index" FROM turn GROUP BY request_digest HAVING COUNT(*) > 1'
        assert connection.execute(twice).fetchall() == [], "a retry became a second turn"


def check_answers(data_dir: Path, renderer: Renderer, chats: Iterable[Chat]) -> None:
    """Every answer whose end was delivered is stored as it was delivered, token by token, under the name it bore."""
    reader = StoreReader.open(data_dir)
    for chat in chats:
        parent: Turn | None = None
        for ask in (ask for ask in chat.asks if ask.text is not None):
            assert ask.text == ask.expected
            turn = _stored(reader, ask)
            assert turn.message.content == renderer.decode(turn.completion.token_ids) == ask.text
            assert [{"role": m.role, "content": m.content} for m in turn.messages] == ask.messages
            assert (turn.completion.finish_reason, turn.skip) == ("stop", None)
            assert turn.completion.version_spans[-1].end == len(turn.completion.token_ids)
            if parent is None:
                assert turn.parent is None
            else:
                assert (turn.session, turn.parent) == (parent.session, parent.index)
                lineage = parent.prompt_ids + parent.completion.token_ids
                assert turn.prompt_ids[: len(lineage)] == lineage
                assert set(ask.turn_ids) == {turn.id}, "a retry in a known session got another name"
            parent = turn


def _stored(reader: StoreReader, ask: Ask) -> Turn:
    turn = reader.turn(*split_turn_id(ask.turn_ids[-1]))
    assert turn is not None, f"the answer {ask.turn_ids[-1]} was delivered and is gone"
    for name in set(ask.turn_ids) - {turn.id}:
        assert reader.turn(*split_turn_id(name)) is None, f"{name} was stored, yet the retry was named {turn.id}"
    return turn
