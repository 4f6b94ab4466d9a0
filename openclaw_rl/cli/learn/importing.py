"""Recorded rollouts -> turns in the store, each once, however often its file is read.

    a turn with every id and log-prob    a turn like any other: it is judged, credited and learned from
    a turn without                       kept as a conversation and skipped, `not_exact`
    a turn that is known                 nothing, but what has followed it since

They stand in lines of `rollouts collect`, or in trajectories of other formats. Ids and log-probs come from there or are
absent; none is made up. What is imported belongs to the user of this machine, whatever a file says, and its sessions
are over; verdicts and rewards of others are not taken over. Knows files and the store; what becomes of a turn is for
the loops to say.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, get_args

import orjson

from openclaw_rl.cli.learn.rollout_files import Line, RolloutError, inspect_sessions
from openclaw_rl.cli.learn.trajectory_files import read_trajectories
from openclaw_rl.config import StoreConfig
from openclaw_rl.gateway.sessions.history import trace
from openclaw_rl.gateway.sessions.placement import session_id
from openclaw_rl.protocols import WholeStore
from openclaw_rl.types import (
    LOCAL_USER,
    Completion,
    Feedback,
    FinishReason,
    Json,
    Message,
    NextState,
    Sampling,
    Session,
    Skip,
    Tool,
    Turn,
    TurnKind,
    TurnRecord,
    VersionSpan,
    split_turn_id,
    version_number,
)
from openclaw_rl.types.checks import require
from openclaw_rl.views.rows import has_store

_CLIENT = "rollouts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A line of a file: a turn, and what was said after it."""

    turn: Turn
    followed_by: tuple[Message, ...] | None
    feedback: tuple[Feedback, ...]

    @property
    def is_exact(self) -> bool:
        return bool(self.turn.completion.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """How many turns were read, and what became of them; `refused` have the name of another turn, or opted out."""

    read: int
    new: int
    known: int
    not_exact: int
    refused: int

    def to_json(self) -> dict[str, Json]:
        return asdict(self)


def read_rollouts(path: Path) -> dict[str, list[Rollout]]:
    """The turns of each session in order, of a folder or a file; RolloutError for what holds no rollouts."""
    if has_store(StoreConfig(data_dir=path)):
        raise RolloutError(f"{path} is a data directory, not rollouts: train on it with --data-dir {path}")
    told = {recording.session.id: list(map(_of_record, recording.records)) for recording in read_trajectories(path)}
    if told and not any(path.glob("*.jsonl")):
        return told
    lines = {session: [_rollout(line) for line in lines] for session, lines in inspect_sessions(path).items()}
    if twice := told.keys() & lines.keys():
        raise RolloutError(f"{path} tells of session {min(twice)} in lines and in trajectories; keep one of them")
    return {**told, **lines}


async def import_rollouts(store: WholeStore, sessions: Mapping[str, Sequence[Rollout]]) -> Imported:
    """Puts into the store what it does not have yet."""
    counts: Counter[str] = Counter()
    for told, read in sessions.items():
        name = await _own_name(store, told)
        rollouts = [_renamed(rollout, name) for rollout in read]
        known = await store.lessons.get_session(name)
        if known is None:
            await store.put_session(_session(name, rollouts))
        for rollout in rollouts:
            counts["refused" if known is not None and known.opted_out else await _put(store, rollout)] += 1
            counts["not_exact"] += not rollout.is_exact
        if known is None:
            await store.close_session(name, time.time())
    return Imported(
        read=sum(map(len, sessions.values())),
        new=counts["new"],
        known=counts["known"],
        not_exact=counts["not_exact"],
        refused=counts["refused"],
    )


async def _own_name(store: WholeStore, session: str) -> str:
    """The id under which a session is imported: its own, unless that is or may come to be another user's."""
    known, ours = await store.lessons.get_session(session), f"{LOCAL_USER}/"
    if known is None:
        is_ours = session.startswith(ours) or session_id(LOCAL_USER, session) == session
    else:
        is_ours = known.user == LOCAL_USER
    return session if is_ours else ours + session


def _renamed(rollout: Rollout, session: str) -> Rollout:
    said = tuple(replace(one, session=session, user=LOCAL_USER) for one in rollout.feedback)
    return replace(rollout, turn=replace(rollout.turn, session=session), feedback=said)


async def _put(store: WholeStore, rollout: Rollout) -> str:
    turn = rollout.turn
    stored = await store.get_turn(turn.session, turn.index)
    if stored is None:
        parent = None if turn.parent is None else await store.get_turn(turn.session, turn.parent)
        await store.put_turn(turn if parent is not None else replace(turn, parent=None))
    elif stored.completion.token_ids != turn.completion.token_ids or stored.message != turn.message:
        return "refused"
    if rollout.followed_by is not None:
        # When it came is not in the file; not before the answer's end.
        state = NextState(
            session=turn.session, index=turn.index, messages=rollout.followed_by, arrived_at=turn.finished_at
        )
        await store.put_next_state(state)
    for feedback in rollout.feedback:
        await store.put_feedback(feedback)
    return "new" if stored is None else "known"


def _session(name: str, rollouts: Sequence[Rollout]) -> Session:
    return Session(
        id=name,
        user=LOCAL_USER,
        client=_CLIENT,
        opened_at=min(rollout.turn.created_at for rollout in rollouts),
        last_seen_at=max(rollout.turn.finished_at for rollout in rollouts),
    )


def _rollout(line: Line) -> Rollout:
    try:
        state = line["next_state"]
        feedback = tuple(
            Feedback(session=line["session_id"], index=line["index"], **one) for one in line.get("feedback") or ()
        )
        followed_by = None if state is None else tuple(map(Message.from_json, state))
        turn = _turn(line, is_followed=bool(state or feedback))
        return Rollout(turn=turn, followed_by=followed_by, feedback=feedback)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RolloutError(
            f"turn {line['id']} is no turn of a rollout ({error!r}); `openclaw-rl rollouts collect` writes such files"
        ) from error


def _of_record(record: TurnRecord) -> Rollout:
    """A turn of a trajectory, named as the conversation of its new user."""
    turn, state = record.turn, record.next_state
    completion = turn.completion
    are_there = turn.model and turn.prompt_ids and completion.token_ids
    are_ids = all(token >= 0 for token in (*turn.prompt_ids, *completion.token_ids))
    is_exact = bool(are_there) and are_ids and _are_ours(completion.version_spans)
    if not is_exact:
        nothing = Completion(token_ids=(), logprobs=(), finish_reason=completion.finish_reason, version_spans=())
        turn = replace(turn, prompt_ids=(), num_prefill=0, completion=nothing)
    asked = [message.to_json() for message in turn.messages]
    request = [asked, [tool.to_json() for tool in turn.tools], turn.sampling.to_json()]
    turn = replace(
        turn,
        request_digest=_digest(request),
        chain=str(trace(LOCAL_USER, turn.messages).then(turn.message)),
        skip=_skip(turn.skip, is_exact=is_exact, is_followed=bool(state or record.feedback)),
    )
    return Rollout(turn=turn, followed_by=None if state is None else state.messages, feedback=record.feedback)


def _skip(told: Skip | None, *, is_exact: bool, is_followed: bool) -> Skip | None:
    if told is None and not is_exact:
        return Skip.NOT_EXACT
    return Skip.NO_NEXT_STATE if told is None and not is_followed else told


def _digest(request: Json) -> str:
    return blake2b(orjson.dumps(request), digest_size=16).hexdigest()


def _are_ours(spans: Sequence[VersionSpan]) -> bool:
    try:
        return bool([version_number(span.version) for span in spans])
    except ValueError:
        return False


def _turn(line: Mapping[str, Any], *, is_followed: bool) -> Turn:
    exact = _exact(line)
    told = Skip(line["skip"]) if line.get("skip") else None
    kind = line.get("type") or line["kind"]
    require(kind in get_args(TurnKind), f"a turn is main or side, not {kind!r}")
    messages = tuple(map(Message.from_json, line["request"]))
    answer = line.get("message") or {"role": "assistant", "content": line["text"]}
    message = Message.from_json(answer)
    created_at = float(line.get("created_at") or 0.0)
    return Turn(
        session=line["session_id"],
        index=line["index"],
        parent=_parent(line),
        kind=kind,
        created_at=created_at,
        finished_at=float(line.get("finished_at") or created_at),
        dialect=line.get("dialect") or "chat",
        model=line.get("model") or "unknown",
        messages=messages,
        tools=tuple(map(Tool.from_json, line.get("tools") or ())),
        sampling=Sampling.from_json(line["sampling"]) if line.get("sampling") else Sampling(max_tokens=1),
        stop=tuple(line.get("stop") or ()),
        prompt_ids=tuple(line["prompt_ids"]) if exact else (),
        num_prefill=line.get("num_prefill", 0) if exact else 0,
        completion=exact or _without_ids(line),
        message=message,
        request_digest=_digest([line["request"], line.get("tools"), line.get("sampling")]),
        chain=str(trace(LOCAL_USER, messages).then(message)),
        skip=_skip(told, is_exact=exact is not None, is_followed=is_followed),
        delivered=bool(line.get("delivered")),
    )


def _exact(line: Mapping[str, Any]) -> Completion | None:
    """The sampled tokens, if the line has all that training needs to know of them."""
    try:
        ids, logprobs = line["token_ids"], line["logprobs"]
        spans = tuple(VersionSpan(**span) for span in line["version_spans"])
        completion = Completion(
            token_ids=tuple(ids), logprobs=tuple(logprobs), finish_reason=line["finish_reason"], version_spans=spans
        )
        is_whole = _are_ours(spans) and "temperature" in line["sampling"] and line["model"] and line["prompt_ids"]
        are_ids = all(type(token) is int and token >= 0 for token in (*line["prompt_ids"], *ids))
        are_logprobs = all(isinstance(value, float | int) and math.isfinite(value) for value in logprobs)
    except (KeyError, TypeError, ValueError):
        return None
    return completion if is_whole and are_ids and are_logprobs else None


def _without_ids(line: Mapping[str, Any]) -> Completion:
    known: dict[str | None, FinishReason] = {name: name for name in get_args(FinishReason)}
    reason = known.get(line.get("finish_reason"), "stop")
    return Completion(token_ids=(), logprobs=(), finish_reason=reason, version_spans=())


def _parent(line: Mapping[str, Any]) -> int | None:
    if not line.get("parent"):
        return None
    session, index = split_turn_id(line["parent"])
    return index if session == line["session_id"] and index < line["index"] else None
