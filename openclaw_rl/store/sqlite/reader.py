"""The durable log for those who only look (`sessions`, `inspect`, tools): while a writer runs, or when none does.

Opens read-only, never checkpoints, and creates no file. Blocking. Every answer is one consistent snapshot, taken
when it is asked for, and no connection is held in between: a reader never stands in the writer's way for long.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

from sqlalchemy import Connection

from openclaw_rl.errors import StoreError
from openclaw_rl.store.sql import episodes, lessons, looking, queries, served, tasks, undoing
from openclaw_rl.store.sql import steps as steps_of
from openclaw_rl.store.sqlite.connection import connect_reader, copy_whole, integrity
from openclaw_rl.store.sqlite.damage import failed, refuse_damaged
from openclaw_rl.store.sqlite.directory import database_path, wal_path
from openclaw_rl.store.sqlite.migrations import SCHEMA_VERSION, refuse_newer, schema_version

T = TypeVar("T")
P = ParamSpec("P")


def _asked(query: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[StoreReader, P], T]:
    """A method that runs a query of `sql/` on one snapshot."""

    def method(self: StoreReader, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._ask(lambda connection: query(connection, *args, **kwargs))

    return method


class StoreReader:
    """`protocols.ReadStore` on one data directory."""

    def __init__(self, database: Path) -> None:
        self._database = database

    @classmethod
    def open(cls, directory: Path, url: str | None = None) -> Self:
        """StoreError if there is no store, or one that this release cannot read."""
        database = database_path(directory, url)
        refuse_damaged(database)
        if not database.is_file():
            raise StoreError(f"there is no store in {directory}: start `openclaw-rl up` once, or check --data-dir")
        reader = cls(database)
        version = reader.schema()
        refuse_newer(version)
        if version < SCHEMA_VERSION:
            raise StoreError(
                f"the store in {directory} is of an older release: start `openclaw-rl up` once to upgrade it"
            )
        return reader

    integrity = _asked(integrity)
    schema = _asked(schema_version)
    names = _asked(queries.names)
    sessions = _asked(queries.sessions)
    session = _asked(queries.session)
    turns = _asked(queries.turns)
    turn = _asked(queries.turn)
    next_states = _asked(queries.next_states)
    next_state = _asked(queries.next_state)
    feedback = _asked(queries.feedback)
    records = _asked(queries.records)
    judgements = _asked(lessons.judgements)
    credits = _asked(lessons.session_credits)
    skips = _asked(queries.skips)
    waiting = _asked(steps_of.waiting)
    waiting_samples = _asked(lessons.waiting_samples)
    samples_named = _asked(lessons.samples_named)
    doubted_samples = _asked(steps_of.doubted)
    replayable_samples = _asked(steps_of.replayable)
    num_returned = _asked(undoing.num_returned)
    steps = _asked(steps_of.line_steps)
    planned_steps = _asked(steps_of.planned)
    next_step_number = _asked(steps_of.next_number)
    versions = _asked(steps_of.versions)
    served_turns = _asked(served.served)
    episode = _asked(episodes.episode)
    group = _asked(episodes.group)
    num_open = _asked(tasks.num_open)
    flag = _asked(lessons.flag)
    keys = _asked(queries.keys)
    has_turn = _asked(looking.has_turn)
    session_part = _asked(looking.session_part)
    session_summaries = _asked(queries.summaries)
    openings = _asked(looking.openings)
    glimpses = _asked(looking.glimpses)
    heard_part = _asked(looking.heard_part)
    traces = _asked(looking.traces)
    changed_turns = _asked(looking.changed_turns)
    seen_sessions = _asked(looking.seen_sessions)
    states = _asked(looking.states)
    step_samples = _asked(looking.step_samples)
    tally = _asked(looking.tally)
    captured = _asked(looking.captured)
    steps_since = _asked(looking.steps_since)
    newest_steps = _asked(looking.newest_steps)
    episode_tallies = _asked(looking.episode_tallies)
    kept = _asked(looking.kept)
    skip_counts = _asked(looking.skip_counts)
    lines = _asked(looking.lines)

    def copy_to(self, target: Path) -> None:
        """All rows, as of one moment, in a database of their own; the server may go on meanwhile."""

        def copy(immutable: bool) -> None:
            target.unlink(missing_ok=True)
            target.touch(mode=0o600)
            with connect_reader(self._database, immutable=immutable) as connection:
                copy_whole(connection, target)

        self._look(copy)

    def _ask(self, query: Callable[[Connection], T]) -> T:
        """One query on one snapshot."""

        def ask(immutable: bool) -> T:
            with connect_reader(self._database, immutable=immutable) as connection, connection.begin():
                return query(connection)

        return self._look(ask)

    def _look(self, look: Callable[[bool], T]) -> T:
        """Tells `look` whether it may take the file as immutable.

        Without a log beside it the database is complete and nobody writes it, so it is read as if on a read-only
        disk. Should a writer start meanwhile, the answer may be torn and is asked for again, with the log.
        """
        wal = wal_path(self._database)
        while True:
            quiet = not wal.exists()
            before = self._database.stat()
            try:
                answer = look(quiet)
            except Exception as error:
                # Broad, because a torn or damaged page can break any step between the file and the noun.
                if quiet and self._written_since(before.st_mtime_ns):
                    continue
                if isinstance(error, StoreError):
                    raise
                raise failed(error, f"the store {self._database} cannot be read") from error
            if not (quiet and self._written_since(before.st_mtime_ns)):
                return answer

    def _written_since(self, mtime_ns: int) -> bool:
        return wal_path(self._database).exists() or self._database.stat().st_mtime_ns != mtime_ns
