"""What the application asks of every dialect: a body becomes something `Spoken`, which knows how to be answered.

A dialect is one value, `Dialect`; its folder holds how it is read and how it is written. None of them knows a session,
an engine or a store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from pydantic import BaseModel

from openclaw_rl.gateway.answer.capture import Piece
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import Completion, Json, Message, Request, TokenLogprob, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request may ask for, and what it gets when it does not say."""

    max_values: int
    max_messages: int
    max_tools: int
    max_nesting: int
    max_choices: int
    max_tokens: int
    default_max_tokens: int | None
    default_temperature: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What an answer says of itself. `token` is random, for ids that mean nothing; `turn_id` is where it is kept."""

    token: str
    turn_id: str
    created: int
    model: str
    version: str


class SpokenAnswer(Protocol):
    """What is known of an answer: its choices as they stand, and what they cost."""

    @property
    def answers(self) -> Sequence[tuple[Message, Completion]]: ...

    @property
    def num_prompt_tokens(self) -> int: ...

    @property
    def num_cached_tokens(self) -> int: ...


class StreamWriter(Protocol):
    """One answer as events. `ping` may be sent at any time after `begin`."""

    @property
    def ping(self) -> bytes: ...

    def begin(self) -> bytes: ...

    def piece(self, index: int, piece: Piece) -> bytes: ...

    def end(self) -> bytes: ...

    def error(self, message: str, code: str) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken(ABC):
    """A request as one dialect reads it: what to answer, and how the answer is to be written down.

    `body` is the JSON as it was sent.
    """

    request: Request
    body: Mapping[str, Json]
    stream: bool

    @abstractmethod
    def events(self, envelope: Envelope, answer: SpokenAnswer, renderer: Renderer) -> StreamWriter: ...

    @abstractmethod
    def whole(self, envelope: Envelope, answer: SpokenAnswer, renderer: Renderer) -> bytes:
        """The one JSON object of an answer that is not streamed."""

    def refusal(self, envelope: Envelope, message: str, code: str | None) -> bytes | None:
        """What a stream says in place of this error; None if an HTTP error is what its clients understand."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuing(Spoken):
    """A request that may send only what is new; `follows` then names the turn whose conversation it goes on with."""

    follows: str | None = None

    @abstractmethod
    def after(self, turn: Turn) -> Self:
        """The same with everything before it."""


class ErrorBody(Protocol):
    """An error in the shape that the dialect's clients understand."""

    def __call__(self, message: str, *, status: int, param: str | None = None, code: str | None = None) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """`name` is what turns are stored with."""

    name: str
    parse: Callable[[bytes, Limits, str], Spoken]
    """A body, for the served model of this name; every mistake in it is a `RequestError` that names the field."""
    error_body: ErrorBody
    body: type[BaseModel] | None = None
    """The form that it is read with, where strangers are told of it."""


def num_reasoning_tokens(answer: SpokenAnswer, renderer: Renderer) -> int:
    """How many tokens of all choices are thinking."""
    return sum(len(renderer.encode(message.reasoning)) for message, _ in answer.answers if message.reasoning)


def num_answer_tokens(answer: SpokenAnswer) -> int:
    return sum(len(completion.token_ids) for _, completion in answer.answers)


def token_logprobs(
    renderer: Renderer,
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    top_logprobs: Sequence[Sequence[TokenLogprob]] | None,
) -> list[Json]:
    """Log-probs as OpenAI lists them, each token with its text and its bytes."""
    return [
        {
            **_token(renderer, token, logprob),
            "top_logprobs": [_token(renderer, t.token_id, t.logprob) for t in top_logprobs[i]]
            if top_logprobs is not None
            else [],
        }
        for i, (token, logprob) in enumerate(zip(token_ids, logprobs, strict=True))
    ]


def _token(renderer: Renderer, token_id: int, logprob: float) -> dict[str, Json]:
    raw = renderer.token_bytes(token_id)
    return {"token": raw.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(raw)}
