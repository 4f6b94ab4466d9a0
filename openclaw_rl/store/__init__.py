"""The durable log: what must survive, and the only thing that the loops share. One writer, any number of readers.

sql/          the tables and every query on them, for any database that SQLAlchemy speaks
sqlite/       what is true of SQLite only: the file, its lock, its faults, the writer and the reader
learning_log  `protocols.LearningStore`: each query as one transaction, and who is woken by it
"""

from openclaw_rl.store.sqlite.connection import OLDEST_SQLITE
from openclaw_rl.store.sqlite.damage import had_store, told_of, trailing_bytes
from openclaw_rl.store.sqlite.directory import database_path
from openclaw_rl.store.sqlite.reader import StoreReader
from openclaw_rl.store.sqlite.writer import SqliteStore

__all__ = [
    "OLDEST_SQLITE",
    "SqliteStore",
    "StoreReader",
    "database_path",
    "had_store",
    "told_of",
    "trailing_bytes",
]
