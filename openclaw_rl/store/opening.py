"""Which database a store is in, by its URL: the one place that chooses."""

from __future__ import annotations

from pathlib import Path

from openclaw_rl.store.postgres.reader import PostgresReader
from openclaw_rl.store.postgres.writer import PostgresStore
from openclaw_rl.store.sqlite.reader import StoreReader
from openclaw_rl.store.sqlite.writer import SqliteStore


async def open_writer(
    directory: Path, url: str | None = None, *, commit_window_s: float = 0.0, checkpoint_bytes: int = 2**20
) -> SqliteStore | PostgresStore:
    """The store of this data directory, or the shared one at this URL. StoreError with the remedy if it cannot be."""
    if url is None:
        return await SqliteStore.open(directory, commit_window_s=commit_window_s, checkpoint_bytes=checkpoint_bytes)
    return await PostgresStore.open(directory, url, commit_window_s=commit_window_s)


def open_reader(directory: Path, url: str | None = None) -> StoreReader | PostgresReader:
    """The same for those who only look."""
    return StoreReader.open(directory) if url is None else PostgresReader.open(url)
