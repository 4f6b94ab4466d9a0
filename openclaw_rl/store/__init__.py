"""The durable log: what must survive, and the only thing that the loops share.

sql/          the tables, every query on them, the queue of what is to be written: for both databases
sqlite/       the default, a file in the data directory: its lock, its faults; one writer, any number of readers
postgres/     a store that several processes share: one of them writes at a time, each hears what others changed
opening       which of the two, by `store.url`
learning_log  `protocols.LearningStore`: each query as one transaction, and who is woken by it
"""

from openclaw_rl.store.opening import open_reader, open_writer
from openclaw_rl.store.postgres.server import PostgresFacts, server_facts
from openclaw_rl.store.postgres.writer import PostgresStore
from openclaw_rl.store.sql.writer import SqlStore
from openclaw_rl.store.sqlite.connection import OLDEST_SQLITE
from openclaw_rl.store.sqlite.damage import had_store, told_of, trailing_bytes
from openclaw_rl.store.sqlite.directory import database_path
from openclaw_rl.store.sqlite.reader import StoreReader
from openclaw_rl.store.sqlite.writer import SqliteStore

__all__ = [
    "OLDEST_SQLITE",
    "PostgresFacts",
    "PostgresStore",
    "SqlStore",
    "SqliteStore",
    "StoreReader",
    "database_path",
    "had_store",
    "open_reader",
    "open_writer",
    "server_facts",
    "told_of",
    "trailing_bytes",
]
