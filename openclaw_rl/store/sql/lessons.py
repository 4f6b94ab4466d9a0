"""Judgements, credits and samples to rows and back. Blocking; on the connection, and its transaction, it is given."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, RowMapping, Table, delete, insert, or_, select, true, update

from openclaw_rl.errors import StoreError
from openclaw_rl.store.sql import queries, schema, tasks
from openclaw_rl.store.sql.codec import pack_floats, pack_ids, unpack_floats, unpack_ids
from openclaw_rl.store.sql.upsert import insert_once, upsert
from openclaw_rl.types import (
    BASE_VERSION,
    PRESENT_MODEL,
    TAKEN_BACK,
    TRACES_LEFT,
    Baseline,
    Candidate,
    Credit,
    JudgedTurn,
    Judgement,
    Sample,
    Skip,
    Turn,
    Verdict,
    VersionSpan,
    Vote,
)

_BY_SESSION = (
    schema.sample,
    schema.credit,
    schema.judgement,
    schema.task,
    schema.feedback,
    schema.next_state,
    schema.turn,
    schema.message,
)
"""The tables with a column `session`, each before those it refers to."""


def put_judgement(connection: Connection, judgement: Judgement) -> None:
    """Insert it; the same evidence judged again changes nothing."""
    verdict = judgement.verdict
    row = {
        "session": judgement.session,
        "index": judgement.index,
        "num_evidence": judgement.num_evidence,
        "judge": judgement.judge,
        "prompt_version": judgement.prompt_version,
        "judged_at": judgement.judged_at,
        "outcome": verdict.outcome,
        "score": verdict.score,
        "reason": verdict.reason,
        "hints": orjson.dumps(verdict.hints).decode(),
        "votes": orjson.dumps([asdict(vote) for vote in verdict.votes]).decode(),
        "reward": verdict.value,
    }
    if connection.execute(insert_once(connection.dialect.name, schema.judgement).values(row)).rowcount:
        tasks.put_judged(connection, judgement)


def judged_turn(connection: Connection, session_id: str, index: int) -> JudgedTurn | None:
    """A turn with its newest judgement and what is known beside it; None if it was not judged."""
    judgement = _newest_judgement(connection, session_id, index)
    session = queries.session(connection, session_id)
    turn = None if judgement is None else queries.turn(connection, session_id, index)
    if judgement is None or session is None or turn is None:
        return None
    before = None if turn.parent is None else _newest_judgement(connection, session_id, turn.parent)
    credit = schema.credit.c
    return JudgedTurn(
        session=session,
        turn=turn,
        judgement=judgement,
        reward=connection.scalar(select(credit.reward).where(credit.session == session_id, credit.index == index)),
        before=None if before is None else before.verdict,
    )


def judgements(connection: Connection, session: str) -> list[Judgement]:
    """The newest judgement of every turn of a session, in the order of the turns."""
    table = schema.judgement
    query = select(table).where(table.c.session == session).order_by(table.c.index, table.c.num_evidence)
    newest = {row["index"]: row for row in connection.execute(query).mappings()}
    return [_judgement(row) for row in newest.values()]


def newest_judgements(connection: Connection, which: ColumnElement[bool]) -> dict[tuple[str, int], Judgement]:
    """Of those rows of `judgement` the newest of each turn."""
    query = select(schema.judgement).where(which).order_by(schema.judgement.c.num_evidence)
    newest = {(row["session"], row["index"]): row for row in connection.execute(query).mappings()}
    return {name: _judgement(row) for name, row in newest.items()}


def put_credit(connection: Connection, credit: Credit) -> None:
    """Replaces what an earlier judgement of the turn came to. No turn is learned from twice: what was, stays.

    A session, or a turn, that was opted out while it was credited has no samples: the opt-out takes those that were
    made before (`batch.py`), and here none are added afterwards.
    """
    column = schema.sample.c
    same_turn = (column.session == credit.session, column.index == credit.index)
    connection.execute(delete(schema.sample).where(*same_turn, column.step.is_(None)))
    trained = set(connection.scalars(select(column.id).where(*same_turn)))
    allowed = _allowed(connection, credit)
    new = [sample for sample in allowed if sample.id not in trained]
    for sample in new:
        connection.execute(insert(schema.sample).values(_sample_row(sample)))
    row: dict[str, Any] = {
        "session": credit.session,
        "index": credit.index,
        "num_evidence": credit.num_evidence,
        "rule": credit.rule,
        "credited_at": credit.credited_at,
        "reward": credit.reward,
        "skip": credit.skip if new or not credit.samples else Skip.ALREADY_TRAINED if allowed else Skip.OPTED_OUT,
    }
    turn = schema.turn.c
    is_taken_back = (turn.session == credit.session, turn.index == credit.index, turn.skip.in_(TAKEN_BACK))
    if (decided := connection.scalar(select(turn.skip).where(*is_taken_back))) is not None:
        row["skip"] = Skip(decided)
    _replace(connection, schema.credit, row, keys=("session", "index"))
    if credit.baseline is not None:
        _replace(connection, schema.baseline, asdict(credit.baseline), keys=("line", "turn_kind"))


def session_credits(connection: Connection, session: str) -> list[Credit]:
    """What became of every judged turn of a session, with its samples, in the order of the turns."""
    column = schema.credit.c
    rows = connection.execute(select(schema.credit).where(column.session == session).order_by(column.index))
    found = rows.mappings().all()
    if not found:
        return []
    made = samples(connection, session)
    return [
        Credit(
            **{
                **row,
                "skip": None if row["skip"] is None else Skip(row["skip"]),
                "samples": () if row["skip"] else tuple(one for one in made if one.index == row["index"]),
            }
        )
        for row in found
    ]


def samples(connection: Connection, session: str) -> list[Sample]:
    """The samples of a session, in the order in which they were made."""
    column = schema.sample.c
    query = select(schema.sample).where(column.session == session).order_by(column.created_at, column.id)
    return _samples(connection, connection.execute(query).mappings().all())


def waiting_samples(connection: Connection, line: str | None, limit: int) -> list[Sample]:
    """What the present model can learn from and no step has yet, of one line or of all, the oldest first."""
    column = schema.sample.c
    waits = (column.step.is_(None), of_present_model(connection))
    query = select(schema.sample).where(*waits).order_by(column.created_at, column.id).limit(limit)
    if line is not None:
        query = query.where(column.line == line)
    return _samples(connection, connection.execute(query).mappings().all())


def of_present_model(connection: Connection) -> ColumnElement[bool]:
    """Of a row of `sample`: whether the model that the store is run with sampled it; where none was named, any did."""
    model = flag(connection, PRESENT_MODEL)
    if model is None:
        return true()
    sample, turn = schema.sample.c, schema.turn.c
    answered = (turn.session == sample.session, turn.index == sample.index, turn.model == model)
    return select(turn.index).where(*answered).exists()


def opted_out() -> ColumnElement[bool]:
    """Of a row of `sample`: whether its session, or a turn that it was made of, was opted out of learning."""
    sample, session, turn = schema.sample.c, schema.session.c, schema.turn.c
    by_session = select(session.id).where(session.id == sample.session, session.opted_out)
    its_turns = (turn.session == sample.session, turn.index.in_((sample.index, sample.prompt_index)))
    by_turn = select(turn.index).where(*its_turns, turn.skip == Skip.OPTED_OUT)
    return or_(by_session.exists(), by_turn.exists())


def samples_named(connection: Connection, ids: Sequence[str]) -> list[Sample]:
    """These samples, in this order, without those that were deleted, or whose people opted out, since."""
    query = select(schema.sample).where(schema.sample.c.id.in_(ids), ~opted_out())
    found = {row["id"]: row for row in connection.execute(query).mappings()}
    return _samples(connection, [found[name] for name in ids if name in found])


def skip_samples(connection: Connection, ids: Sequence[str], why: Skip) -> None:
    """Samples that no step will have; a turn that has none left says why."""
    sample, credit = schema.sample.c, schema.credit.c
    skipped = delete(schema.sample).where(sample.id.in_(ids), sample.step.is_(None))
    turns = set(connection.execute(skipped.returning(sample.session, sample.index)).all())
    for session, index in turns:
        same_turn = (sample.session == session, sample.index == index)
        if connection.scalar(select(sample.id).where(*same_turn).limit(1)) is None:
            this = (credit.session == session, credit.index == index)
            connection.execute(update(schema.credit).where(*this).values(skip=why))


def baseline(connection: Connection, line: str, turn_kind: str) -> Baseline:
    """The running mean of a line's rewards; at zero before the first."""
    column = schema.baseline.c
    query = select(schema.baseline).where(column.line == line, column.turn_kind == turn_kind)
    row = connection.execute(query).mappings().first()
    return Baseline(line=line, turn_kind=turn_kind) if row is None else Baseline(**row)


def flag(connection: Connection, name: str) -> str | None:
    """A value that outlives the process, such as why learning is paused."""
    value: str | None = connection.scalar(select(schema.meta.c.value).where(schema.meta.c.name == f"flag.{name}"))
    return value


def set_flag(connection: Connection, name: str, value: str | None) -> None:
    """None takes the flag down."""
    connection.execute(delete(schema.meta).where(schema.meta.c.name == f"flag.{name}"))
    if value is not None:
        connection.execute(insert(schema.meta).values(name=f"flag.{name}", value=value))


def end_learning(connection: Connection, session: str) -> None:
    """Nobody learns from it any more, whatever is still said."""
    for table in (schema.sample, schema.task):
        connection.execute(delete(table).where(table.c.session == session))
    connection.execute(update(schema.session).where(schema.session.c.id == session).values(opted_out=True))


def delete_session(connection: Connection, session: str) -> None:
    """Every row of it. What its rows left elsewhere in the files is to be erased: `TRACES_LEFT` says so."""
    for table in _BY_SESSION:
        connection.execute(delete(table).where(table.c.session == session))
    connection.execute(delete(schema.session).where(schema.session.c.id == session))
    mark_traces(connection)


def mark_traces(connection: Connection) -> None:
    """Each time another value, so that whoever erased what was deleted before does not speak for this."""
    set_flag(connection, TRACES_LEFT, secrets.token_hex(8))


def all_erased(connection: Connection, traces: str | None) -> None:
    """No traces are left of what was deleted before the flag had this value."""
    if traces is not None and flag(connection, TRACES_LEFT) == traces:
        set_flag(connection, TRACES_LEFT, None)


def sessions_older_than(connection: Connection, last_seen_at: float, *, limit: int = 100) -> list[str]:
    """Closed sessions that nobody has come back to since."""
    column = schema.session.c
    query = select(column.id).where(column.closed_at.is_not(None), column.last_seen_at < last_seen_at)
    return list(connection.scalars(query.order_by(column.last_seen_at).limit(limit)))


def _allowed(connection: Connection, credit: Credit) -> list[Sample]:
    """The samples of a credit that nobody has opted out of."""
    turn, session = schema.turn.c, schema.session.c
    names = {index for sample in credit.samples for index in (sample.index, sample.prompt_index)}
    query = select(turn.index).join(schema.session, session.id == turn.session).where(turn.session == credit.session)
    private = or_(session.opted_out, turn.skip.in_((Skip.OPTED_OUT, Skip.REDACTED, *TAKEN_BACK)))
    left_out = set(connection.scalars(query.where(turn.index.in_(names), private))) if names else set()
    return [sample for sample in credit.samples if not left_out & {sample.index, sample.prompt_index}]


def _newest_judgement(connection: Connection, session: str, index: int) -> Judgement | None:
    column = schema.judgement.c
    query = select(schema.judgement).where(column.session == session, column.index == index)
    row = connection.execute(query.order_by(column.num_evidence.desc()).limit(1)).mappings().first()
    return None if row is None else _judgement(row)


def _judgement(row: RowMapping) -> Judgement:
    return Judgement(
        session=row["session"],
        index=row["index"],
        num_evidence=row["num_evidence"],
        judge=row["judge"],
        prompt_version=row["prompt_version"],
        judged_at=row["judged_at"],
        verdict=Verdict(
            outcome=row["outcome"],
            score=row["score"],
            value=row["reward"],
            reason=row["reason"],
            votes=tuple(Vote(**vote) for vote in orjson.loads(row["votes"])),
            hints=tuple(orjson.loads(row["hints"])),
        ),
    )


def _sample_row(sample: Sample) -> dict[str, Any]:
    candidates = [
        {"hint": one.hint, "num_shared": one.num_shared, "suffix": pack_ids(one.suffix_ids).hex()}
        for one in sample.candidates
    ]
    return {
        **{name: getattr(sample, name) for name in ("id", "line", "kind", "session", "index", "prompt_index")},
        **{name: getattr(sample, name) for name in ("created_at", "reward", "w_rl", "w_opd", "on_policy")},
        "step": None,
        "loss_mask": bytes(sample.loss_mask),
        "advantages": pack_floats(sample.advantages),
        "candidates": orjson.dumps(candidates),
        "response_ids": pack_ids(sample.response_ids) if sample.kind == "demonstration" else None,
    }


def _samples(connection: Connection, rows: Sequence[RowMapping]) -> list[Sample]:
    turns: dict[tuple[str, int], Turn] = {}
    for row in rows:
        for index in {row["index"], row["prompt_index"]}:
            if (row["session"], index) not in turns:
                turn = queries.turn(connection, row["session"], index)
                if turn is None:
                    raise StoreError(f"the turn of sample {row['id']} is missing in the store: restore a backup")
                turns[row["session"], index] = turn
    return [
        _sample(row, turns[row["session"], row["index"]], turns[row["session"], row["prompt_index"]]) for row in rows
    ]


def _sample(row: RowMapping, answered: Turn, asked: Turn) -> Sample:
    own = {name: row[name] for name in ("id", "line", "kind", "session", "index", "prompt_index", "created_at")}
    own["is_returned"] = row["is_returned"]
    response_ids, spans = answered.completion.token_ids, answered.completion.version_spans
    if row["response_ids"] is not None:
        response_ids = unpack_ids(row["response_ids"])
        spans = (VersionSpan(BASE_VERSION, 0, len(response_ids)),)
    return Sample(
        **own,
        **{name: row[name] for name in ("reward", "w_rl", "w_opd", "on_policy")},
        prompt_ids=asked.prompt_ids,
        response_ids=response_ids,
        loss_mask=tuple(map(bool, row["loss_mask"])),
        advantages=unpack_floats(row["advantages"]),
        logprobs=answered.completion.logprobs if row["kind"] == "turn" else None,
        temperature=answered.sampling.temperature or 1.0,
        version_spans=spans,
        candidates=tuple(
            Candidate(
                hint=one["hint"], num_shared=one["num_shared"], suffix_ids=unpack_ids(bytes.fromhex(one["suffix"]))
            )
            for one in orjson.loads(row["candidates"])
        ),
    )


def _replace(connection: Connection, table: Table, row: Mapping[str, Any], keys: Sequence[str]) -> None:
    connection.execute(upsert(connection.dialect.name, table, keys).values(row))
