"""Lessons that are taken back: which rows change, in one transaction. Blocking; on the connection it is given.

What was decided is in `types/lineage.py`. Versions keep their rows and numbers whatever happens: a label names the same
weights for ever, or none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import orjson
from sqlalchemy import ColumnElement, Connection, and_, delete, false, func, or_, select, true, update

from openclaw_rl.store.sql import lessons, schema, steps
from openclaw_rl.types import (
    PRESENT_MODEL,
    Json,
    Lesson,
    Skip,
    Step,
    Undoing,
    Undone,
    Version,
    plan_undoing,
)

FORGOTTEN = "a conversation that it learned from was forgotten"

_sample, _step, _version, _turn = schema.sample.c, schema.step.c, schema.version.c, schema.turn.c


def undo(
    connection: Connection,
    lesson: Lesson,
    *,
    reason: str,
    now: float,
    loaded: Collection[int] | None,
    unusable: Collection[int] = (),
) -> Undone:
    """Takes a lesson back, unless the version to go back to is not among those `loaded`; None: that is nobody's matter.

    The lesson's samples are skipped for good. All others of the undone steps wait again, in their old order. Every
    model that learned from it goes back; only the present one's version must be loaded.
    """
    mine = and_(_sample.line == lesson.line, _taught(lesson))
    besides = set(connection.scalars(select(_sample.id).where(mine)))
    taken = steps.line_steps(connection, lesson.line)
    plans = _plans(connection, taken, lesson, besides=besides, unusable=unusable)
    plan = _in_all(plans)
    if loaded is not None and plan.back_to not in loaded:
        return Undone(plan=plan, is_done=False)
    for step in taken:
        if step.state == "planned" and (step.parent in plan.undone or _uses(step, lesson, besides)):
            _discard(connection, step, reason=reason, now=now)
    for each in plans:
        _roll_back(connection, lesson.line, each, reason=reason)
    returned = update(schema.sample).where(_sample.line == lesson.line, _sample.step.in_(plan.rebuilt))
    ids = set(connection.scalars(returned.values(step=None, is_returned=True).returning(_sample.id)))
    _withdraw(connection, ids)
    num_removed = _skip_for_good(connection, lesson, mine)
    num_returned = connection.scalar(select(func.count()).where(_sample.id.in_(ids - besides))) or 0
    return Undone(plan=plan, is_done=True, num_removed=num_removed, num_returned=num_returned)


def forget(connection: Connection, lesson: Lesson, plan: Undoing) -> bool:
    """Every name of the lesson's sessions in rows that stay, and what could be learned from these sessions; they are to
    be deleted next. False, and nothing is changed, if a step learned from them since `plan` was made.

    The weights of the versions that held the lesson are gone already.
    """
    taken = steps.line_steps(connection, lesson.line)
    is_begun = any(step.state == "planned" and _uses(step, lesson, ()) for step in taken)
    if is_begun or _in_all(_plans(connection, taken, lesson)).holding != plan.holding:
        return False
    this = (_version.line == lesson.line, _version.number.in_(plan.holding))
    connection.execute(update(schema.version).where(*this).values(weights=None, gate="null", reason=FORGOTTEN))
    for session in lesson.sessions:
        lessons.end_learning(connection, session)
    for version in steps.versions(connection, lesson.line, every_model=True):
        _forget_in_version(connection, version, lesson)
    for step in taken:
        _forget_in_step(connection, step, lesson)
    connection.execute(delete(schema.baseline).where(schema.baseline.c.line == lesson.line))
    lessons.mark_traces(connection)
    return True


def num_returned(connection: Connection) -> dict[str, int]:
    """How many samples of undone steps wait to be learned from again, by line."""
    waits = (_sample.step.is_(None), _sample.is_returned, lessons.of_present_model(connection))
    query = select(_sample.line, func.count()).where(*waits)
    return {line: count for line, count in connection.execute(query.group_by(_sample.line))}  # noqa: C416


def was_taken_back(connection: Connection, line: str, numbers: Collection[int]) -> bool:
    """Whether samples that made one of these versions were given back since, or taken out for good."""
    made = [step for step in steps.line_steps(connection, line) if step.number in numbers]
    gone = (
        and_(_sample.id.in_(step.sample_ids), _sample.step.is_distinct_from(step.number))
        for step in made
        if step.sample_ids
    )
    return connection.scalar(select(func.count()).where(_sample.line == line, or_(false(), *gone))) != 0


def _plans(
    connection: Connection,
    taken: Sequence[Step],
    lesson: Lesson,
    *,
    besides: Collection[str] = (),
    unusable: Collection[int] = (),
) -> list[Undoing]:
    """One for each model that has versions of the line, the present one's first: each has one that answers."""
    present = lessons.flag(connection, PRESENT_MODEL)
    by_model: dict[str | None, list[Version]] = {present: []}
    for version in steps.versions(connection, lesson.line, every_model=True):
        by_model.setdefault(present if present is None else version.model or present, []).append(version)
    return [plan_undoing(one, taken, lesson, besides=besides, unusable=unusable) for one in by_model.values()]


def _in_all(plans: Sequence[Undoing]) -> Undoing:
    """What happens to all versions; what answers is what the first says."""
    return replace(
        plans[0],
        undone=tuple(sorted(number for plan in plans for number in plan.undone)),
        rebuilt=tuple(sorted(number for plan in plans for number in plan.rebuilt)),
        holding=tuple(sorted(number for plan in plans for number in plan.holding)),
    )


def _taught(lesson: Lesson) -> ColumnElement[bool]:
    """Of a row of `sample`: whether it belongs to the lesson. A rewrite belongs to both its turns."""
    if lesson.everything:
        return true()
    if lesson.turn is None:
        return _sample.session.in_(lesson.sessions)
    session, index = lesson.turn
    return and_(_sample.session == session, or_(_sample.index == index, _sample.prompt_index == index))


def _turns(lesson: Lesson) -> ColumnElement[bool]:
    """Of a row of `turn`: whether nobody shall learn from it any more. Whole sessions go with all their rows."""
    if lesson.turn is None:
        return false()
    return and_(_turn.session == lesson.turn[0], _turn.index == lesson.turn[1])


def _uses(step: Step, lesson: Lesson, besides: Collection[str]) -> bool:
    return any(lesson.holds(one) or one in besides for one in (*step.sample_ids, *step.replayed_ids))


def _discard(connection: Connection, step: Step, *, reason: str, now: float) -> None:
    """A step that was begun ends here: whoever takes it finds that out, and keeps nothing of it."""
    this = (_step.line == step.line, _step.number == step.number)
    connection.execute(update(schema.step).where(*this).values(state="discarded", finished_at=now, reason=reason))
    mine = (_sample.line == step.line, _sample.step == step.number)
    ids = connection.scalars(update(schema.sample).where(*mine).values(step=None).returning(_sample.id)).all()
    _withdraw(connection, ids)


def _roll_back(connection: Connection, line: str, plan: Undoing, *, reason: str) -> None:
    for number in plan.undone:
        steps.set_state(connection, line, number, "rolled_back", reason=reason)
    if plan.back_to and plan.back_to != plan.answering:
        steps.set_state(connection, line, plan.back_to, "live")


def _withdraw(connection: Connection, ids: Collection[str]) -> None:
    """Skips those of these samples whose session opted out while a step had them: opting out removes waiting samples
    only."""
    withdrawn = select(_sample.id).where(_sample.id.in_(ids), lessons.opted_out())
    lessons.skip_samples(connection, connection.scalars(withdrawn).all(), Skip.OPTED_OUT)


def _skip_for_good(connection: Connection, lesson: Lesson, mine: ColumnElement[bool]) -> int:
    connection.execute(update(schema.sample).where(mine).values(step=None))
    ids = connection.scalars(select(_sample.id).where(mine)).all()
    lessons.skip_samples(connection, ids, lesson.skip)
    free = or_(_turn.skip.is_(None), _turn.skip == Skip.NO_NEXT_STATE)
    connection.execute(update(schema.turn).where(_turns(lesson), free).values(skip=lesson.skip))
    return len(ids)


def _unnamed(lesson: Lesson, value: Json) -> Json:
    """What a gate reported, or any part of it, with no name of the lesson's turns in it."""
    if isinstance(value, str):
        return lesson.unnamed(value)
    if isinstance(value, dict):
        return {key: _unnamed(lesson, inner) for key, inner in value.items()}
    return [_unnamed(lesson, inner) for inner in value] if isinstance(value, list) else value


def _forget_in_version(connection: Connection, version: Version, lesson: Lesson) -> None:
    """Its gate may have tried it on a turn that it never learned from."""
    reason, gate = lesson.unnamed(version.reason), _unnamed(lesson, version.gate)
    if (reason, gate) != (version.reason, version.gate):
        this = (_version.line == version.line, _version.number == version.number)
        changes = {"reason": reason, "gate": orjson.dumps(gate).decode()}
        connection.execute(update(schema.version).where(*this).values(changes))


def _forget_in_step(connection: Connection, step: Step, lesson: Lesson) -> None:
    changes = {
        name: orjson.dumps([one for one in getattr(step, name) if not lesson.holds(one)]).decode()
        for name in ("sample_ids", "replayed_ids")
    }
    changes["reason"] = lesson.unnamed(step.reason)
    this = (_step.line == step.line, _step.number == step.number)
    connection.execute(update(schema.step).where(*this).values(changes))
