"""A store of today to one of an older schema version: what later migrations added is taken away again."""

from __future__ import annotations

from pathlib import Path

from openclaw_rl.store.sqlite.connection import connect_writer
from openclaw_rl.store.sqlite.migrations import MIGRATIONS

_ADDED = {
    11: ("ALTER TABLE api_key DROP COLUMN terms",),
    10: (
        "DROP INDEX session_closed",
        "ALTER TABLE session DROP COLUMN closed_seq",
        "DELETE FROM meta WHERE name = 'closed_seq'",
        "ALTER TABLE turn DROP COLUMN retrievable",
        "ALTER TABLE sample DROP COLUMN response_ids",
    ),
    9: (
        "ALTER TABLE version ADD COLUMN path TEXT NOT NULL DEFAULT ''",
        "UPDATE version SET path = substr(weights, 6) WHERE weights IS NOT NULL",
        "ALTER TABLE version DROP COLUMN weights",
        "ALTER TABLE task DROP COLUMN owner",
        "DROP INDEX next_state_seq",
        "ALTER TABLE next_state DROP COLUMN seq",
        "DROP INDEX session_episode",
        "ALTER TABLE session DROP COLUMN episode",
        "DROP TABLE episode",
        "ALTER TABLE judgement DROP COLUMN reward",
        *(statement for statement in map(str, MIGRATIONS[3]) if statement.startswith("CREATE TRIGGER")),
    ),
    8: ("ALTER TABLE turn DROP COLUMN label",),
    7: ("ALTER TABLE version DROP COLUMN model",),
    6: ("ALTER TABLE sample DROP COLUMN is_returned",),
    5: (
        "ALTER TABLE sample DROP COLUMN num_discarded",
        "ALTER TABLE step DROP COLUMN replayed_ids",
        "ALTER TABLE step DROP COLUMN num_anchors",
    ),
    4: ("DROP TABLE step", "DROP TABLE version"),
    3: (
        *(f"DROP TRIGGER {name}" for name in ("next_state_arrived", "feedback_arrived", "judgement_arrived")),
        *(f"DROP TRIGGER {name}" for name in ("session_opted_out", "turn_opted_out")),
        *(f"DROP TABLE {name}" for name in ("task", "judgement", "credit", "sample", "baseline")),
    ),
}


def make_older(directory: Path, version: int) -> None:
    """The store in this directory, which nobody has open."""
    connection = connect_writer(directory / "store.sqlite3")
    with connection.begin():
        for added, statements in _ADDED.items():
            for statement in statements if added > version else ():
                connection.exec_driver_sql(statement)
        connection.exec_driver_sql(f"UPDATE meta SET value = '{version}' WHERE name = 'schema_version'")
    connection.close()
