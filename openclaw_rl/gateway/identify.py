"""Who is calling and what for: the client, the session it names, and whether a person reads the answer.

Turns headers, body keys and the words of a request into an `Identity`. What a client says outright wins; the rest is
read off what the programs of today really send. A request that nothing marks as housekeeping is a *main* turn:
a stock client trains by default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.history import is_spoken
from openclaw_rl.types import Message, Tool, TurnKind

SESSION_HEADERS = ("x-session-affinity", "x-session-id", "session-id", "session_id", "x-claude-code-session-id")
NoTrain = Literal["session", "message"]
"""How far a wish not to be trained on reaches: from now on the whole session, or this one message."""
_NO_TRAIN_WORDS: Mapping[str, NoTrain] = {"session": "session", "message": "message", "turn": "message"}
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", "", "none"})
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_RUNTIME_LINE = re.compile(r"^Runtime: .*?\bsession=(?P<name>\S+)(?: \| sessionId=(?P<id>\S+))?", re.MULTILINE)

# A heartbeat, a scheduled job or a report runs inside the person's session, but nobody asked and nobody reacts.
_SIDE_OPENINGS = (
    "Follow the heartbeat monitor scratch context",
    "Read HEARTBEAT.md if it exists",
    "[cron:",
    "Pre-compaction memory flush",
    "<conversation>",
)
_SIDE_WISH = "produce the final user-visible answer now"
_SIDE_SESSION = re.compile(r":subagent:|:acp:|:cron:|^openclaw-cron-|internal-session-effects")
# Without tools, a system prompt that makes the model a writer of titles, summaries or commit messages.
_SIDE_SYSTEM = re.compile(
    r"""\b(?:
        (?:session|conversation|chat|thread)\ title | title\ (?:generator|for\ (?:this|the)\ (?:chat|conversation))
      | context\ summari[sz]ation | summari[sz]e\ (?:this|the)\ (?:conversation|chat|session)
      | dream\ diary | git\ commit\ message
    )s?\b""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What is known about the sender of a request, beside who he is.

    `is_retry`: the client says that it wants the answer of an earlier, equal request rather than a new one.
    """

    client: str
    session_key: str | None
    kind: TurnKind
    session_done: bool = False
    no_train: NoTrain | None = None
    is_retry: bool = False


def identify(
    headers: Mapping[str, str], body: Mapping[str, Any], messages: Sequence[Message], tools: Sequence[Tool]
) -> Identity:
    """Reads the identity of one request. `headers` compare without case; `body` is the request as sent."""
    runtime = _runtime_line(messages)
    key = _session_key(headers, body, runtime)
    said = _said_kind(headers, body)
    return Identity(
        client=_client(headers, messages, runtime),
        session_key=key,
        kind=_guessed_kind(key, runtime, messages, tools) if said is None else said,
        session_done=_is_true("session_done", headers.get("x-session-done", body.get("session_done"))),
        no_train=_no_train(headers, body),
        is_retry="idempotency-key" in headers or headers.get("x-stainless-retry-count", "0") != "0",
    )


def _session_key(headers: Mapping[str, str], body: Mapping[str, Any], runtime: re.Match[str] | None) -> str | None:
    named: list[tuple[str, object]] = [(name, headers[name]) for name in SESSION_HEADERS if headers.get(name)]
    named += [(name, body[name]) for name in ("session_id", "prompt_cache_key") if body.get(name)]
    if named:
        name, value = named[0]
        if not isinstance(value, str) or not _KEY.fullmatch(value):
            raise RequestError(f"{name} must be 1 to 200 printable ASCII characters without spaces", param=name)
        return value
    named_in_text = None if runtime is None else runtime["id"] or runtime["name"]
    return named_in_text if named_in_text is not None and _KEY.fullmatch(named_in_text) else None


def _said_kind(headers: Mapping[str, str], body: Mapping[str, Any]) -> TurnKind | None:
    said = headers.get("x-turn-type", body.get("turn_type"))
    if said is None:
        return None
    kind = said.strip().lower() if isinstance(said, str) else said
    if kind == "main" or kind == "side":
        return "main" if kind == "main" else "side"
    raise RequestError("turn_type must be main or side", param="turn_type")


def _no_train(headers: Mapping[str, str], body: Mapping[str, Any]) -> NoTrain | None:
    """What header and body say; of two wishes the stricter one."""
    said = [("X-No-Train", headers.get("x-no-train")), ("no_train", body.get("no_train"))]
    wishes = [_left_out(name, value) for name, value in said]
    return "session" if "session" in wishes else "message" if "message" in wishes else None


def _left_out(name: str, said: object) -> NoTrain | None:
    word = str(said).strip().lower() if isinstance(said, str | bool | int | None) else "?"
    if word in _NO_TRAIN_WORDS:
        return _NO_TRAIN_WORDS[word]
    if word in _TRUE:
        return "session"
    if word in _FALSE:
        return None
    raise RequestError(f"{name} is true, false, session or message", param=name)


def _guessed_kind(
    key: str | None, runtime: re.Match[str] | None, messages: Sequence[Message], tools: Sequence[Tool]
) -> TurnKind:
    for name in (key, runtime["name"] if runtime else None):
        if name is not None and _SIDE_SESSION.search(name):
            return "side"
    asked = next((m.content for m in reversed(messages) if m.role == "user" and is_spoken(m)), "")
    if asked[:1_000].lstrip().startswith(_SIDE_OPENINGS) or _SIDE_WISH in asked[:20_000]:
        return "side"
    system = next((m.content for m in messages if m.role == "system"), "")
    return "side" if not tools and _is_side_system(system[:2_000]) else "main"


@lru_cache(maxsize=1024)
def _is_side_system(system: str) -> bool:
    """Clients send the same system prompt again and again, and the search in it takes longer than all else here."""
    return _SIDE_SYSTEM.search(system) is not None


def _runtime_line(messages: Sequence[Message]) -> re.Match[str] | None:
    """OpenClaw writes its session into the first user message, or into the system prompt in older versions."""
    for message in messages[:3]:
        if message.role in ("system", "user") and "Runtime: " in message.content:
            match = _RUNTIME_LINE.search(message.content)
            if match:
                return match
    return None


def _client(headers: Mapping[str, str], messages: Sequence[Message], runtime: re.Match[str] | None) -> str:
    if runtime is not None or "openclaw" in messages[0].content[:200].lower():
        return "openclaw"
    agent = headers.get("user-agent", "").split(" ")[0]
    return "".join(c for c in agent if c.isprintable())[:80] or "unknown"


def _is_true(name: str, value: object) -> bool:
    word = str(value).strip().lower() if isinstance(value, str | bool | int | None) else "?"
    if word not in _TRUE and word not in _FALSE:
        raise RequestError(f"{name} is true or false", param=name)
    return word in _TRUE
