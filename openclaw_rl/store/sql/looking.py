"""What the page lists, a part at a time. Blocking; on the connection, and its snapshot, it is given.

Lists are taken by keys, never by counting from the beginning, and a turn is read without the ids of its prompt: what a
list costs depends on how much of it is shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, RowMapping, and_, func, or_, select, true, tuple_, union_all

from openclaw_rl.store.sql import episodes, lessons, queries, schema, steps
from openclaw_rl.store.sql.codec import DIGEST_BYTES, digest_of, split_digests
from openclaw_rl.types import (
    CreditMark,
    EpisodeTally,
    Feedback,
    HeardPlace,
    KeptCounts,
    Message,
    NextState,
    SampleMark,
    Session,
    SessionSummary,
    Skip,
    StageTally,
    Step,
    TurnGlimpse,
    TurnTrace,
    turn_of_sample,
)

TurnName = tuple[str, int]

_session, _turn, _task = schema.session.c, schema.turn.c, schema.task.c
_state, _feedback, _sample = schema.next_state.c, schema.feedback.c, schema.sample.c
_judgement, _credit, _version, _step = schema.judgement.c, schema.credit.c, schema.version.c, schema.step.c
_episode = schema.episode.c

_GLIMPSED = (
    *("session", "index", "parent", "kind", "skip", "finish_reason", "created_at", "finished_at", "num_sampled"),
    *("versions", "answer", "messages", "model"),
)
_NEWEST = 100
"""Attempts whose mean reward is told."""


def has_turn(connection: Connection, session: str, index: int) -> bool:
    return connection.scalar(select(_turn.index).where(_turn.session == session, _turn.index == index)) is not None


def session_part(
    connection: Connection,
    line: str | None,
    *,
    after: tuple[float, str] | None,
    limit: int,
    talks_only: bool = False,
) -> list[SessionSummary]:
    """The sessions of a line, or all, the one seen last first, behind the one that was seen then; with `talks_only`
    those alone that have a main turn."""
    seen, name = _session.last_seen_at, _session.id
    query = queries.SESSIONS.order_by(seen.desc(), name).limit(limit)
    if line is not None:
        query = query.where(episodes.of_line(line))
    if talks_only:
        query = query.where(select(_turn.index).where(_turn.session == name, _turn.kind == "main").exists())
    if after is not None:
        query = query.where(or_(seen < after[0], and_(seen == after[0], name > after[1])))
    found = [queries.to_session(row) for row in connection.execute(query).mappings()]
    return queries.summaries(connection, found)


def openings(connection: Connection, sessions: Sequence[str]) -> dict[str, str]:
    """The first thing that was said in each of these sessions, as it stands in the first main turn."""
    first = (
        select(_turn.session, func.min(_turn.index).label("index"))
        .where(_turn.session.in_(sessions), _turn.kind == "main")
        .group_by(_turn.session)
        .subquery()
    )
    query = select(_turn.session, _turn.messages).join(
        first, and_(_turn.session == first.c.session, _turn.index == first.c.index)
    )
    rows = connection.execute(query).all()
    bodies = _Bodies(connection, {(row.session, one) for row in rows for one in split_digests(row.messages)})
    told: dict[str, str] = {}
    for row in rows:
        messages = bodies.messages(row.session, row.messages)
        told[row.session] = next((one.content for one in messages if one.role == "user"), "")
    return told


def glimpses(connection: Connection, session: str, *, before: int | None, limit: int) -> list[TurnGlimpse]:
    """The newest turns of a session, or those before one of them, in their order."""
    query = select(*(_turn[name] for name in _GLIMPSED)).where(_turn.session == session)
    if before is not None:
        query = query.where(_turn.index < before)
    rows = connection.execute(query.order_by(_turn.index.desc()).limit(limit)).mappings().all()
    return _glimpsed(connection, rows[::-1])


def heard_part(
    connection: Connection,
    line: str | None,
    *,
    session: str | None = None,
    after: tuple[float, str, int] | None,
    limit: int,
) -> list[HeardPlace]:
    """Main turns that something was said about, the newest word first, behind one of these places."""
    heard = union_all(
        select(_state.session, _state.index, _state.arrived_at.label("at")),
        select(_feedback.session, _feedback.index, _feedback.given_at.label("at")),
    ).subquery()
    at = func.max(heard.c.at)
    query = (
        select(at.label("at"), heard.c.session, heard.c.index)
        .join(schema.session, _session.id == heard.c.session)
        .join(schema.task, and_(_task.session == heard.c.session, _task.index == heard.c.index, _task.stage == "judge"))
        .group_by(heard.c.session, heard.c.index)
        .order_by(at.desc(), heard.c.session.desc(), heard.c.index.desc())
        .limit(limit)
    )
    if line is not None:
        query = query.where(episodes.of_line(line))
    if session is not None:
        query = query.where(heard.c.session == session)
    if after is not None:
        query = query.having(
            or_(
                at < after[0],
                and_(at == after[0], heard.c.session < after[1]),
                and_(at == after[0], heard.c.session == after[1], heard.c.index < after[2]),
            )
        )
    return [HeardPlace(at=at, session=name, index=index) for at, name, index in connection.execute(query)]


def traces(connection: Connection, turns: Collection[TurnName]) -> dict[TurnName, TurnTrace]:
    """Everything that became of these turns, of those that are there."""
    names = list(turns)
    if not names:
        return {}
    found = select(*(_turn[name] for name in _GLIMPSED)).where(_named(_turn, names))
    seen = {(one.session, one.index): one for one in _glimpsed(connection, connection.execute(found).mappings().all())}
    sessions = _sessions(connection, {session for session, _ in seen})
    states = _next_states(connection, names)
    said = _said(connection, names)
    tasks = select(_task.stage, _task.session, _task.index).where(_named(_task, names), _task.wanted > _task.done)
    open_tasks = {tuple(row) for row in connection.execute(tasks)}
    judged = lessons.newest_judgements(connection, _named(_judgement, names))
    credited = {
        (row["session"], row["index"]): CreditMark(
            credited_at=row["credited_at"],
            reward=row["reward"],
            skip=None if row["skip"] is None else Skip(row["skip"]),
        )
        for row in connection.execute(select(schema.credit).where(_named(_credit, names))).mappings()
    }
    samples = _marks(connection, _named(_sample, names))
    return {
        name: TurnTrace(
            session=sessions[name[0]],
            turn=glimpse,
            next_state=states.get(name),
            feedback=tuple(said[name]),
            is_unjudged=("judge", *name) in open_tasks,
            is_uncredited=("credit", *name) in open_tasks,
            judgement=judged.get(name),
            credit=credited.get(name),
            samples=tuple(samples[name]),
        )
        for name, glimpse in seen.items()
    }


def changed_turns(connection: Connection, since: float, *, limit: int) -> list[TurnName]:
    """Turns that somebody said something about since, or on which the judge or credit began or ended something; small
    rows alone are looked at."""
    changed = union_all(
        select(_task.session, _task.index, _task.due_at.label("at")).where(_task.due_at >= since),
        select(_state.session, _state.index, _state.arrived_at.label("at")).where(_state.arrived_at >= since),
        select(_feedback.session, _feedback.index, _feedback.given_at.label("at")).where(_feedback.given_at >= since),
    ).subquery()
    query = select(changed.c.session, changed.c.index).order_by(changed.c.at.desc()).limit(limit)
    return list(dict.fromkeys((session, index) for session, index in connection.execute(query)))


def seen_sessions(connection: Connection, since: float, *, limit: int) -> list[tuple[Session, int]]:
    """Sessions that were seen since, each with its newest turn."""
    query = queries.SESSIONS.where(_session.last_seen_at >= since).order_by(_session.last_seen_at.desc()).limit(limit)
    found = [queries.to_session(row) for row in connection.execute(query).mappings()]
    newest = select(_turn.session, func.max(_turn.index).label("index")).where(
        _turn.session.in_([one.id for one in found])
    )
    rows = connection.execute(newest.group_by(_turn.session))
    last = {session: index for session, index in rows}  # noqa: C416 - a result is no mapping
    return [(one, last[one.id]) for one in found if one.id in last]


def states(connection: Connection) -> dict[tuple[str, int], str]:
    """Every step and version by its line and number, and how it stands: its state first, then what else may change."""
    told = {
        (row.line, row.number): str(row.state)
        for row in connection.execute(select(_step.line, _step.number, _step.state))
    }
    for row in connection.execute(select(_version.line, _version.number, _version.state, _version.gate)):
        told[row.line, row.number] = f"{row.state} {hash(row.gate)}"
    return told


def step_samples(connection: Connection, line: str, number: int) -> list[TurnName]:
    """The turns whose samples a step has, or had before they were given back."""
    names = connection.scalar(select(_step.sample_ids).where(_step.line == line, _step.number == number))
    return list(dict.fromkeys(turn_of_sample(name) for name in orjson.loads(names or "[]")))


def tally(connection: Connection, stage: str, line: str | None, *, since: float) -> StageTally:
    """What the judge, or credit, has before it, and what it did since."""
    mine: ColumnElement[bool] = true()
    if line is not None:
        mine = _task.session.in_(select(_session.id).where(episodes.of_line(line)))
    waits = and_(_task.stage == stage, _task.wanted > _task.done, mine)
    num, first = connection.execute(select(func.count(), func.min(_task.due_at)).where(waits)).one()
    ended = and_(_task.stage == stage, _task.done > 0, _task.due_at >= since, _task.wanted <= _task.done, mine)
    done = connection.scalar(select(func.count()).select_from(schema.task).where(ended)) or 0
    return StageTally(num_waiting=num, since=first, num_done=done)


def captured(connection: Connection, line: str | None, *, since: float) -> int:
    """Main turns since then, of sessions that were seen since."""
    query = select(func.count()).select_from(schema.turn).join(schema.session, _session.id == _turn.session)
    query = query.where(_session.last_seen_at >= since, _turn.kind == "main", _turn.finished_at >= since)
    return connection.scalar(query if line is None else query.where(episodes.of_line(line))) or 0


def steps_since(connection: Connection, line: str | None, since: float) -> list[Step]:
    """Steps that ended since then, or are at it, the newest first."""
    which = or_(_step.state == "planned", _step.finished_at >= since)
    query = select(schema.step).where(which if line is None else and_(which, _step.line == line))
    query = query.order_by(_step.planned_at.desc())
    return [steps.to_step(row) for row in connection.execute(query).mappings()]


def newest_steps(connection: Connection, *, limit: int) -> list[Step]:
    """Of all lines, those that ended with a version."""
    query = select(schema.step).where(_step.state == "done").order_by(_step.finished_at.desc()).limit(limit)
    return [steps.to_step(row) for row in connection.execute(query).mappings()]


def episode_tallies(connection: Connection) -> list[EpisodeTally]:
    """Every environment with its attempts."""
    failed = func.count().filter(_episode.failure != "")
    query = select(_episode.environment, func.count(), failed, func.max(_episode.ended_at))
    rows = connection.execute(query.group_by(_episode.environment).order_by(_episode.environment)).all()
    told = []
    for environment, num, num_failed, last_at in rows:
        rewarded = (_episode.environment == environment, _episode.reward.is_not(None))
        newest = select(_episode.reward).where(*rewarded).order_by(_episode.ended_at.desc()).limit(_NEWEST).subquery()
        reward = connection.scalar(select(func.avg(newest.c.reward)))
        told.append(
            EpisodeTally(
                environment=environment, num_episodes=num, num_failed=num_failed, reward=reward, last_at=last_at
            )
        )
    return told


def kept(connection: Connection, user: str) -> KeptCounts:
    """How much is stored of one user; a version is there as long as its weights are."""
    sessions = select(func.count()).select_from(schema.session).where(_session.user == user)
    turns = select(func.count()).select_from(schema.turn).join(schema.session, _session.id == _turn.session)
    versions = select(func.count()).select_from(schema.version)
    versions = versions.where(_version.line == user, _version.weights.is_not(None))
    return KeptCounts(
        num_sessions=connection.scalar(sessions) or 0,
        num_turns=connection.scalar(turns.where(_session.user == user)) or 0,
        num_versions=connection.scalar(versions) or 0,
    )


def skip_counts(connection: Connection, line: str | None) -> dict[Skip, int]:
    """How many main turns of a line, or of all, are not learned from, by the reason; the commonest first."""
    reason = func.coalesce(_credit.skip, _turn.skip)
    query = select(reason, func.count()).select_from(schema.turn)
    query = query.outerjoin(schema.credit, and_(_credit.session == _turn.session, _credit.index == _turn.index))
    if line is not None:
        query = query.join(schema.session, _session.id == _turn.session).where(episodes.of_line(line))
    rows = connection.execute(query.where(reason.is_not(None)).group_by(reason).order_by(func.count().desc(), reason))
    return {Skip(name): count for name, count in rows}


def lines(connection: Connection) -> list[str]:
    """Every line that somebody has talked on, or that has versions."""
    users = connection.scalars(select(_session.user).where(_session.episode.is_(None)).distinct())
    tracks = connection.scalars(select(_episode.environment).distinct())
    made = connection.scalars(select(_version.line).distinct())
    return sorted({*users, *(f"env:{name}" for name in tracks), *made})


class _Bodies:
    """The messages that rows of several sessions name."""

    def __init__(self, connection: Connection, wanted: Iterable[tuple[str, bytes]]) -> None:
        by_session: defaultdict[str, set[bytes]] = defaultdict(set)
        for session, digest in wanted:
            by_session[session].add(digest)
        self._read: dict[tuple[str, bytes], Message] = {}
        for session, digests in by_session.items():
            for digest, body in queries.stored_bodies(connection, session, digests).items():
                if digest_of(body) == digest:
                    self._read[session, digest] = Message.from_json(orjson.loads(body))

    def messages(self, session: str, packed: bytes) -> tuple[Message, ...]:
        """Those that are whole; `openclaw-rl doctor` tells of damage."""
        names = ((session, digest) for digest in split_digests(packed))
        return tuple(self._read[name] for name in names if name in self._read)


def _glimpsed(connection: Connection, rows: Sequence[RowMapping]) -> list[TurnGlimpse]:
    wanted = {(row["session"], one) for row in rows for one in (*_own(row["messages"]), row["answer"])}
    bodies = _Bodies(connection, wanted)
    told = []
    for row in rows:
        own = bodies.messages(row["session"], b"".join(_own(row["messages"])))
        since = max((at for at, one in enumerate(own) if one.role == "assistant"), default=-1)
        answer = bodies.messages(row["session"], row["answer"])
        facts = {name: row[name] for name in _GLIMPSED if name not in ("versions", "answer", "messages", "skip")}
        told.append(
            TurnGlimpse(
                **facts,
                skip=None if row["skip"] is None else Skip(row["skip"]),
                versions=tuple(orjson.loads(row["versions"])),
                asked=own[since + 1 :],
                answer=answer[0] if answer else Message(role="assistant"),
            )
        )
    return told


_SHOWN = 64
"""Messages of one request that are looked at, the last ones."""


def _own(packed: bytes) -> Sequence[bytes]:
    return split_digests(packed[-_SHOWN * DIGEST_BYTES :])


def _named(column: Any, turns: Sequence[TurnName]) -> ColumnElement[bool]:
    """Of a row with a column `session` and one `index`: whether it is of one of these turns."""
    named: ColumnElement[bool] = tuple_(column.session, column.index).in_(turns)
    return named


def _sessions(connection: Connection, names: Collection[str]) -> dict[str, Session]:
    rows = connection.execute(queries.SESSIONS.where(_session.id.in_(names))).mappings()
    return {row["id"]: queries.to_session(row) for row in rows}


def _next_states(connection: Connection, names: Sequence[TurnName]) -> dict[TurnName, NextState]:
    rows = connection.execute(select(schema.next_state).where(_named(_state, names))).mappings().all()
    bodies = _Bodies(connection, {(row["session"], one) for row in rows for one in _own(row["messages"])})
    return {
        (row["session"], row["index"]): NextState(
            session=row["session"],
            index=row["index"],
            messages=bodies.messages(row["session"], b"".join(_own(row["messages"]))),
            arrived_at=row["arrived_at"],
        )
        for row in rows
    }


def _said(connection: Connection, names: Sequence[TurnName]) -> Mapping[TurnName, list[Feedback]]:
    columns = (column for column in schema.feedback.columns if column.name != "digest")
    query = select(*columns).where(_named(_feedback, names)).order_by(_feedback.given_at)
    told: defaultdict[TurnName, list[Feedback]] = defaultdict(list)
    for row in connection.execute(query).mappings():
        told[row["session"], row["index"]].append(Feedback(**row))
    return told


def _marks(connection: Connection, which: ColumnElement[bool]) -> Mapping[TurnName, list[SampleMark]]:
    names = tuple(SampleMark.__dataclass_fields__)
    query = select(_sample.session, _sample.index, *(_sample[name] for name in names)).where(which)
    told: defaultdict[TurnName, list[SampleMark]] = defaultdict(list)
    for row in connection.execute(query.order_by(_sample.created_at, _sample.id)).mappings():
        told[row["session"], row["index"]].append(SampleMark(**{name: row[name] for name in names}))
    return told
