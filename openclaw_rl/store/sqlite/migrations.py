"""An older database to the tables of `schema.py`, one numbered step at a time, each whole or not at all.

A step is history: once released it is never edited, so it spells its SQL out instead of asking `schema.py`.
Version 0 is an empty file. The version stands in `meta` and changes in the same transaction as the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sqlalchemy import Connection, inspect, select
from sqlalchemy.dialects.sqlite import insert

from openclaw_rl.errors import StoreError
from openclaw_rl.faults import crash_point
from openclaw_rl.store.sql.schema import meta
from openclaw_rl.types import WeightsRef

Change = str | Callable[[Connection], None]


def _name_folders_by_uri(connection: Connection) -> None:
    rows = connection.exec_driver_sql("SELECT line, number, path, sha256 FROM version WHERE path != ''").all()
    for line, number, path, sha256 in rows:
        uri = WeightsRef.of_folder(Path(path), sha256).uri
        connection.exec_driver_sql("UPDATE version SET weights = ? WHERE line = ? AND number = ?", (uri, line, number))


MIGRATIONS: Mapping[int, Sequence[Change]] = {
    1: (
        "CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)",
        """CREATE TABLE api_key (
            id TEXT NOT NULL PRIMARY KEY, "user" TEXT NOT NULL, digest BLOB NOT NULL,
            created_at DOUBLE PRECISION NOT NULL, label TEXT NOT NULL, revoked_at DOUBLE PRECISION)""",
        "CREATE UNIQUE INDEX api_key_digest ON api_key (digest)",
        """CREATE TABLE session (
            id TEXT NOT NULL PRIMARY KEY, "user" TEXT NOT NULL, client TEXT NOT NULL,
            opened_at DOUBLE PRECISION NOT NULL, last_seen_at DOUBLE PRECISION NOT NULL, "key" TEXT,
            closed_at DOUBLE PRECISION, opted_out BOOLEAN NOT NULL)""",
        'CREATE UNIQUE INDEX session_user_key ON session ("user", "key")',
        "CREATE INDEX session_last_seen_at ON session (last_seen_at)",
        """CREATE TABLE message (
            session TEXT NOT NULL REFERENCES session (id), digest BLOB NOT NULL, body BLOB NOT NULL,
            PRIMARY KEY (session, digest))""",
        """CREATE TABLE turn (
            session TEXT NOT NULL REFERENCES session (id), "index" INTEGER NOT NULL, parent INTEGER,
            kind TEXT NOT NULL, complete BOOLEAN NOT NULL, delivered BOOLEAN NOT NULL, skip TEXT,
            finish_reason TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, finished_at DOUBLE PRECISION NOT NULL,
            request_digest TEXT NOT NULL, chain TEXT NOT NULL,
            num_prompt INTEGER NOT NULL, num_prefill INTEGER NOT NULL, num_sampled INTEGER NOT NULL,
            prompt_shared INTEGER NOT NULL, messages_shared INTEGER NOT NULL,
            versions TEXT NOT NULL, digest BLOB NOT NULL, answer BLOB NOT NULL,
            dialect TEXT NOT NULL, model TEXT NOT NULL, sampling TEXT NOT NULL, stop TEXT NOT NULL,
            version_ends BLOB NOT NULL, tools BLOB NOT NULL, messages BLOB NOT NULL, token_ids BLOB NOT NULL,
            logprobs BLOB NOT NULL, top_logprobs BLOB, prompt_ids BLOB NOT NULL,
            PRIMARY KEY (session, "index"))""",
        "CREATE INDEX turn_request_digest ON turn (request_digest)",
        "CREATE INDEX turn_chain ON turn (chain)",
        """CREATE TABLE next_state (
            session TEXT NOT NULL, "index" INTEGER NOT NULL, arrived_at DOUBLE PRECISION NOT NULL,
            messages BLOB NOT NULL, PRIMARY KEY (session, "index"),
            FOREIGN KEY (session, "index") REFERENCES turn (session, "index"))""",
        """CREATE TABLE feedback (
            digest BLOB NOT NULL PRIMARY KEY, session TEXT NOT NULL, "index" INTEGER NOT NULL, "user" TEXT NOT NULL,
            given_at DOUBLE PRECISION NOT NULL, score INTEGER, text TEXT NOT NULL,
            FOREIGN KEY (session, "index") REFERENCES turn (session, "index"))""",
        'CREATE INDEX feedback_turn ON feedback (session, "index")',
    ),
    # Nobody looked turns up by these, and each made every turn dirty a page of its own somewhere in the file.
    2: ("DROP INDEX turn_request_digest", "DROP INDEX turn_chain", "DROP INDEX session_last_seen_at"),
    3: (
        """CREATE TABLE task (
            stage TEXT NOT NULL, session TEXT NOT NULL, "index" INTEGER NOT NULL, wanted INTEGER NOT NULL,
            done INTEGER NOT NULL, attempts INTEGER NOT NULL, token INTEGER NOT NULL, due_at DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (stage, session, "index"),
            FOREIGN KEY (session, "index") REFERENCES turn (session, "index"))""",
        "CREATE INDEX task_due ON task (stage, due_at) WHERE wanted > done",
        """CREATE TABLE judgement (
            session TEXT NOT NULL, "index" INTEGER NOT NULL, num_evidence INTEGER NOT NULL, judge TEXT NOT NULL,
            prompt_version TEXT NOT NULL, judged_at DOUBLE PRECISION NOT NULL, outcome TEXT NOT NULL, score INTEGER,
            reason TEXT NOT NULL, hints TEXT NOT NULL, votes TEXT NOT NULL,
            PRIMARY KEY (session, "index", num_evidence),
            FOREIGN KEY (session, "index") REFERENCES turn (session, "index"))""",
        """CREATE TABLE credit (
            session TEXT NOT NULL, "index" INTEGER NOT NULL, num_evidence INTEGER NOT NULL, rule TEXT NOT NULL,
            credited_at DOUBLE PRECISION NOT NULL, reward DOUBLE PRECISION, skip TEXT,
            PRIMARY KEY (session, "index"),
            FOREIGN KEY (session, "index") REFERENCES turn (session, "index"))""",
        """CREATE TABLE sample (
            id TEXT NOT NULL PRIMARY KEY, line TEXT NOT NULL, kind TEXT NOT NULL, session TEXT NOT NULL,
            "index" INTEGER NOT NULL, prompt_index INTEGER NOT NULL, created_at DOUBLE PRECISION NOT NULL,
            reward DOUBLE PRECISION NOT NULL, w_rl DOUBLE PRECISION NOT NULL, w_opd DOUBLE PRECISION NOT NULL,
            on_policy BOOLEAN NOT NULL, step INTEGER, loss_mask BLOB NOT NULL, advantages BLOB NOT NULL,
            candidates BLOB NOT NULL, FOREIGN KEY (session, "index") REFERENCES turn (session, "index"))""",
        'CREATE INDEX sample_turn ON sample (session, "index")',
        "CREATE INDEX sample_waiting ON sample (line, created_at) WHERE step IS NULL",
        """CREATE TABLE baseline (
            line TEXT NOT NULL, turn_kind TEXT NOT NULL, mean DOUBLE PRECISION NOT NULL, count INTEGER NOT NULL,
            PRIMARY KEY (line, turn_kind))""",
        # Triggers, so that evidence and the task it makes are one write, and evidence that was known makes none.
        """CREATE TRIGGER next_state_arrived AFTER INSERT ON next_state BEGIN
            INSERT INTO task VALUES ('judge', NEW.session, NEW."index", 1, 0, 0, 0, NEW.arrived_at)
            ON CONFLICT (stage, session, "index")
            DO UPDATE SET wanted = wanted + 1, attempts = 0, due_at = min(due_at, excluded.due_at); END""",
        """CREATE TRIGGER feedback_arrived AFTER INSERT ON feedback BEGIN
            INSERT INTO task VALUES ('judge', NEW.session, NEW."index", 1, 0, 0, 0, NEW.given_at)
            ON CONFLICT (stage, session, "index")
            DO UPDATE SET wanted = wanted + 1, attempts = 0, due_at = min(due_at, excluded.due_at); END""",
        """CREATE TRIGGER judgement_arrived AFTER INSERT ON judgement BEGIN
            INSERT INTO task VALUES ('credit', NEW.session, NEW."index", NEW.num_evidence, 0, 0, 0, NEW.judged_at)
            ON CONFLICT (stage, session, "index")
            DO UPDATE SET wanted = max(wanted, excluded.wanted), attempts = 0, due_at = min(due_at, excluded.due_at);
            END""",
        # Who opts out late opts out of what was credited before: only what a step has learned from stays.
        """CREATE TRIGGER session_opted_out AFTER UPDATE OF opted_out ON session WHEN NEW.opted_out BEGIN
            DELETE FROM sample WHERE session = NEW.id AND step IS NULL;
            UPDATE credit SET skip = 'opted_out' WHERE session = NEW.id AND skip IS NULL AND NOT EXISTS
            (SELECT 1 FROM sample WHERE sample.session = credit.session AND sample."index" = credit."index"); END""",
        """CREATE TRIGGER turn_opted_out AFTER UPDATE OF skip ON turn WHEN NEW.skip = 'opted_out' BEGIN
            DELETE FROM sample WHERE session = NEW.session AND step IS NULL
            AND ("index" = NEW."index" OR prompt_index = NEW."index");
            UPDATE credit SET skip = 'opted_out' WHERE session = NEW.session AND skip IS NULL AND NOT EXISTS
            (SELECT 1 FROM sample WHERE sample.session = credit.session AND sample."index" = credit."index"); END""",
        # What arrived before there was a judge.
        """INSERT INTO task SELECT 'judge', session, "index", count(*), 0, 0, 0, min(at) FROM (
            SELECT session, "index", arrived_at AS at FROM next_state
            UNION ALL SELECT session, "index", given_at FROM feedback) GROUP BY "index", session""",
    ),
    4: (
        """CREATE TABLE step (
            line TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL, planned_at DOUBLE PRECISION NOT NULL,
            finished_at DOUBLE PRECISION, seed INTEGER NOT NULL, parent INTEGER NOT NULL, sample_ids TEXT NOT NULL,
            metrics TEXT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (line, number))""",
        """CREATE TABLE version (
            line TEXT NOT NULL, number INTEGER NOT NULL, parent INTEGER NOT NULL, state TEXT NOT NULL,
            created_at DOUBLE PRECISION NOT NULL, path TEXT NOT NULL, sha256 TEXT NOT NULL, gate TEXT NOT NULL,
            reason TEXT NOT NULL, PRIMARY KEY (line, number))""",
    ),
    5: (
        "ALTER TABLE sample ADD COLUMN num_discarded INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE step ADD COLUMN replayed_ids TEXT NOT NULL DEFAULT '[]'",
        "ALTER TABLE step ADD COLUMN num_anchors INTEGER NOT NULL DEFAULT 0",
    ),
    6: ("ALTER TABLE sample ADD COLUMN is_returned BOOLEAN NOT NULL DEFAULT 0",),
    7: (
        "ALTER TABLE version ADD COLUMN model TEXT",
        # A step learns from answers of its own model only, so what is left of its samples knows it.
        """UPDATE version SET model = (SELECT turn.model FROM sample
            JOIN turn ON turn.session = sample.session AND turn."index" = sample."index"
            WHERE sample.line = version.line AND sample.step = version.number LIMIT 1)""",
    ),
    8: ("ALTER TABLE turn ADD COLUMN label TEXT NOT NULL DEFAULT ''",),
    9: (
        # SQLite may number rows anew when it writes a database anew, and cursors stand on these numbers.
        "ALTER TABLE next_state ADD COLUMN seq INTEGER NOT NULL DEFAULT 0",
        "UPDATE next_state SET seq = rowid",
        "CREATE UNIQUE INDEX next_state_seq ON next_state (seq)",
        "ALTER TABLE task ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
        # What a record causes is written with it (`sql/batch.py`), where it can be read.
        *(f"DROP TRIGGER {name}_arrived" for name in ("next_state", "feedback", "judgement")),
        *(f"DROP TRIGGER {name}_opted_out" for name in ("session", "turn")),
        # Only the one writing process leased tasks. A task with attempts may wait on purpose instead.
        "UPDATE task SET owner = 'local:' WHERE wanted > done AND token > 0 AND attempts = 0",
        "ALTER TABLE version ADD COLUMN weights TEXT",
        _name_folders_by_uri,
        "ALTER TABLE version DROP COLUMN path",
        """CREATE TABLE episode (
            id TEXT NOT NULL PRIMARY KEY, environment TEXT NOT NULL, task TEXT NOT NULL, "group" TEXT NOT NULL,
            attempt INTEGER NOT NULL, group_size INTEGER NOT NULL, reward DOUBLE PRECISION,
            failure TEXT NOT NULL DEFAULT '', ended_at DOUBLE PRECISION)""",
        'CREATE INDEX episode_group ON episode ("group")',
        "ALTER TABLE session ADD COLUMN episode TEXT REFERENCES episode (id)",
        "CREATE INDEX session_episode ON session (episode) WHERE episode IS NOT NULL",
        "ALTER TABLE judgement ADD COLUMN reward DOUBLE PRECISION",
    ),
    10: (
        "ALTER TABLE session ADD COLUMN closed_seq INTEGER",
        """UPDATE session SET closed_seq = ended.number FROM (
            SELECT id, row_number() OVER (ORDER BY closed_at, id) AS number FROM session WHERE closed_at IS NOT NULL
            ) AS ended WHERE ended.id = session.id""",
        "CREATE UNIQUE INDEX session_closed ON session (closed_seq) WHERE closed_seq IS NOT NULL",
        "INSERT INTO meta SELECT 'closed_seq', CAST(count(closed_seq) AS TEXT) FROM session",
        "ALTER TABLE turn ADD COLUMN retrievable BOOLEAN NOT NULL DEFAULT 1",
        "ALTER TABLE sample ADD COLUMN response_ids BLOB",
    ),
    11: ("ALTER TABLE api_key ADD COLUMN terms TEXT NOT NULL DEFAULT '{}'",),
}

SCHEMA_VERSION = max(MIGRATIONS)


def schema_version(connection: Connection) -> int:
    """The version this database stands at."""
    if not inspect(connection).has_table(meta.name):
        return 0
    stored = connection.scalar(select(meta.c.value).where(meta.c.name == "schema_version"))
    if stored is None or not stored.isdigit():
        raise StoreError(f"the database is not an OpenClaw-RL store (schema_version is {stored!r}): move it away")
    return int(stored)


def migrate(connection: Connection, migrations: Mapping[int, Sequence[Change]] = MIGRATIONS) -> tuple[int, int]:
    """Bring the database to the newest version; returns the version before and after. Idempotent."""
    with connection.begin():
        before = schema_version(connection)
    refuse_newer(before, max(migrations))
    for version in range(before + 1, max(migrations) + 1):
        with connection.begin():
            for statement in migrations[version]:
                if isinstance(statement, str):
                    connection.exec_driver_sql(statement)
                else:
                    statement(connection)
                crash_point("store.in_migration")
            stamp = insert(meta).values(name="schema_version", value=str(version))
            connection.execute(stamp.on_conflict_do_update(index_elements=["name"], set_={"value": str(version)}))
    return before, max(before, *migrations)


def refuse_newer(version: int, known: int = SCHEMA_VERSION) -> None:
    """StoreError if the database was written by a newer release than this one."""
    if version > known:
        raise StoreError(
            f"the store has schema version {version}, this release knows {known}: "
            "upgrade openclaw-rl, or choose another directory with --data-dir"
        )
