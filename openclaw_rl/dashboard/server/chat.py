"""What is typed into the page -> a request of the gateway, and its answer as the page's events: a dialect of its own.

The page sends no history: it names the turn that it goes on from, and the store has the rest. So an edited message is a
branch, another answer to the same question a sibling, and neither can differ from what was captured.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Self

import orjson

from openclaw_rl.dashboard.server.visiting import read_shape
from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.answer.capture import Piece
from openclaw_rl.gateway.api.dialects.errors import openai_error
from openclaw_rl.gateway.api.dialects.spoken import (
    Continuing,
    Dialect,
    Envelope,
    Limits,
    SpokenAnswer,
    StreamWriter,
)
from openclaw_rl.gateway.api.dialects.wire import refuse_nul, sampling
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import Json, Message, ReasoningDelta, Request, TextDelta, ToolCallStart, Turn, split_turn_id
from openclaw_rl.views.page.conversations import AnswerBegun, AnswerEnded, AnswerFailed, AnswerText, SayBody

_HOTTEST = 2.0

CLIENT = "page"
"""What sessions of the page are called like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest(Continuing):
    """`again`: the same question once more, instead of more words behind it."""

    again: bool

    def after(self, turn: Turn) -> Self:
        own = self.request.messages
        messages = turn.messages if self.again else (*turn.messages, turn.message, *own)
        return replace(self, request=replace(self.request, messages=messages, tools=turn.tools))

    def events(self, envelope: Envelope, answer: SpokenAnswer, renderer: Renderer) -> StreamWriter:
        return PageStream(envelope, answer)

    def whole(self, envelope: Envelope, answer: SpokenAnswer, renderer: Renderer) -> bytes:
        raise AssertionError("the page is answered by events")


class PageStream:
    """The events of one answer."""

    ping = b": ping\n\n"

    def __init__(self, envelope: Envelope, answer: SpokenAnswer) -> None:
        self._envelope = envelope
        self._answer = answer

    def begin(self) -> bytes:
        turn = self._envelope.turn_id
        return event(AnswerBegun(turn=turn, session=split_turn_id(turn)[0], version=self._envelope.version))

    def piece(self, index: int, piece: Piece) -> bytes:
        return b"".join(map(event, map(_told, piece.events)))

    def end(self) -> bytes:
        ((_, completion),) = self._answer.answers
        return event(
            AnswerEnded(
                turn=self._envelope.turn_id,
                finish_reason=completion.finish_reason,
                num_tokens=len(completion.token_ids),
            )
        )

    def error(self, message: str, code: str) -> bytes:
        return event(AnswerFailed(message=message, code=code))


def parse(raw: bytes, limits: Limits, model: str) -> PageRequest:
    """A body of the page."""
    said = read_shape(raw, SayBody)
    follows = said.again or said.after
    if said.again and (said.after or said.text):
        raise RequestError("again stands alone: the question is that of its turn", param="again")
    if said.beside and not said.again:
        raise RequestError("beside needs the turn to compare with: again", param="beside")
    if not said.again and not said.text.strip():
        raise RequestError("say something", param="text")
    refuse_nul((said.text,), "text")
    if said.temperature is not None and not 0.0 <= said.temperature <= _HOTTEST:
        raise RequestError(f"temperature must lie in [0, {_HOTTEST:g}], got {said.temperature:g}", param="temperature")
    if follows is not None:
        _check_name(follows)
    body: dict[str, Json] = {"turn_type": "side" if said.beside else "main"}
    if said.beside or follows is None:
        # What stands beside is a conversation of its own: with the same words it could be taken for the first one.
        body["session_id"] = (None if said.beside else said.session) or f"{CLIENT}-{secrets.token_hex(12)}"
    if said.private or said.beside:
        body["no_train"] = "session"
    return PageRequest(
        request=Request(
            messages=(Message(role="user", content=said.text or " "),),
            sampling=sampling(limits, said.max_tokens, "max_tokens", {"temperature": said.temperature}),
            model=f"{model}@{said.version}" if said.version else "",
        ),
        body=body,
        stream=True,
        follows=follows,
        again=said.again is not None,
    )


def _check_name(turn: str) -> None:
    try:
        split_turn_id(turn)
    except ValueError as error:
        raise RequestError(str(error), status=404, param="after", code="not_found") from None


PAGE = Dialect(name="page", parse=parse, error_body=openai_error)


def event(told: object) -> bytes:
    """One of the contract's events."""
    data = orjson.dumps(told)
    return b"event: %b\ndata: %b\n\n" % (str(told.event).encode(), data)  # type: ignore[attr-defined]


def _told(made: object) -> AnswerText:
    match made:
        case TextDelta(text=text):
            return AnswerText(event="text", text=text)
        case ReasoningDelta(text=text):
            return AnswerText(event="thinking", text=text)
        case ToolCallStart(name=name):
            return AnswerText(event="call", text=f"{name} ")
        case _:
            return AnswerText(event="call", text=made.text)  # type: ignore[attr-defined]
