"""Names a conversation by its content, so that a request can be matched with the turns it grew from.

Turns messages into digests that survive what clients do to history: clocks in system prompts, re-serialised tool
arguments, renamed tool-call ids, stripped thinking, trimmed white space, OpenClaw's throw-away trailing message.
It knows nothing of sessions; `sessions.py` looks the digests up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import orjson

from openclaw_rl.types import Message

_DIGEST_BYTES = 16
_CARRIER = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
_THINKING = re.compile(r"<think>.*?</think>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """`whole` names everything up to a message, `tail` only that message and the one before it.

    `whole` finds the turn that a history extends. `tail` still finds it after a compaction or an edit further up.
    """

    whole: bytes
    tail: bytes

    def __str__(self) -> str:
        return self.whole.hex() + self.tail.hex()

    @classmethod
    def parse(cls, text: str) -> Fingerprint:
        """The inverse of `str`."""
        raw = bytes.fromhex(text)
        return cls(raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:])


@dataclass(frozen=True, slots=True)
class Answered:
    """The assistant message at `position` of a history, and the fingerprint of the history up to and with it."""

    position: int
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class Trace:
    """A history as fingerprints: each assistant message in it, and the state at its end."""

    answers: tuple[Answered, ...]
    _whole: bytes
    _last: bytes

    def then(self, answer: Message) -> Fingerprint:
        """The fingerprint after this history is answered with `answer`."""
        digest = _message_digest(answer)
        return Fingerprint(_join(self._whole, digest), _join(self._last, digest))


def trace(user: str, messages: Iterable[Message]) -> Trace:
    """Walks a history once. The user is part of every fingerprint: nobody continues another's conversation."""
    whole = last = _digest(user.encode())
    answers: list[Answered] = []
    for position, message in enumerate(messages):
        if not is_spoken(message):
            continue
        digest = _message_digest(message)
        whole = _join(whole, digest)
        if message.role == "assistant":
            answers.append(Answered(position, Fingerprint(whole, _join(last, digest))))
        last = digest
    return Trace(tuple(answers), whole, last)


def is_spoken(message: Message) -> bool:
    """Whether a message is part of the conversation: not a system prompt, not OpenClaw's trailing carrier."""
    return message.role != "system" and not (message.role == "user" and message.content.lstrip().startswith(_CARRIER))


def reaction(messages: Sequence[Message], position: int) -> tuple[Message, ...]:
    """What followed the answer at `position`: every spoken message up to the next assistant message."""
    out: list[Message] = []
    for message in messages[position + 1 :]:
        if message.role == "assistant":
            break
        if is_spoken(message):
            out.append(message)
    return tuple(out)


def _message_digest(message: Message) -> bytes:
    content = message.content
    if message.role == "assistant" and "<think>" in content:
        content = _THINKING.sub("", content)
    parts = [message.role, content.strip()]
    for call in message.tool_calls:
        parts += [call.name, _canonical(call.arguments)]
    return _digest("\x00".join(parts).encode("utf-8", "surrogatepass"))


def _canonical(arguments: str) -> str:
    try:
        return orjson.dumps(orjson.loads(arguments), option=orjson.OPT_SORT_KEYS).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # not JSON, or nested beyond what orjson writes
        return arguments.strip()


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _join(left: bytes, right: bytes) -> bytes:
    return _digest(left + right)
