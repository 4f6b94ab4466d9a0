"""Names a conversation by its content, so that a request can be matched with the turns it grew from.

Turns messages into digests that survive what clients do to history: clocks in system prompts, time stamps and run-time
facts around what a person said, re-serialised tool arguments, renamed tool-call ids, stripped thinking, trimmed white
space, reminders behind a message, two answers written as one, OpenClaw's throw-away trailing message, and heartbeat
prompts that become a short note later. It knows nothing of sessions; `sessions.py` looks the digests up.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from typing import Literal

import orjson

from openclaw_rl.gateway.sessions.wording import (
    are_automatic,
    are_nudging,
    is_reaction,
    is_silence,
    is_spoken,
    said,
    without_blocks,
)
from openclaw_rl.types import Message

_DIGEST_BYTES = 16
_AUTOMATIC = b"automatic"
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
_BRACKETED_LINE = re.compile(r"\n\[[^\n]+\][ \t]*\n?")
_MIN_TELLING_CHARS = 40
"""Shorter answers ("Done.") are given again and again; a longer one is recognised wherever it stands."""
_MAX_SPLITS = 64
_MAX_SPLIT_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """An answer and what led to it, in three degrees of exactness.

    `whole` names everything up to and with the answer. `tail` names the answer and the opening of the message before
    it: it is still the same after a compaction or an edit further up. `own` names the answer alone; it is empty for an
    answer too short to be told from others.
    """

    whole: bytes
    tail: bytes
    own: bytes = b""

    def __str__(self) -> str:
        return self.whole.hex() + self.tail.hex() + self.own.hex()

    @classmethod
    def parse(cls, text: str) -> Fingerprint:
        """The inverse of `str`."""
        raw = bytes.fromhex(text)
        return cls(raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES : 2 * _DIGEST_BYTES], raw[2 * _DIGEST_BYTES :])


@dataclass(frozen=True, slots=True)
class Answered:
    """The assistant message at `position` of a history; `before` names what stands above it, `digest` the message.

    `has_telling_tail`: with the opening of the message before it, it is long enough to be told from others.
    """

    position: int
    fingerprint: Fingerprint
    before: bytes
    message: Message
    digest: bytes
    has_telling_tail: bool

    def as_two(self) -> Iterator[tuple[bytes, Message]]:
        """The ways to read the message as two answers, A and B, that a client wrote as one: `whole` after A, and B."""
        content = self.message.content
        if len(content) > _MAX_SPLIT_CHARS:
            return
        for end in islice((i for i, c in enumerate(content) if c == "\n"), _MAX_SPLITS):
            if content[:end].strip() and content[end:].strip():
                first = replace(self.message, content=content[:end], tool_calls=())
                yield after(self.before, first), replace(self.message, content=content[end:])


@dataclass(frozen=True, slots=True)
class Asked:
    """The last message of a history, if it waits for an answer, so that it is known again in other words.

    `base` names everything above it, `words` is what it says, `opening` names it in the tail of its answer.
    """

    base: bytes
    words: str
    opening: bytes

    def is_repeated_by(self, other: Asked) -> bool:
        """Whether `other` asks the same: in the same words, or wrapped in what a client says about the failure, which
        is a bracketed note above them and a paragraph behind, or a request to go on behind them."""
        if self.base != other.base or not self.words:
            return False
        above, found, behind = f"\n{other.words}\n".partition(f"\n{self.words}\n")
        if not found:
            return False
        if above:
            return _BRACKETED_LINE.fullmatch(above) is not None and (not behind or behind.startswith("\n"))
        return not behind or are_nudging(behind.strip())


@dataclass(frozen=True, slots=True)
class Heard:
    """What a message is to the answers above it: words of a person or a tool, a program's wish that the model go on, an
    answer or a bare token in place of one, each with its digest, or nothing that tells anything."""

    kind: Literal["reaction", "nudge", "answer", "silence", "nothing"]
    digest: bytes = b""


_REACTION, _NUDGE, _NOTHING = Heard("reaction"), Heard("nudge"), Heard("nothing")


@dataclass(frozen=True, slots=True)
class Trace:
    """A history as fingerprints: each assistant message in it, what every message is to those above it, and the state
    at its end."""

    answers: tuple[Answered, ...]
    heard: tuple[Heard, ...]
    asked: Asked | None
    _owner: bytes
    _whole: bytes
    _opening: bytes

    def then(self, answer: Message) -> Fingerprint:
        """The fingerprint after this history is answered with `answer`."""
        return _fingerprint(self._owner, self._whole, self._opening, answer, answer_digest(answer))

    def asked_as(self, asked: Asked) -> Trace:
        """This history, whose last message will stand in later ones as it was asked first."""
        return replace(self, _opening=asked.opening)


def trace(user: str, messages: Iterable[Message], *, is_openclaw: bool = False) -> Trace:
    """Walks a history once. The user is part of every fingerprint: nobody continues another's conversation.

    `is_openclaw`: that client wrote the history, and wrapped what it says itself in what only a program would say.
    """
    owner = whole = opening = _digest(user.encode())
    asked: Asked | None = None
    num_opening = 0
    answers: list[Answered] = []
    heard: list[Heard] = []
    for position, message in enumerate(messages):
        words = said(message)
        is_users = message.role == "user"
        is_automatic = is_users and are_automatic(words)
        heard.append(_heard(message, words, is_automatic, is_openclaw))
        if not is_spoken(message):
            continue
        if is_users and not words and message.content.strip():
            continue  # attachments only, such as a reminder: clients drop it from later histories, or move it
        digest = _AUTOMATIC if is_automatic else _message_digest(message, words)
        before, whole = whole, _join(whole, digest)
        if message.role == "assistant":
            fingerprint = _fingerprint(owner, before, opening, message, digest)
            is_telling = num_opening + _num_chars(message) >= _MIN_TELLING_CHARS
            answers.append(Answered(position, fingerprint, before, message, digest, is_telling))
            heard[-1] = Heard("silence" if is_silence(message) else "answer", digest)
        if is_users and are_nudging(words):
            continue  # it is never seen again: what it was added to is what led to the answer
        first = _opening(words) if is_users else words
        opening = _opening_digest(first) if is_users and digest != _AUTOMATIC else digest
        num_opening = len(first) if digest != _AUTOMATIC else 0
        asked = Asked(before, words, opening) if message.role != "assistant" else None
    return Trace(tuple(answers), tuple(heard), asked, owner, whole, opening)


def after(before: bytes, answer: Message) -> bytes:
    """`whole` once a history is answered."""
    return _join(before, answer_digest(answer))


def reaction(
    heard: Sequence[Heard], position: int, *, known: Collection[int], furniture: Collection[bytes] = ()
) -> tuple[int, ...]:
    """Where people and tools spoke after the answer at `position`, up to the next one of the `known` answers.

    Two kinds of answers are passed over: one that told nobody anything (a heartbeat's NO_REPLY), and `furniture`,
    answers that the client wrote itself, together with what it put before them. Words before an answer of somebody
    unknown tell nothing: nobody can say whether a person spoke, or a client to itself. Neither does a second try: what
    it repeats was told by the first.
    """
    out: list[int] = []
    for at in range(position + 1, len(heard)):
        match heard[at].kind:
            case "nudge":
                return ()
            case "reaction":
                out.append(at)
            case "answer" | "silence" if heard[at].digest in furniture:
                out.clear()
            case "answer":
                return tuple(out) if at in known else ()
            case "silence" if out:
                return tuple(out) if at in known else ()
    return tuple(out)


def answer_digest(message: Message) -> bytes:
    """Names an assistant message by itself."""
    return _message_digest(message, said(message))


def _heard(message: Message, words: str, is_automatic: bool, is_openclaw: bool) -> Heard:
    """What a message that says `words` is to the answers above it; an answer is told apart once its digest is known.

    `is_automatic`: a program's words if OpenClaw wrote the history; of any other client, less is taken for such.
    """
    if message.role == "assistant":
        return _NOTHING
    if is_openclaw and message.role == "user" and are_nudging(words):
        return _NUDGE
    is_automatic = is_automatic and (is_openclaw or are_automatic(words, is_openclaw=False))
    return _REACTION if is_reaction(message, is_automatic=is_automatic) else _NOTHING


def _fingerprint(owner: bytes, before: bytes, opening: bytes, answer: Message, digest: bytes) -> Fingerprint:
    own = _digest(b"own" + owner + digest) if _num_chars(answer) >= _MIN_TELLING_CHARS else b""
    return Fingerprint(_join(before, digest), _digest(owner + opening + digest), own)


def _num_chars(answer: Message) -> int:
    return len(answer.content.strip()) + sum(len(call.arguments) for call in answer.tool_calls)


def _message_digest(message: Message, words: str) -> bytes:
    if message.role == "assistant" and "<think" in words:
        for tag in ("think", "thinking"):
            words = without_blocks(words, f"<{tag}>", f"</{tag}>")
    parts = [message.role, words.strip()]
    for call in message.tool_calls:
        parts += [call.name, _canonical(call.arguments)]
    return _digest("\x00".join(parts).encode("utf-8", "surrogatepass"))


def _opening(words: str) -> str:
    """The first paragraph of a user message: clients put rules and files behind it, and take them away later."""
    return _PARAGRAPH_END.split(words, maxsplit=1)[0].rstrip()


def _opening_digest(opening: str) -> bytes:
    return _digest(b"opening\x00" + opening.encode("utf-8", "surrogatepass"))


def _canonical(arguments: str) -> str:
    """Clients to whom arguments are an object send back an empty one for what was none."""
    try:
        value = orjson.loads(arguments)
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode() if isinstance(value, dict) else "{}"
    except orjson.JSONDecodeError:
        return "{}"
    except orjson.JSONEncodeError:  # nested beyond what orjson writes
        return arguments.strip()


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _join(left: bytes, right: bytes) -> bytes:
    return _digest(left + right)
