"""A store that never learns a secret: what is put into it is redacted first (`store.redact`).

A turn in which something was found is kept as a conversation only. Its ids would spell the secret too, so they are
left out, and with them everything that training needs: it is skipped as `redacted`. Names that place later requests
(`chain`, `request_digest`) were made from the words as they were sent, so the session goes on. The words are in memory
while they are answered, and for as long as the ids of the turn are; after that its prompt is rendered anew.

Long texts are looked through in threads. What is put for the same session meanwhile waits for its turn, so that records
are written in the order in which they were put.
"""

from __future__ import annotations

import asyncio
from asyncio import Event, Future, Task
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TypeVar

from openclaw_rl.gateway.access.shares import AT_ONCE, Shares
from openclaw_rl.protocols import Store
from openclaw_rl.redaction import redact
from openclaw_rl.render.cache import SizedCache
from openclaw_rl.types import (
    ApiKey,
    Completion,
    Feedback,
    Json,
    KeyTerms,
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

T = TypeVar("T")

_MAX_KNOWN = 8_192
"""Texts that are known to be clean; a conversation sends all of its messages again with every turn."""


class RedactingStore:
    """`protocols.Store` in front of another one. `start` runs what outlives its request; shutdown waits for that."""

    def __init__(
        self, store: Store, shares: Shares, start: Callable[[Coroutine[None, None, None]], Task[None]]
    ) -> None:
        self._store = store
        self._shares = shares
        self._start = start
        self._last: dict[str, Task[None]] = {}
        """For each session with something under way, the newest of it."""
        self._clean: SizedCache[bytes, bool] = SizedCache(_MAX_KNOWN)

    def put_turn(self, turn: Turn) -> Future[None]:
        size = sum(map(len, _texts(turn.messages))) + sum(map(len, _texts((turn.message,))))
        if turn.tools:
            size += AT_ONCE  # nobody knows how much a schema holds before walking through it
        return self._put_redacted(turn.session, size, lambda: self._turn(turn), self._store.put_turn)

    def put_next_state(self, state: NextState) -> Future[None]:
        size = sum(map(len, _texts(state.messages)))

        def redacted() -> NextState:
            return replace(state, messages=self._messages(state.messages))

        return self._put_redacted(state.session, size, redacted, self._store.put_next_state)

    def put_feedback(self, feedback: Feedback) -> Future[None]:
        def redacted() -> Feedback:
            return replace(feedback, text=self._text(feedback.text))

        return self._put_redacted(feedback.session, len(feedback.text), redacted, self._store.put_feedback)

    def _put_redacted(
        self, session: str, size: int, redacted: Callable[[], T], put: Callable[[T], Future[None]]
    ) -> Future[None]:
        if size <= AT_ONCE:
            return self._in_order(session, lambda: put(redacted()))

        async def found() -> T:
            return await self._shares.run(_owner(session), size, lambda _: redacted())

        return self._later(session, found, put)

    def _in_order(self, session: str, put: Callable[[], Future[None]]) -> Future[None]:
        """At once, unless something of this session is still under way."""
        if session not in self._last:
            return put()

        async def nothing() -> None:
            pass

        return self._later(session, nothing, lambda _: put())

    def _later(
        self, session: str, found: Callable[[], Coroutine[None, None, T]], put: Callable[[T], Future[None]]
    ) -> Future[None]:
        before = self._last.get(session)
        told: Future[None] = asyncio.get_running_loop().create_future()
        # Who does not wait must not hear of a failure from the garbage collector.
        told.add_done_callback(lambda done: done.cancelled() or done.exception())

        async def putting() -> None:
            try:
                record = await found()
                if before is not None:
                    await asyncio.wait((before,))
                queued = put(record)
            except BaseException as error:
                if not told.done():
                    told.set_exception(error)
                raise
            finally:
                if self._last[session] is task:
                    del self._last[session]
            queued.add_done_callback(lambda done: _pass_on(done, told))

        task = self._last[session] = self._start(putting())
        return told

    def _turn(self, turn: Turn) -> Turn:
        kept = replace(
            turn,
            messages=self._messages(turn.messages),
            tools=tuple(self._tool(tool) for tool in turn.tools),
            stop=tuple(self._text(text) for text in turn.stop),
            message=self._message(turn.message),
        )
        return turn if kept == turn else _without_ids(kept)

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
        if self._clean.get(digest):
            return text
        redacted = redact(text)
        if redacted == text:
            self._clean.put(digest, True, 1)
        return redacted

    # The rest holds no text of a conversation, or reads what was put.

    def put_session(self, session: Session) -> Future[None]:
        return self._in_order(session.id, lambda: self._store.put_session(session))

    def put_key(self, key: ApiKey) -> Future[None]:
        return self._store.put_key(key)

    def mark_delivered(self, session: str, index: int) -> Future[None]:
        return self._in_order(session, lambda: self._store.mark_delivered(session, index))

    def mark_skip(self, session: str, index: int, reason: Skip) -> Future[None]:
        return self._in_order(session, lambda: self._store.mark_skip(session, index, reason))

    def close_session(self, session: str, closed_at: float) -> Future[None]:
        return self._in_order(session, lambda: self._store.close_session(session, closed_at))

    def revoke_key(self, key: str, revoked_at: float) -> Future[None]:
        return self._store.revoke_key(key, revoked_at)

    def set_terms(self, key: str, terms: KeyTerms) -> Future[None]:
        return self._store.set_terms(key, terms)

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

    async def num_feedback(self, session: str, index: int) -> int:
        return await self._store.num_feedback(session, index)

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


def _texts(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        yield message.content
        yield message.reasoning
        yield from (call.arguments for call in message.tool_calls)


def _owner(session: str) -> str:
    """Whose share it is: the user, where the session is not the local user's; else the session for itself."""
    return session.partition("/")[0]


def _pass_on(done: Future[None], told: Future[None]) -> None:
    if told.done():
        return
    if done.cancelled():
        told.cancel()
    elif (error := done.exception()) is not None:
        told.set_exception(error)
    else:
        told.set_result(None)
