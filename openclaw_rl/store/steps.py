"""Steps and versions to rows and back, and which samples wait. Blocking; on the connection, and its transaction, given.

A step has its samples for itself from the moment it is planned: they carry its number. What it made, or why it made
nothing, is written in one transaction with its end; until then it is planned, and whoever starts takes it first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson
from sqlalchemy import Connection, RowMapping, func, select, update
from sqlalchemy.dialects.sqlite import insert

from openclaw_rl.errors import StoreError
from openclaw_rl.faults import crash_point
from openclaw_rl.store import lessons, schema
from openclaw_rl.types import IMPORTED, Json, Skip, Step, Version, VersionState

_step, _version, _sample = schema.step.c, schema.version.c, schema.sample.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Samples of one line that no step has yet."""

    line: str
    num_samples: int
    since: float
    """When the first of them was made."""
    num_doubted: int = 0
    """How many of them were in a step that was discarded."""


def waiting(connection: Connection) -> list[Waiting]:
    """The lines that have something to learn from, the one that waits longest first."""
    since = func.min(_sample.created_at)
    doubted = func.sum(_sample.num_discarded > 0)
    query = select(_sample.line, func.count(), since, doubted).where(_sample.step.is_(None))
    rows = connection.execute(query.group_by(_sample.line).order_by(since))
    return [
        Waiting(line=line, num_samples=count, since=first, num_doubted=doubts) for line, count, first, doubts in rows
    ]


def doubted(connection: Connection, line: str) -> list[str]:
    """Samples that wait although they were in a step that was discarded: one of them may be the reason."""
    query = select(_sample.id).where(_sample.line == line, _sample.step.is_(None), _sample.num_discarded > 0)
    return list(connection.scalars(query.order_by(_sample.created_at, _sample.id)))


def replayable(connection: Connection, line: str, *, number: int, max_age: int) -> list[str]:
    """Samples that the last `max_age` steps on the way to a version learned from; not of people who opted out since."""
    query = select(_version.number, _version.parent).where(_version.line == line)
    parents = {child: parent for child, parent in connection.execute(query)}  # noqa: C416 - a result is no mapping
    steps: list[int] = []
    while number in parents and len(steps) < max_age:
        steps.append(number)
        number = parents[number]
    mine = (_sample.line == line, _sample.step.in_(steps), ~lessons.opted_out())
    return list(connection.scalars(select(_sample.id).where(*mine).order_by(_sample.created_at, _sample.id)))


def plan(connection: Connection, step: Step) -> None:
    """The step takes its samples. `StoreError` if one of them is gone, or another step's: then nothing is planned."""
    taken = update(schema.sample).where(
        _sample.line == step.line, _sample.id.in_(step.sample_ids), _sample.step.is_(None)
    )
    if connection.execute(taken.values(step=step.number)).rowcount != len(step.sample_ids):
        raise StoreError(f"step {step.number} of {step.line} was planned with samples that it cannot have")
    connection.execute(insert(schema.step).values(_step_row(step)))


def finish(connection: Connection, step: Step, version: Version | None, *, blameless: bool = False) -> bool:
    """Ends a planned step, with the version that it made. False if it had ended before: nothing is changed.

    A step that is discarded gives back the samples it had in company: alone, each shows whether it is the reason. Where
    no sample is to blame, all come back as if nothing had been.
    """
    which = (_step.line == step.line, _step.number == step.number, _step.state == "planned")
    ended = update(schema.step).where(*which).values(_step_row(step))
    if not connection.execute(ended).rowcount:
        return False
    if version is not None:
        connection.execute(insert(schema.version).values(_version_row(version)))
    elif blameless or len(step.sample_ids) + len(step.replayed_ids) > 1:
        _give_back(connection, step, doubt=0 if blameless else 1)
    crash_point("store.in_step")
    return True


def _give_back(connection: Connection, step: Step, *, doubt: int) -> None:
    mine = (_sample.line == step.line, _sample.step == step.number)
    given_back = {"step": None, "num_discarded": _sample.num_discarded + doubt}
    ids = connection.scalars(update(schema.sample).where(*mine).values(given_back).returning(_sample.id)).all()
    # Whoever opted out meanwhile was not asked: only samples that waited left then.
    withdrawn = select(_sample.id).where(_sample.id.in_(ids), lessons.opted_out())
    lessons.skip_samples(connection, connection.scalars(withdrawn).all(), Skip.OPTED_OUT)


def add_metrics(connection: Connection, line: str, number: int, metrics: Mapping[str, float]) -> Step | None:
    """Adds what was measured of a version later to the step that made it; the step, None if there is none."""
    which = (_step.line == line, _step.number == number)
    row = connection.execute(select(schema.step).where(*which)).mappings().one_or_none()
    if row is None:
        return None
    step = _to_step(row)
    step = replace(step, metrics={**step.metrics, **metrics})
    connection.execute(update(schema.step).where(*which).values(metrics=orjson.dumps(dict(step.metrics)).decode()))
    return step


def _give_back_of(connection: Connection, line: str, number: int) -> None:
    query = select(schema.step).where(_step.line == line, _step.number == number)
    for step in map(_to_step, connection.execute(query).mappings()):
        if len(step.sample_ids) + len(step.replayed_ids) > 1:
            _give_back(connection, step, doubt=1)


def planned(connection: Connection) -> list[Step]:
    """Steps that somebody planned and nobody finished, the oldest first."""
    query = select(schema.step).where(_step.state == "planned").order_by(_step.planned_at)
    return [_to_step(row) for row in connection.execute(query).mappings()]


def line_steps(connection: Connection, line: str) -> list[Step]:
    query = select(schema.step).where(_step.line == line).order_by(_step.number)
    return [_to_step(row) for row in connection.execute(query).mappings()]


def versions(connection: Connection, line: str | None = None) -> list[Version]:
    """All versions, or those of one line, in their order."""
    query = select(schema.version).order_by(_version.line, _version.number)
    if line is not None:
        query = query.where(_version.line == line)
    return [_to_version(row) for row in connection.execute(query).mappings()]


def set_state(
    connection: Connection, line: str, number: int, state: VersionState, *, reason: str = "", gate: Json = None
) -> None:
    """A version becomes what its gate or a person says. Making one live retires the one that was.

    What is rejected gives back the samples that it had in company, as a discarded step does: alone, each shows whether
    it is the reason. One that was alone stays with the version, whose row has the reason.
    """
    if state == "live":
        others = (_version.line == line, _version.state == "live", _version.number != number)
        connection.execute(update(schema.version).where(*others).values(state="retired"))
    changes: dict[str, str] = {"state": state, "reason": reason}
    if gate is not None:
        changes["gate"] = orjson.dumps(gate).decode()
    which = (_version.line == line, _version.number == number)
    if not connection.execute(update(schema.version).where(*which).values(changes)).rowcount:
        raise StoreError(f"there is no version {number} of {line}; `openclaw-rl versions` lists all")
    if state == "rejected":
        _give_back_of(connection, line, number)


def forget_files(connection: Connection, line: str, numbers: Sequence[int]) -> None:
    """The files of these versions are about to be removed; their rows stay."""
    mine = (_version.line == line, _version.number.in_(numbers))
    connection.execute(update(schema.version).where(*mine).values(path=""))


def next_number(connection: Connection, line: str) -> int:
    """The number of the next step of a line."""
    return 1 + (connection.scalar(select(func.max(_step.number)).where(_step.line == line)) or 0)


def put_imported(connection: Connection, line: str, place: Callable[[int], tuple[str, str]], *, now: float) -> Version:
    """A candidate that no step of ours made. `place` is given its number, and returns where its files are and their
    sha256.

    A step without samples holds its number, and it stands on the version that answers: nobody knows what else it
    learned from, and that is what the gate compares it with.
    """
    number = next_number(connection, line)
    parent = next((one.number for one in versions(connection, line) if one.state == "live"), 0)
    path, sha256 = place(number)
    step = Step(
        line=line,
        number=number,
        state="done",
        planned_at=now,
        finished_at=now,
        seed=0,
        parent=parent,
        sample_ids=(),
        reason=IMPORTED,
    )
    made = Version(line=line, number=number, parent=parent, state="candidate", created_at=now, path=path, sha256=sha256)
    connection.execute(insert(schema.step).values(_step_row(step)))
    connection.execute(insert(schema.version).values(_version_row(made)))
    return made


def _step_row(step: Step) -> dict[str, object]:
    return {
        **{name: getattr(step, name) for name in ("line", "number", "state", "planned_at", "finished_at", "seed")},
        "parent": step.parent,
        "sample_ids": orjson.dumps(step.sample_ids).decode(),
        "replayed_ids": orjson.dumps(step.replayed_ids).decode(),
        "num_anchors": step.num_anchors,
        "metrics": orjson.dumps(dict(step.metrics)).decode(),
        "reason": step.reason,
    }


def _version_row(version: Version) -> dict[str, object]:
    names: Sequence[str] = ("line", "number", "parent", "state", "created_at", "path", "sha256", "reason")
    return {**{name: getattr(version, name) for name in names}, "gate": orjson.dumps(version.gate).decode()}


def _to_step(row: RowMapping) -> Step:
    ids = {name: tuple(orjson.loads(row[name])) for name in ("sample_ids", "replayed_ids")}
    return Step(**{**row, **ids, "metrics": orjson.loads(row["metrics"])})


def _to_version(row: RowMapping) -> Version:
    return Version(**{**row, "gate": orjson.loads(row["gate"])})
