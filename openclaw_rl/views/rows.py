"""The store as those who only look see it. Blocking; every answer is one consistent snapshot."""

from __future__ import annotations

from openclaw_rl.config import StoreConfig
from openclaw_rl.protocols import ReadStore
from openclaw_rl.store import StoreReader, database_path


def open_rows(store: StoreConfig) -> ReadStore:
    """StoreError if there is no store, or one that this release cannot read."""
    return StoreReader.open(store.data_dir, store.url)


def has_store(store: StoreConfig) -> bool:
    return database_path(store.data_dir, store.url).is_file()
