"""`GET /v1/rollouts`: a user's own turns, one after the other as they settle, for programs that keep or study them.

A turn is settled when what followed it is known, or when its session is over and nothing will. `after` is the cursor of
the answer before; an answer that would be empty waits up to `wait_s` seconds for something to say. `state=open` asks
for the turns that are not settled yet instead. Turns that were opted out of training are never among them.

Also the one JSON form of a turn, for this route and for `openclaw-rl inspect --json`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.access.shares import AT_ONCE, IsWanted, Shares
from openclaw_rl.protocols import Store
from openclaw_rl.types import Json, TurnRecord, split_turn_id, turn_id

_CHARS_PER_TOKEN = 16
"""About what a token is written with: its id, its log-prob, its words."""


class Query(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: str = Field(default="", max_length=2048)
    wait_s: float = Field(default=0.0, ge=0.0, le=60.0)
    limit: int = Field(default=20, ge=1, le=100)
    state: Literal["settled", "open"] = "settled"


async def read_rollouts(
    store: Store, shares: Shares, user: str, raw: Mapping[str, str], closing: asyncio.Event
) -> bytes:
    """The answer to one request. `closing` ends its waiting: a server that stops must not wait for those who wait."""
    query = _parse(raw)
    try:
        names, cursor = await _find(store, user, query, closing)
    except ValueError as error:
        raise RequestError(f"after: {error}", param="after", code="invalid_cursor") from None
    # One at a time: between two of them the store's thread goes back to writing the turns of people who wait.
    records = [await store.record(*split_turn_id(name)) for name in names]
    data = [await _written(record, shares, user) for record in records if record is not None]
    about = orjson.dumps({"object": "list", "cursor": cursor, "has_more": len(names) == query.limit})

    def joined(_: IsWanted) -> bytes:
        return b"".join((about[:-1], b',"data":[', b",".join(data), b"]}"))

    return await shares.run(user, sum(map(len, data)), joined)


async def _written(record: TurnRecord, shares: Shares, user: str) -> bytes:
    """One line of the answer, as it is."""
    turn = record.turn
    size = _CHARS_PER_TOKEN * (len(turn.prompt_ids) + len(turn.completion.token_ids)) + AT_ONCE * bool(turn.tools)
    return await shares.run(user, size, lambda _: orjson.dumps(rollout_json(record)))


async def _find(store: Store, user: str, query: Query, closing: asyncio.Event) -> tuple[list[str], str]:
    if query.state == "open":
        return await store.open_turns(user, query.after, limit=query.limit)
    end = asyncio.get_running_loop().time() + query.wait_s
    while True:
        # Taken before looking, so that what settles meanwhile is not slept through.
        settled = store.settled()
        found = await store.settled_turns(user, query.after, limit=query.limit)
        left = end - asyncio.get_running_loop().time()
        if found[0] or left <= 0 or closing.is_set():
            return found
        await _first_of(settled, closing, timeout_s=left)


async def _first_of(*events: asyncio.Event, timeout_s: float) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def _parse(raw: Mapping[str, str]) -> Query:
    try:
        return Query.model_validate(dict(raw))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        param = ".".join(str(part) for part in first["loc"])
        fields = ", ".join(Query.model_fields)
        raise RequestError(f"{param}: {first['msg']}; the parameters are {fields}", param=param) from None


def rollout_json(record: TurnRecord) -> dict[str, Json]:
    """A line of a rollout: a turn, under the two names that the public documentation uses, and whole."""
    return {"session_id": record.turn.session, "type": record.turn.kind, **turn_json(record)}


def turn_json(record: TurnRecord) -> dict[str, Json]:
    """A turn and what followed it: `prompt_ids` followed by `token_ids` is exactly what the model saw."""
    turn, completion = record.turn, record.turn.completion
    return {
        "id": turn.id,
        "index": turn.index,
        "parent": None if turn.parent is None else turn_id(turn.session, turn.parent),
        "kind": turn.kind,
        "dialect": turn.dialect,
        "model": turn.model,
        "created_at": turn.created_at,
        "finished_at": turn.finished_at,
        "request": [message.to_json() for message in turn.messages],
        "tools": [tool.to_json() for tool in turn.tools],
        "sampling": turn.sampling.to_json(),
        "stop": list(turn.stop),
        "text": turn.message.content,
        "message": turn.message.to_json(),
        "prompt_ids": list(turn.prompt_ids),
        "num_prefill": turn.num_prefill,
        "token_ids": list(completion.token_ids),
        "logprobs": list(completion.logprobs),
        "version_spans": [{"version": s.version, "start": s.start, "end": s.end} for s in completion.version_spans],
        "finish_reason": completion.finish_reason,
        "delivered": turn.delivered,
        "skip": None if turn.skip is None else turn.skip.value,
        "next_state": None if record.next_state is None else [m.to_json() for m in record.next_state.messages],
        "feedback": [
            {"user": f.user, "given_at": f.given_at, "score": f.score, "text": f.text} for f in record.feedback
        ],
    }
