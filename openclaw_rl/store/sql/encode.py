"""The nouns of `types.py` to rows, ready to be written. Pure; runs in the caller's thread when a record is put.

Here, and not beside SQLite, so that a record that cannot be encoded fails alone and at once, and so that the writing
thread has nothing to do but write.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
from sqlalchemy import RowMapping

from openclaw_rl.store.sql.codec import (
    DIGEST_BYTES,
    ID_BYTES,
    Row,
    SqlValue,
    body_of,
    digest_of,
    pack_floats,
    pack_ids,
    pack_top_logprobs,
)
from openclaw_rl.types import ApiKey, Episode, Feedback, Json, KeyTerms, NextState, Session, Skip, Turn


class Op(enum.IntEnum):
    """What a write does. Writes of one segment (see `batch.py`) are done in this order: each finds its referents."""

    KEY = enum.auto()
    EPISODE = enum.auto()
    SESSION = enum.auto()
    TURN = enum.auto()
    NEXT_STATE = enum.auto()
    FEEDBACK = enum.auto()
    DELIVERED = enum.auto()
    SKIP = enum.auto()
    CLOSE = enum.auto()
    REVOKE = enum.auto()
    TERMS = enum.auto()


@dataclass(frozen=True, slots=True)
class Mark:
    """The first `length` bytes of something have this digest."""

    length: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Trunk:
    """What a child of a stored, complete turn may share with it: its prompt, its prompt and answer, its messages."""

    ids: tuple[Mark, Mark]
    messages: Mark


@dataclass(frozen=True, slots=True)
class Write:
    """One record, encoded. `key` names the row it touches; `bodies` are the messages and tools that it refers to."""

    op: Op
    key: tuple[str, str, int]
    row: Row
    bodies: tuple[Row, ...] = ()
    trunk: Trunk | None = None
    size: int = field(init=False)

    def __post_init__(self) -> None:
        """`size` is about how many bytes wait in memory until this is written."""
        values = [value for row in (self.row, *self.bodies) for value in row.values()]
        size = 512 + sum(len(value) for value in values if isinstance(value, (bytes, str)))
        object.__setattr__(self, "size", size)


def encode_turn(turn: Turn, parent: Trunk | None) -> Write:
    """`parent` is the trunk of the parent turn if that is stored for good, else None: then nothing is shared."""
    completion = turn.completion
    complete = completion.finish_reason not in ("abort", "error")
    bodies = [body_of(message.to_json()) for message in turn.messages]
    tools = [body_of(tool.to_json()) for tool in turn.tools]
    answer = body_of(turn.message.to_json())

    prompt, messages = pack_ids(turn.prompt_ids), b"".join(digest for digest, _ in bodies)
    prompt_shared, prompt_mark, hasher = _mark(prompt, parent.ids if parent else ())
    messages_shared, messages_mark, _ = _mark(messages, (parent.messages,) if parent else ())
    token_ids, logprobs = pack_ids(completion.token_ids), pack_floats(completion.logprobs)
    top = None if completion.top_logprobs is None else pack_top_logprobs(completion.top_logprobs)
    hasher.update(token_ids)
    ids_mark = Mark(len(prompt) + len(token_ids), hasher.digest())
    tool_digests = b"".join(digest for digest, _ in tools)
    num_shared = messages_shared // DIGEST_BYTES

    row: dict[str, SqlValue] = {
        "session": turn.session,
        "index": turn.index,
        "parent": turn.parent,
        "kind": turn.kind,
        "complete": complete,
        "delivered": turn.delivered,
        "skip": turn.skip,
        "finish_reason": completion.finish_reason,
        "created_at": float(turn.created_at),
        "finished_at": float(turn.finished_at),
        "request_digest": turn.request_digest,
        "chain": turn.chain,
        "num_prompt": len(turn.prompt_ids),
        "num_prefill": turn.num_prefill,
        "num_sampled": len(completion.token_ids),
        "prompt_shared": prompt_shared // ID_BYTES,
        "messages_shared": num_shared,
        "versions": _json(completion.versions),
        "answer": answer[0],
        "dialect": turn.dialect,
        "model": turn.model,
        "sampling": _json(turn.sampling.to_json()),
        "stop": _json(turn.stop),
        "version_ends": pack_ids(span.end for span in completion.version_spans),
        "tools": tool_digests,
        "messages": messages[messages_shared:],
        "token_ids": token_ids,
        "logprobs": logprobs,
        "top_logprobs": top,
        "prompt_ids": prompt[prompt_shared:],
        "label": turn.label,
        "retrievable": turn.retrievable,
    }
    row["digest"] = turn_digest(row, prompt, messages)
    return Write(
        Op.TURN,
        turn_key(turn.session, turn.index),
        row,
        _body_rows(turn.session, [*bodies[num_shared:], *tools, answer]),
        Trunk((prompt_mark, ids_mark), messages_mark) if complete else None,
    )


_DIGESTED_BLOBS = ("answer", "version_ends", "tools", "token_ids", "logprobs", "top_logprobs")
_DIGESTED_VALUES = (
    *("session", "index", "parent", "kind", "finish_reason", "created_at", "finished_at", "request_digest", "chain"),
    *("num_prompt", "num_prefill", "num_sampled", "versions", "dialect", "model", "sampling", "stop"),
)


def turn_digest(row: Mapping[str, Any] | RowMapping, prompt: bytes, messages: bytes) -> bytes:
    """One digest over the whole turn except what may still change; readers compare it before they hand the turn out."""
    values = orjson.dumps([row[name] for name in _DIGESTED_VALUES])
    return digest_of(values, prompt, messages, *(row[name] or b"" for name in _DIGESTED_BLOBS))


def encode_next_state(state: NextState) -> Write:
    bodies = [body_of(message.to_json()) for message in state.messages]
    row: Row = {
        "session": state.session,
        "index": state.index,
        "arrived_at": state.arrived_at,
        "messages": b"".join(digest for digest, _ in bodies),
        "seq": None,  # `batch.py` numbers it when it is committed
    }
    return Write(Op.NEXT_STATE, ("next_state", state.session, state.index), row, _body_rows(state.session, bodies))


def encode_feedback(feedback: Feedback) -> Write:
    """The digest makes it idempotent: the same words about the same turn at the same moment are one row."""
    row: dict[str, SqlValue] = {
        "session": feedback.session,
        "index": feedback.index,
        "user": feedback.user,
        "given_at": feedback.given_at,
        "score": feedback.score,
        "text": feedback.text,
    }
    row["digest"] = digest = digest_of(orjson.dumps(row))
    return Write(Op.FEEDBACK, ("feedback", digest.hex(), 0), row)


def encode_session(session: Session) -> Write:
    row: Row = {
        "id": session.id,
        "user": session.user,
        "client": session.client,
        "opened_at": session.opened_at,
        "last_seen_at": session.last_seen_at,
        "key": session.key,
        "closed_at": session.closed_at,
        "opted_out": session.opted_out,
        "episode": None if session.episode is None else session.episode.id,
        "closed_seq": None,  # `batch.py` numbers it when it is committed
    }
    return Write(Op.SESSION, ("session", session.id, 0), row)


def encode_episode(episode: Episode) -> Write:
    return Write(Op.EPISODE, ("episode", episode.id, 0), {**asdict(episode), **_NOT_ENDED})


_NOT_ENDED: Row = {"reward": None, "failure": "", "ended_at": None}


def encode_key(key: ApiKey) -> Write:
    row: Row = {
        "id": key.id,
        "user": key.user,
        "digest": key.digest,
        "created_at": key.created_at,
        "label": key.label,
        "revoked_at": key.revoked_at,
        "terms": _json(key.terms.to_json()),
    }
    return Write(Op.KEY, ("api_key", key.id, 0), row)


def encode_delivered(session: str, index: int) -> Write:
    return Write(Op.DELIVERED, turn_key(session, index), {"session": session, "index": index, "delivered": True})


def encode_skip(session: str, index: int, reason: Skip) -> Write:
    return Write(Op.SKIP, turn_key(session, index), {"session": session, "index": index, "skip": reason})


def encode_close(session: str, closed_at: float) -> Write:
    return Write(Op.CLOSE, ("session", session, 0), {"id": session, "closed_at": closed_at})


def encode_revoke(key: str, revoked_at: float) -> Write:
    return Write(Op.REVOKE, ("api_key", key, 0), {"id": key, "revoked_at": revoked_at})


def encode_terms(key: str, terms: KeyTerms) -> Write:
    return Write(Op.TERMS, ("api_key", key, 0), {"id": key, "terms": _json(terms.to_json())})


def turn_key(session: str, index: int) -> tuple[str, str, int]:
    """The `Write.key` of everything that touches this turn's row."""
    return ("turn", session, index)


def _mark(data: bytes, marks: Iterable[Mark]) -> tuple[int, Mark, hashlib.blake2b]:
    """How many bytes `data` shares with the longest mark it starts with, its own mark, and the hash so far."""
    hasher, hashed, shared = hashlib.blake2b(digest_size=32), 0, 0
    view = memoryview(data)
    for mark in marks:
        if mark.length > len(data):
            break
        hasher.update(view[hashed : mark.length])
        hashed = mark.length
        if hasher.digest() != mark.digest:
            break
        shared = mark.length
    hasher.update(view[hashed:])
    return shared, Mark(len(data), hasher.digest()), hasher


def _body_rows(session: str, bodies: Sequence[tuple[bytes, bytes]]) -> tuple[Row, ...]:
    return tuple({"session": session, "digest": digest, "body": body} for digest, body in bodies)


def _json(value: Json) -> str:
    return orjson.dumps(value).decode()
