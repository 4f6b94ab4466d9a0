"""The durable log for those who only look (`sessions`, `inspect`, tools): while a writer runs, or when none does.

Opens read-only, never checkpoints, and creates no file. Blocking. Every answer is one consistent snapshot, taken
when it is asked for, and no connection is held in between: a reader never stands in the writer's way for long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from openclaw_rl.errors import StoreError
from openclaw_rl.store import lessons, queries, steps, tasks, undoing
from openclaw_rl.store.directory import database_path, wal_path
from openclaw_rl.store.migrations import SCHEMA_VERSION, refuse_newer, schema_version
from openclaw_rl.store.sqlite import connect_reader
from openclaw_rl.store.steps import Waiting
from openclaw_rl.store.views import SessionSummary
from openclaw_rl.types import (
    ApiKey,
    Credit,
    Feedback,
    Judgement,
    NextState,
    Sample,
    Session,
    Skip,
    Stage,
    Step,
    Turn,
    TurnRecord,
    Version,
)

T = TypeVar("T")


class StoreReader:
    """Answers questions about one data directory."""

    def __init__(self, database: Path) -> None:
        self._database = database

    @classmethod
    def open(cls, directory: Path, url: str | None = None) -> Self:
        """StoreError if there is no store, or one that this release cannot read."""
        database = database_path(directory, url)
        if not database.is_file():
            raise StoreError(f"there is no store in {directory}: start `openclaw-rl up` once, or check --data-dir")
        reader = cls(database)
        version = reader._ask(schema_version)
        refuse_newer(version)
        if version < SCHEMA_VERSION:
            raise StoreError(
                f"the store in {directory} is of an older release: start `openclaw-rl up` once to upgrade it"
            )
        return reader

    def sessions(self, user: str | None = None) -> list[SessionSummary]:
        """All sessions, or those of one user, the one seen last first."""
        return self._ask(lambda connection: queries.sessions(connection, user))

    def session(self, session_id: str) -> Session | None:
        """One session."""
        return self._ask(lambda connection: queries.session(connection, session_id))

    def turns(self, session_id: str) -> list[Turn]:
        """All turns of a session in order, each whole."""
        return self._ask(lambda connection: queries.turns(connection, session_id))

    def turn(self, session_id: str, index: int) -> Turn | None:
        """One turn, whole."""
        return self._ask(lambda connection: queries.turn(connection, session_id, index))

    def next_states(self, session_id: str) -> list[NextState]:
        """What followed each turn of a session."""
        return self._ask(lambda connection: queries.next_states(connection, session_id))

    def next_state(self, session_id: str, index: int) -> NextState | None:
        """What followed one turn."""
        return self._ask(lambda connection: queries.next_state(connection, session_id, index))

    def feedback(self, session_id: str) -> list[Feedback]:
        """What people said about the turns of a session."""
        return self._ask(lambda connection: queries.feedback(connection, session_id))

    def records(self, session_id: str) -> list[TurnRecord]:
        """All turns of a session in order, each with what was said after it."""
        return self._ask(lambda connection: queries.records(connection, session_id))

    def judgements(self, session_id: str) -> list[Judgement]:
        """The newest judgement of every turn of a session."""
        return self._ask(lambda connection: lessons.judgements(connection, session_id))

    def credits(self, session_id: str) -> list[Credit]:
        """What became of every judged turn of a session, with its samples."""
        return self._ask(lambda connection: lessons.session_credits(connection, session_id))

    def waiting_samples(self, line: str | None, limit: int) -> list[Sample]:
        """What no step has learned from yet, the oldest first."""
        return self._ask(lambda connection: lessons.waiting_samples(connection, line, limit))

    def skips(self) -> dict[Skip, int]:
        """How many turns are not learned from, by the reason; the commonest first."""
        return self._ask(queries.skips)

    def versions(self, line: str | None = None, *, every_model: bool = False) -> list[Version]:
        """The versions of the present model, or of every one; of all lines, or of one; in their order."""
        return self._ask(lambda connection: steps.versions(connection, line, every_model=every_model))

    def steps(self, line: str) -> list[Step]:
        """The steps of a line, in their order."""
        return self._ask(lambda connection: steps.line_steps(connection, line))

    def planned_steps(self) -> list[Step]:
        """Steps that somebody planned and nobody finished."""
        return self._ask(steps.planned)

    def next_step_number(self, line: str) -> int:
        """The number of the next step of a line."""
        return self._ask(lambda connection: steps.next_number(connection, line))

    def waiting(self) -> list[Waiting]:
        """The lines that have something to learn from."""
        return self._ask(steps.waiting)

    def num_returned(self) -> dict[str, int]:
        """How many samples of undone steps wait to be learned from again, by line."""
        return self._ask(undoing.num_returned)

    def samples_named(self, ids: Sequence[str]) -> list[Sample]:
        """These samples, in this order, without those that were deleted since."""
        return self._ask(lambda connection: lessons.samples_named(connection, ids))

    def doubted_samples(self, line: str) -> list[str]:
        """Samples that wait although they were in a step that was discarded."""
        return self._ask(lambda connection: steps.doubted(connection, line))

    def replayable_samples(self, line: str, *, number: int, max_age: int) -> list[str]:
        """Samples that the last steps on the way to a version learned from."""
        return self._ask(lambda connection: steps.replayable(connection, line, number=number, max_age=max_age))

    def num_open(self, stage: Stage) -> int:
        """How many turns wait for a stage."""
        return self._ask(lambda connection: tasks.num_open(connection, stage))

    def flag(self, name: str) -> str | None:
        """A value that outlives the process, such as why learning is paused."""
        return self._ask(lambda connection: lessons.flag(connection, name))

    def keys(self) -> list[ApiKey]:
        """All keys, revoked ones too."""
        return self._ask(queries.keys)

    def _ask(self, query: Callable[[Connection], T]) -> T:
        """One query on one snapshot.

        Without a log beside it the database is complete and nobody writes it, so it is read as if on a read-only
        disk. Should a writer start meanwhile, the answer may be torn and is asked for again, with the log.
        """
        wal = wal_path(self._database)
        while True:
            quiet = not wal.exists()
            before = self._database.stat()
            try:
                answer = self._ask_once(query, immutable=quiet)
            except Exception as error:
                # Broad, because a torn or damaged page can break any step between the file and the noun.
                if quiet and self._written_since(before.st_mtime_ns):
                    continue
                if isinstance(error, StoreError):
                    raise
                reason = error.orig if isinstance(error, DBAPIError) else error
                raise StoreError(f"the store {self._database} cannot be read: {reason}") from error
            if not (quiet and self._written_since(before.st_mtime_ns)):
                return answer

    def _ask_once(self, query: Callable[[Connection], T], *, immutable: bool) -> T:
        with connect_reader(self._database, immutable=immutable) as connection, connection.begin():
            return query(connection)

    def _written_since(self, mtime_ns: int) -> bool:
        return wal_path(self._database).exists() or self._database.stat().st_mtime_ns != mtime_ns
