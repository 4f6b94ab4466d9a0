"""Steps and versions to rows and back, and which samples wait. Blocking; on the connection, and its transaction, given.

A step has its samples for itself from the moment it is planned: they carry its number. What it made, or why it made
nothing, is written in one transaction with its end; until then it is planned, and whoever starts takes it first.

Versions belong to the model they were trained on. What is asked here is asked for the model that the store is run with;
what others made rests until they are started again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, RowMapping, and_, func, insert, or_, select, true, update

from openclaw_rl.errors import StoreError
from openclaw_rl.faults import crash_point
from openclaw_rl.store.sql import lessons, schema
from openclaw_rl.types import (
    IMPORTED,
    PRESENT_MODEL,
    Json,
    Skip,
    Step,
    Version,
    VersionState,
    Waiting,
    WeightsRef,
    stranded,
)

_step, _version, _sample, _session = schema.step.c, schema.version.c, schema.sample.c, schema.session.c


def waiting(connection: Connection) -> list[Waiting]:
    """The lines that the present model has something to learn from, the one whose turn it is first."""
    since = func.min(_sample.created_at)
    doubted = func.count().filter(_sample.num_discarded > 0)
    last_step_at = select(func.max(_step.planned_at)).where(_step.line == _sample.line).scalar_subquery()
    waits = (_sample.step.is_(None), lessons.of_present_model(connection))
    query = select(_sample.line, func.count(), since, doubted, last_step_at, *_heard()).where(*waits)
    rows = connection.execute(query.group_by(_sample.line))
    found = [
        Waiting(
            line=line,
            num_samples=count,
            since=first,
            newest=newest,
            num_doubted=doubts,
            last_step_at=last or 0.0,
            silent_since=None if answered is None or more_comes else max(newest, answered, asked or 0.0),
        )
        for line, count, first, doubts, last, more_comes, newest, answered, asked in rows
    ]
    return sorted(found, key=lambda each: each.turn)


def _heard() -> tuple[ColumnElement[Any], ...]:
    """Of a line's person: whether more of what they said is to be judged or credited, the newest sample, the last
    answer and the last request that is answered now. No user has the name of an environment's line.

    A session's row moves when an answer ends. A request before that shows in what it followed, if it goes on with a
    session; only open ones are looked at, for the others pile up.
    """
    task, said = schema.task.c, schema.next_state.c
    theirs = and_(_session.user == _sample.line, _session.episode.is_(None))
    tasks = select(task.session).where(task.session == _session.id, theirs, task.wanted > task.done)
    answered = select(func.max(_session.last_seen_at)).where(theirs)
    is_open = and_(said.session == _session.id, _session.closed_at.is_(None))
    asked = select(func.max(said.arrived_at)).where(is_open, theirs)
    return (
        tasks.correlate(schema.sample).exists(),
        func.max(_sample.created_at),
        answered.correlate(schema.sample).scalar_subquery(),
        asked.correlate(schema.sample).scalar_subquery(),
    )


def doubted(connection: Connection, line: str) -> list[str]:
    """Samples that wait although they were in a step that was discarded: one of them may be the reason."""
    waits = (_sample.line == line, _sample.step.is_(None), lessons.of_present_model(connection))
    query = select(_sample.id).where(*waits, _sample.num_discarded > 0)
    return list(connection.scalars(query.order_by(_sample.created_at, _sample.id)))


def replayable(connection: Connection, line: str, *, number: int, max_age: int) -> list[str]:
    """Samples that the last `max_age` steps on the way to a version learned from; not of people who opted out since.

    Those with a hint, if there are any: what a hint says stays true, while a score tells about the answers of its day.
    """
    query = select(_version.number, _version.parent).where(_version.line == line)
    parents = {child: parent for child, parent in connection.execute(query)}  # noqa: C416 - a result is no mapping
    steps: list[int] = []
    while number in parents and len(steps) < max_age:
        steps.append(number)
        number = parents[number]
    mine = (_sample.line == line, _sample.step.in_(steps), ~lessons.opted_out())
    found = select(_sample.id, _sample.w_opd).where(*mine).order_by(_sample.created_at, _sample.id)
    samples = connection.execute(found).all()
    return [one.id for one in samples if one.w_opd > 0] or [one.id for one in samples]


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
        _put_version(connection, version)
    else:
        _give_back_of(connection, step, blameless=blameless)
    crash_point("store.in_step")
    return True


def _give_back_of(connection: Connection, step: Step, *, blameless: bool) -> None:
    if blameless:
        _give_back(connection, step.line, step.number)
    elif len(step.sample_ids) + len(step.replayed_ids) > 1:
        _give_back(connection, step.line, step.number, num_discarded=_sample.num_discarded + 1)


def _give_back(connection: Connection, line: str, number: int, **changes: object) -> None:
    mine = (_sample.line == line, _sample.step == number)
    given_back = update(schema.sample).where(*mine).values(step=None, **changes)
    ids = connection.scalars(given_back.returning(_sample.id)).all()
    # Whoever opted out meanwhile was not asked: only samples that waited left then.
    withdrawn = select(_sample.id).where(_sample.id.in_(ids), lessons.opted_out())
    lessons.skip_samples(connection, connection.scalars(withdrawn).all(), Skip.OPTED_OUT)


def add_metrics(connection: Connection, line: str, number: int, metrics: Mapping[str, float]) -> Step | None:
    """Adds what was measured of a version later to the step that made it; the step, None if there is none."""
    which = (_step.line == line, _step.number == number)
    row = connection.execute(select(schema.step).where(*which)).mappings().one_or_none()
    if row is None:
        return None
    step = to_step(row)
    step = replace(step, metrics={**step.metrics, **metrics})
    connection.execute(update(schema.step).where(*which).values(metrics=orjson.dumps(dict(step.metrics)).decode()))
    return step


def planned(connection: Connection) -> list[Step]:
    """Steps that somebody planned for the present model and nobody finished, the oldest first."""
    theirs = (_sample.line == _step.line, _sample.step == _step.number, ~lessons.of_present_model(connection))
    of_another = select(_sample.id).where(*theirs).exists()
    query = select(schema.step).where(_step.state == "planned", ~of_another).order_by(_step.planned_at)
    return [to_step(row) for row in connection.execute(query).mappings()]


def line_steps(connection: Connection, line: str) -> list[Step]:
    query = select(schema.step).where(_step.line == line).order_by(_step.number)
    return [to_step(row) for row in connection.execute(query).mappings()]


def versions(connection: Connection, line: str | None = None, *, every_model: bool = False) -> list[Version]:
    """The versions of the present model, or of every one; of all lines, or of one; in their order."""
    query = select(schema.version).order_by(_version.line, _version.number)
    if not every_model:
        query = query.where(_is_of(lessons.flag(connection, PRESENT_MODEL)))
    if line is not None:
        query = query.where(_version.line == line)
    return [_to_version(row) for row in connection.execute(query).mappings()]


def _is_of(model: str | None) -> ColumnElement[bool]:
    """Of a row of `version`: whether it is this model's, as far as anybody knows."""
    return true() if model is None else or_(_version.model.is_(None), _version.model == model)


def set_state(
    connection: Connection,
    line: str,
    number: int,
    state: VersionState,
    *,
    reason: str = "",
    gate: Json = None,
    blameless: bool = False,
    only_if: Callable[[Sequence[Version]], bool] | None = None,
) -> bool:
    """A version becomes what its gate or a person says. Making one live retires the one of its model that was.

    False, and nothing is changed, if the versions of the line are not, or no more, as `only_if` wants them.

    What is rejected gives back the samples that it had in company, as a discarded step does: alone, each shows whether
    it is the reason. One that was alone stays with the version, whose row has the reason. Where no sample is to blame,
    all come back as if nothing had been.
    """
    if only_if is not None and not only_if(versions(connection, line)):
        return False
    which = (_version.line == line, _version.number == number)
    changes: dict[str, str | None] = {"state": state, "reason": reason}
    if gate is not None:
        changes["gate"] = orjson.dumps(gate).decode()
    if state == "live":
        # What answers under a model fits it, so a version whose model nobody knows is its own from now on.
        model = connection.scalar(select(_version.model).where(*which)) or lessons.flag(connection, PRESENT_MODEL)
        changes["model"] = model
        others = (_version.line == line, _version.state == "live", _version.number != number, _is_of(model))
        connection.execute(update(schema.version).where(*others).values(state="retired"))
    if not connection.execute(update(schema.version).where(*which).values(changes)).rowcount:
        raise StoreError(f"there is no version {number} of {line}; `openclaw-rl versions` lists all")
    if state == "rejected":
        made_by = select(schema.step).where(_step.line == line, _step.number == number)
        for step in map(to_step, connection.execute(made_by).mappings()):
            _give_back_of(connection, step, blameless=blameless)
    return True


def take_back(
    connection: Connection, line: str, number: int, *, to: int, live_at: float, reason: str, gate: Json
) -> bool:
    """A version that answers on probation is rejected; `to`, 0 for the base model, answers in its place. False if
    another one answers by now."""
    if not any(one.number == number and one.state == "live" for one in versions(connection, line)):
        return False
    if to:
        (back,) = (one for one in versions(connection, line) if one.number == to)
        set_state(connection, line, to, "live", gate={**(back.gate or {}), "live_at": live_at})
    return set_state(connection, line, number, "rejected", reason=reason, gate=gate)


def retire_stranded(connection: Connection, line: str, *, reason: str) -> list[Version]:
    """Versions that will never answer, nor anything that stands on them, give their samples back, without a doubt.

    Those whose state that changes.
    """
    found = stranded(versions(connection, line))
    for version in found:
        # What their steps had in time is not late because another version answers.
        _give_back(connection, line, version.number, is_returned=True)
    changed = [version for version in found if version.state != "retired"]
    for version in changed:
        set_state(connection, line, version.number, "retired", reason=reason)
    return [replace(version, state="retired", reason=reason) for version in changed]


def forget_files(connection: Connection, line: str, numbers: Sequence[int]) -> None:
    """The files of these versions are about to be removed; their rows stay."""
    mine = (_version.line == line, _version.number.in_(numbers))
    connection.execute(update(schema.version).where(*mine).values(weights=None))


def next_number(connection: Connection, line: str) -> int:
    """The number of the next step of a line."""
    return 1 + (connection.scalar(select(func.max(_step.number)).where(_step.line == line)) or 0)


def put_imported(connection: Connection, line: str, place: Callable[[int], WeightsRef], *, now: float) -> Version:
    """A candidate that no step of ours made. `place` is given its number, and returns where its weights are.

    A step without samples holds its number, and it stands on the version that answers: nobody knows what else it
    learned from, and that is what the gate compares it with.
    """
    number = next_number(connection, line)
    parent = next((one.number for one in versions(connection, line) if one.state == "live"), 0)
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
    made = Version(line=line, number=number, parent=parent, state="candidate", created_at=now, weights=place(number))
    connection.execute(insert(schema.step).values(_step_row(step)))
    _put_version(connection, made)
    return made


def _put_version(connection: Connection, version: Version) -> None:
    model = version.model or lessons.flag(connection, PRESENT_MODEL)
    connection.execute(insert(schema.version).values(_version_row(replace(version, model=model))))


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
    names: Sequence[str] = ("line", "number", "parent", "state", "created_at", "reason", "model")
    return {
        **{name: getattr(version, name) for name in names},
        "weights": None if version.weights is None else version.weights.uri,
        "sha256": version.sha256,
        "gate": orjson.dumps(version.gate).decode(),
    }


def to_step(row: RowMapping) -> Step:
    ids = {name: tuple(orjson.loads(row[name])) for name in ("sample_ids", "replayed_ids")}
    return Step(**{**row, **ids, "metrics": orjson.loads(row["metrics"])})


def _to_version(row: RowMapping) -> Version:
    columns = dict(row)
    sha256, uri = columns.pop("sha256"), columns.pop("weights")
    weights = None if uri is None else WeightsRef(uri=uri, sha256=sha256)
    return Version(**{**columns, "weights": weights, "gate": orjson.loads(row["gate"])})
