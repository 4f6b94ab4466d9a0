"""A store that never learns a secret: what is put into it is redacted first (`store.redact`).

A turn in which something was found is kept as a conversation only. Its ids would spell the secret too, so they are
left out, and with them everything that training needs: it is skipped as `redacted`. Names that place later requests
(`chain`, `request_digest`) were made from the words as they were sent, so the session goes on. The words are in memory
while they are answered, and for as long as the ids of the turn are; after that its prompt is rendered anew.
"""

from __future__ import annotations

from asyncio import Event, Future
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from openclaw_rl.protocols import Store
from openclaw_rl.redaction import redact
from openclaw_rl.types import (
    ApiKey,
    Completion,
    Feedback,
    Json,
    Message,
    NextState,
    Session,
    SessionOutline,
    Skip,
    Tool,
    ToolCall,
    Turn,
    TurnRecord,
)

_MAX_KNOWN = 8_192
"""Texts that are known to be clean; a conversation sends all of its messages again with every turn."""


class RedactingStore:
    """`protocols.Store` in front of another one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clean: OrderedDict[bytes, None] = OrderedDict()

    def put_turn(self, turn: Turn) -> Future[None]:
        kept = replace(
            turn,
            messages=self._messages(turn.messages),
            tools=tuple(self._tool(tool) for tool in turn.tools),
            stop=tuple(self._text(text) for text in turn.stop),
            message=self._message(turn.message),
        )
        return self._store.put_turn(turn if kept == turn else _without_ids(kept))

    def put_next_state(self, state: NextState) -> Future[None]:
        return self._store.put_next_state(replace(state, messages=self._messages(state.messages)))

    def put_feedback(self, feedback: Feedback) -> Future[None]:
        return self._store.put_feedback(replace(feedback, text=self._text(feedback.text)))

    def _messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        return tuple(self._message(message) for message in messages)

    def _message(self, message: Message) -> Message:
        return replace(
            message,
            content=self._text(message.content),
            reasoning=self._text(message.reasoning),
            name=None if message.name is None else self._text(message.name),
            tool_calls=tuple(self._call(call) for call in message.tool_calls),
        )

    def _call(self, call: ToolCall) -> ToolCall:
        return replace(call, arguments=self._text(call.arguments))

    def _tool(self, tool: Tool) -> Tool:
        return replace(tool, description=self._text(tool.description), parameters=self._json(dict(tool.parameters)))

    def _json(self, value: Json) -> Json:
        match value:
            case str():
                return self._text(value)
            case dict():
                return {self._text(key): self._json(inner) for key, inner in value.items()}
            case list():
                return [self._json(inner) for inner in value]
            case _:
                return value

    def _text(self, text: str) -> str:
        if not text:
            return text
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._clean:
            self._clean.move_to_end(digest)
            return text
        redacted = redact(text)
        if redacted == text:
            self._clean[digest] = None
            if len(self._clean) > _MAX_KNOWN:
                self._clean.popitem(last=False)
        return redacted

    # The rest holds no text of a conversation, or reads what was put.

    def put_session(self, session: Session) -> Future[None]:
        return self._store.put_session(session)

    def put_key(self, key: ApiKey) -> Future[None]:
        return self._store.put_key(key)

    def mark_delivered(self, session: str, index: int) -> Future[None]:
        return self._store.mark_delivered(session, index)

    def mark_skip(self, session: str, index: int, reason: Skip) -> Future[None]:
        return self._store.mark_skip(session, index, reason)

    def close_session(self, session: str, closed_at: float) -> Future[None]:
        return self._store.close_session(session, closed_at)

    def revoke_key(self, key: str, revoked_at: float) -> Future[None]:
        return self._store.revoke_key(key, revoked_at)

    async def can_write(self) -> bool:
        return await self._store.can_write()

    async def find_session(self, user: str, name: str) -> SessionOutline | None:
        return await self._store.find_session(user, name)

    async def outline(self, session: str) -> SessionOutline | None:
        return await self._store.outline(session)

    async def get_turn(self, session: str, index: int) -> Turn | None:
        return await self._store.get_turn(session, index)

    async def turn_owner(self, session: str, index: int) -> str | None:
        return await self._store.turn_owner(session, index)

    async def record(self, session: str, index: int) -> TurnRecord | None:
        return await self._store.record(session, index)

    def settled(self) -> Event:
        return self._store.settled()

    async def settled_turns(self, user: str, after: str, *, limit: int) -> tuple[list[str], str]:
        return await self._store.settled_turns(user, after, limit=limit)

    async def open_turns(self, user: str, after: str, *, limit: int) -> tuple[list[str], str]:
        return await self._store.open_turns(user, after, limit=limit)


def _without_ids(turn: Turn) -> Turn:
    completion = Completion(
        token_ids=(), logprobs=(), finish_reason=turn.completion.finish_reason, version_spans=(), top_logprobs=None
    )
    return replace(turn, prompt_ids=(), num_prefill=0, completion=completion, skip=turn.skip or Skip.REDACTED)
