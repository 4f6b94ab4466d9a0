"""The store as those who only look see it. Blocking; every answer is one consistent snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from openclaw_rl.config import StoreConfig
from openclaw_rl.protocols import ReadStore
from openclaw_rl.store import database_path, open_reader, trailing_bytes
from openclaw_rl.store.audit import Audited, Damage, audit


def open_rows(store: StoreConfig) -> ReadStore:
    """StoreError if there is no store, or one that this release cannot read."""
    return open_reader(store.data_dir, store.url)


def has_store(store: StoreConfig) -> bool:
    """Whether there is a store, or, where it is on a server, whether it is to be asked."""
    return store.url is not None or database_path(store.data_dir).is_file()


def damaged_rows(store: StoreConfig, audited: Audited) -> Iterator[Damage]:
    """Every row and file that is not what its digest says; counts in `audited` what was compared."""
    yield from audit(open_reader(store.data_dir, store.url), audited)


def stray_bytes(store: StoreConfig) -> int:
    """Bytes behind the end of the database, which are no part of it."""
    return 0 if store.url is not None else trailing_bytes(database_path(store.data_dir))
