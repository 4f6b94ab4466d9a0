"""The store as those who only look see it. Blocking; every answer is one consistent snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from openclaw_rl.config import StoreConfig
from openclaw_rl.protocols import ReadStore
from openclaw_rl.store import StoreReader, database_path, trailing_bytes
from openclaw_rl.store.audit import Audited, Damage, audit


def open_rows(store: StoreConfig) -> ReadStore:
    """StoreError if there is no store, or one that this release cannot read."""
    return StoreReader.open(store.data_dir, store.url)


def has_store(store: StoreConfig) -> bool:
    return database_path(store.data_dir, store.url).is_file()


def damaged_rows(store: StoreConfig, audited: Audited) -> Iterator[Damage]:
    """Every row and file that is not what its digest says; counts in `audited` what was compared."""
    yield from audit(StoreReader.open(store.data_dir, store.url), audited)


def stray_bytes(store: StoreConfig) -> int:
    """Bytes behind the end of the database, which are no part of it."""
    return trailing_bytes(database_path(store.data_dir, store.url))
