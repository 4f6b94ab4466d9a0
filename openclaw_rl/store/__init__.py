"""The durable log: SQLite in the data directory, one writer, any number of readers.

codec     ids, log-probs, JSON <-> bytes          encode    nouns -> rows         decode    rows -> nouns
schema    the tables                              migrations  older tables -> these
directory paths, modes, the writer's lock         sqlite    what is true of SQLite only
batch     many writes -> few statements           database  the writing connection, fail-stop
writer    SqliteStore: queue, group commit        reader    StoreReader: looks, never changes
queries   the questions that both are asked       views     answers that are no noun of `types`
tasks     leases on work that is open             lessons   judgements, credits, samples
steps     steps and versions                      undoing   lessons that are taken back
rollouts  turns that are settled, in order        learning_log  LearningLog: tasks and lessons, for the loops
"""

from openclaw_rl.store.reader import StoreReader
from openclaw_rl.store.views import Recovery, SessionSummary
from openclaw_rl.store.writer import SqliteStore

__all__ = ["Recovery", "SessionSummary", "SqliteStore", "StoreReader"]
