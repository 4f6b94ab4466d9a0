"""The questions of those who only look at the log (`sessions`, `inspect`, tools), on whatever database. Blocking.

Every answer is one consistent snapshot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from openclaw_rl.store.sql import episodes, lessons, looking, queries, served, tasks, undoing
from openclaw_rl.store.sql import steps as steps_of

T = TypeVar("T")
P = ParamSpec("P")


class Asks(Protocol):
    def _ask(self, query: Callable[[Connection], T]) -> T: ...


def asked(query: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[Asks, P], T]:
    """A method that runs a query of `sql/` on one snapshot."""

    def method(self: Asks, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._ask(lambda connection: query(connection, *args, **kwargs))

    return method


class SqlReader(ABC):
    """`protocols.ReadStore` but for `_ask` and `integrity`, which are each database's own."""

    @abstractmethod
    def integrity(self) -> list[str]:
        """What is wrong with the database, one line for each."""

    @abstractmethod
    def _ask(self, query: Callable[[Connection], T]) -> T:
        """One query on one snapshot."""

    names = asked(queries.names)
    sessions = asked(queries.sessions)
    session = asked(queries.session)
    turns = asked(queries.turns)
    turn = asked(queries.turn)
    next_states = asked(queries.next_states)
    next_state = asked(queries.next_state)
    feedback = asked(queries.feedback)
    records = asked(queries.records)
    judgements = asked(lessons.judgements)
    credits = asked(lessons.session_credits)
    skips = asked(queries.skips)
    waiting = asked(steps_of.waiting)
    waiting_samples = asked(lessons.waiting_samples)
    samples_named = asked(lessons.samples_named)
    doubted_samples = asked(steps_of.doubted)
    replayable_samples = asked(steps_of.replayable)
    num_returned = asked(undoing.num_returned)
    steps = asked(steps_of.line_steps)
    planned_steps = asked(steps_of.planned)
    next_step_number = asked(steps_of.next_number)
    versions = asked(steps_of.versions)
    served_turns = asked(served.served)
    episode = asked(episodes.episode)
    group = asked(episodes.group)
    num_open = asked(tasks.num_open)
    flag = asked(lessons.flag)
    keys = asked(queries.keys)
    session_summaries = asked(queries.summaries)
    has_turn = asked(looking.has_turn)
    session_part = asked(looking.session_part)
    openings = asked(looking.openings)
    glimpses = asked(looking.glimpses)
    heard_part = asked(looking.heard_part)
    traces = asked(looking.traces)
    changed_turns = asked(looking.changed_turns)
    seen_sessions = asked(looking.seen_sessions)
    states = asked(looking.states)
    step_samples = asked(looking.step_samples)
    tally = asked(looking.tally)
    captured = asked(looking.captured)
    steps_since = asked(looking.steps_since)
    newest_steps = asked(looking.newest_steps)
    episode_tallies = asked(looking.episode_tallies)
    kept = asked(looking.kept)
    skip_counts = asked(looking.skip_counts)
    lines = asked(looking.lines)
