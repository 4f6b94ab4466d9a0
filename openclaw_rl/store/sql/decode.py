"""Rows to turns again: the inverse of `encode.py`. Pure; what it needs from the database is handed in.

Every body and every turn is compared with its digest. A damaged one raises `StoreError`, it is never handed out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson
from sqlalchemy import RowMapping

from openclaw_rl.errors import StoreError
from openclaw_rl.store.sql.codec import (
    DIGEST_BYTES,
    ID_BYTES,
    digest_of,
    split_digests,
    unpack_floats,
    unpack_ids,
    unpack_top_logprobs,
)
from openclaw_rl.store.sql.encode import turn_digest
from openclaw_rl.types import Completion, Json, Message, Sampling, Skip, Tool, Turn, VersionSpan, turn_id


@dataclass(frozen=True, slots=True)
class Whole:
    """A turn's row and what its ancestors contribute to it: all ids of the prompt, all digests of the messages."""

    row: RowMapping
    prompt: bytes
    messages: bytes

    @property
    def digests(self) -> Collection[bytes]:
        """The bodies it takes to write this turn out."""
        row = self.row
        return {*split_digests(self.messages), *split_digests(row["tools"]), row["answer"]}


def rebuild(rows: Iterable[RowMapping]) -> dict[int, Whole]:
    """Put back what each row left out because its parent has it. Rows come in order, ancestors first."""
    wholes: dict[int, Whole] = {}
    for row in rows:
        prompt, messages = row["prompt_ids"], row["messages"]
        if row["prompt_shared"] or row["messages_shared"]:
            parent = wholes.get(row["parent"])
            if parent is None:
                raise _damaged(row, f"its parent {row['parent']} is missing")
            parent_ids = parent.prompt + parent.row["token_ids"]
            prompt = parent_ids[: ID_BYTES * row["prompt_shared"]] + prompt
            messages = parent.messages[: DIGEST_BYTES * row["messages_shared"]] + messages
        wholes[row["index"]] = Whole(row, prompt, messages)
    return wholes


class Bodies:
    """The messages and tools of one session; each is parsed once, however many turns name it."""

    def __init__(self, stored: Mapping[bytes, bytes]) -> None:
        self._stored = stored
        self._messages: dict[bytes, Message] = {}
        self._tools: dict[bytes, Tool] = {}

    def messages(self, packed: bytes) -> tuple[Message, ...]:
        """The messages that these digests name."""
        return tuple(self._message(digest) for digest in split_digests(packed))

    def tools(self, packed: bytes) -> tuple[Tool, ...]:
        """The tools that these digests name."""
        return tuple(self._tool(digest) for digest in split_digests(packed))

    def _message(self, digest: bytes) -> Message:
        if digest not in self._messages:
            self._messages[digest] = Message.from_json(self._load(digest))
        return self._messages[digest]

    def _tool(self, digest: bytes) -> Tool:
        if digest not in self._tools:
            self._tools[digest] = Tool.from_json(self._load(digest))
        return self._tools[digest]

    def _load(self, digest: bytes) -> Json:
        body = self._stored.get(digest)
        if body is None or digest_of(body) != digest:
            raise StoreError(f"the message {digest.hex()} is missing or damaged in the store: restore a backup")
        return orjson.loads(body)


def decode_turn(whole: Whole, bodies: Bodies) -> Turn:
    """The turn exactly as it was put."""
    row, top = whole.row, whole.row["top_logprobs"]
    if turn_digest(row, whole.prompt, whole.messages) != row["digest"]:
        raise _damaged(row, "its digest does not match")
    (answer,) = bodies.messages(row["answer"])
    return Turn(
        session=row["session"],
        index=row["index"],
        parent=row["parent"],
        kind=row["kind"],
        created_at=row["created_at"],
        finished_at=row["finished_at"],
        dialect=row["dialect"],
        model=row["model"],
        messages=bodies.messages(whole.messages),
        tools=bodies.tools(row["tools"]),
        sampling=Sampling.from_json(orjson.loads(row["sampling"])),
        stop=tuple(orjson.loads(row["stop"])),
        prompt_ids=unpack_ids(whole.prompt),
        num_prefill=row["num_prefill"],
        completion=Completion(
            token_ids=unpack_ids(row["token_ids"]),
            logprobs=unpack_floats(row["logprobs"]),
            finish_reason=row["finish_reason"],
            version_spans=_version_spans(orjson.loads(row["versions"]), unpack_ids(row["version_ends"])),
            top_logprobs=None if top is None else unpack_top_logprobs(top),
        ),
        message=answer,
        request_digest=row["request_digest"],
        chain=row["chain"],
        skip=None if row["skip"] is None else Skip(row["skip"]),
        delivered=row["delivered"],
        label=row["label"],
        retrievable=bool(row["retrievable"]),
    )


def _version_spans(versions: Sequence[str], ends: Sequence[int]) -> tuple[VersionSpan, ...]:
    return tuple(map(VersionSpan, versions, (0, *ends), ends))


def _damaged(row: RowMapping, why: str) -> StoreError:
    return StoreError(f"turn {turn_id(row['session'], row['index'])} is damaged in the store ({why}): restore a backup")
