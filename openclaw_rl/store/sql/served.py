"""Turns that a release looks back at. Blocking; each function reads from the connection it is given.

Only main turns of people who let them be learned from are replayed; what a version served is counted for all.
"""

from __future__ import annotations

from typing import TypeVar

import orjson
from sqlalchemy import ColumnElement, Connection, ScalarSelect, and_, false, func, or_, select

from openclaw_rl.store.sql import episodes, lessons, queries, schema, steps
from openclaw_rl.store.sql.codec import unpack_ids
from openclaw_rl.types import CALLED_AGAIN, FINDING, TAKEN_BACK, ReplayedTurn, ServedTurn, Skip, ancestry, turn_id

T = TypeVar("T")

_turn, _session, _judgement = schema.turn.c, schema.session.c, schema.judgement.c
_sample = schema.sample.c

_CUT_SHORT = (Skip.ABORTED, Skip.ENGINE_LOST)
"""Answers that ended for reasons of somebody else: they say nothing of the version that gave them."""

_LOOKED_AT = 64
"""Samples, and steps, in which the newest hints are looked for."""


def _newest(column: ColumnElement[T]) -> ScalarSelect[T]:
    """Of the newest judgement on a turn."""
    judged = select(column).where(_judgement.session == _turn.session, _judgement.index == _turn.index)
    return judged.order_by(_judgement.num_evidence.desc()).limit(1).scalar_subquery()


_score, _votes = _newest(_judgement.score), _newest(_judgement.votes)
_answer = (
    select(schema.message.c.body)
    .where(schema.message.c.session == _turn.session, schema.message.c.digest == _turn.answer)
    .scalar_subquery()
)


def replayed(connection: Connection, line: str, *, model: str, limit: int, max_tokens: int) -> list[ReplayedTurn]:
    """The last turns of a line that this model answered, each within `max_tokens`; the newest first."""
    private = (Skip.OPTED_OUT, Skip.REDACTED, *TAKEN_BACK, Skip.ENGINE_FAILED, *_CUT_SHORT, Skip.NOT_EXACT)
    query = (
        select(_turn.session, _turn.index, _score)
        .join(schema.session, _session.id == _turn.session)
        .where(episodes.of_line(line), ~_session.opted_out, _turn.kind == "main", _turn.complete, _turn.model == model)
        .where(or_(_turn.skip.is_(None), _turn.skip.not_in(private)))
        .where(_turn.num_sampled > 0, _turn.num_prompt + _turn.num_sampled <= max_tokens)
        .order_by(_turn.finished_at.desc(), _turn.session, _turn.index.desc())
        .limit(limit)
    )
    found: list[ReplayedTurn] = []
    for session, index, score in connection.execute(query):
        turn = queries.turn(connection, session, index)
        assert turn is not None, "it was there a moment ago, in the same transaction"
        asked = next((message.content for message in reversed(turn.messages) if message.role == "user"), "")
        found.append(
            ReplayedTurn(
                id=turn_id(session, index),
                text=asked,
                tools=turn.tools,
                prompt_ids=turn.prompt_ids,
                response_ids=turn.completion.token_ids,
                score=score,
            )
        )
    return found


def hints(connection: Connection, line: str, *, number: int, limit: int) -> list[str]:
    """The hints that a version learned from, and those that it stands on did, the newest first and each once."""
    way = ancestry(steps.versions(connection, line), number)[:_LOOKED_AT]
    mine = (_sample.line == line, _sample.step.in_(way), _sample.w_opd > 0)
    newest = select(_sample.id).where(*mine).order_by(_sample.created_at.desc(), _sample.id).limit(_LOOKED_AT)
    samples = lessons.samples_named(connection, connection.scalars(newest).all())
    said = dict.fromkeys(one.hint for sample in samples for one in sample.candidates if one.hint)
    return list(said)[:limit]


def served(connection: Connection, line: str, label: str, *, since: float, limit: int) -> list[ServedTurn]:
    """The last main turns of a line that a version answered, or failed to, since then; the oldest first.

    Who answered nothing is not known by the row: an engine that failed over an answer before its first token counts
    from `since` on, where that is given. One that was away does not count, however far the answer had come.
    """
    # Not LIKE: some databases do not tell capital from small letters there.
    by_label = func.replace(_turn.versions, orjson.dumps(label).decode(), "") != _turn.versions
    in_vain = and_(_turn.versions == "[]", _turn.skip == Skip.ENGINE_FAILED) if since else false()
    facts = (_turn.finished_at, _turn.token_ids, _turn.skip, _turn.finish_reason, _turn.num_sampled)
    query = (
        select(*facts, _score.label("score"), _votes.label("votes"), _answer.label("answer"))
        .join(schema.session, _session.id == _turn.session)
        .where(episodes.of_line(line), _session.last_seen_at >= since, _turn.created_at >= since, _turn.kind == "main")
        .where(or_(_turn.skip.is_(None), _turn.skip.not_in(_CUT_SHORT)), or_(by_label, in_vain))
        .order_by(_turn.finished_at.desc())
        .limit(limit)
    )
    return [
        ServedTurn(
            finished_at=row.finished_at,
            token_ids=unpack_ids(row.token_ids),
            failed=row.skip == Skip.ENGINE_FAILED or (row.finish_reason == "stop" and row.num_sampled <= 1),
            score=row.score,
            repeats_call=_repeats_call(row.answer, row.votes),
        )
        for row in reversed(connection.execute(query).all())
    ]


def _repeats_call(answer: bytes | None, votes: str | None) -> bool | None:
    """What the judge's rows say of an answer that calls a tool."""
    if answer is None or votes is None or not orjson.loads(answer).get("tool_calls"):
        return None
    said = [vote["raw"] for vote in orjson.loads(votes)]
    return any(raw.startswith(FINDING) and raw.endswith(CALLED_AGAIN) for raw in said)
