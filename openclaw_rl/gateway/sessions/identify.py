"""Who is calling and what for: the client, the session it names, and whether a person reads the answer.

Turns headers, body keys and the words of a request into an `Identity`. What a client says outright wins; the rest is
read off what the programs of today really send. The first of these names the session:

    X-Session-Affinity, X-Session-Id, Session-Id, Session_Id, X-Claude-Code-Session-Id      headers
    session_id, prompt_cache_key, metadata.user_id                                          keys of the body
    sessionId, else session, of a line "Runtime: …"                                         OpenClaw's words

A name that a program made by itself and that cannot be one is passed over; X-Session-Id and session_id are a person's
own words to us, and are refused then. OpenClaw counts the resets and compactions of a session and appends the number
(`ID:3`); here ID is the session, and its history tells where a conversation begins anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.sessions.kinds import guessed_kind, told_kind, turn_label
from openclaw_rl.gateway.sessions.wording import OPENCLAW, names_openclaw, runtime_facts
from openclaw_rl.types import AtWork, Episode, Message, Tool, TurnKind

NoTrain = Literal["session", "message"]
"""How far a wish not to be trained on reaches: from now on the whole session, or this one message."""
_NO_TRAIN_WORDS: Mapping[str, NoTrain] = {"session": "session", "message": "message", "turn": "message"}
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", "", "none"})
_SESSION_HEADERS = ("x-session-affinity", "x-session-id", "session-id", "session_id", "x-claude-code-session-id")
_OUR_NAMES = ("x-session-id", "session_id of the body")
_CACHE_KEY = "prompt_cache_key"
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_EPOCH = re.compile(r"(?P<id>.+):\d{1,6}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_SESSION_OF_USER_ID = re.compile(r"_session_([0-9A-Za-z-]{8,64})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What is known about the sender of a request, beside who he is.

    `label` is the client's own name for what it is doing. `is_doubtful`: nothing but its place in a named session can
    tell whether this is upkeep. `is_retry`: the client says that it wants the answer of an earlier, equal request
    rather than a new one. `episode` is the attempt that an agent is at work on: no client says so, its key does.
    """

    client: str
    session_key: str | None
    kind: TurnKind
    label: str = ""
    is_doubtful: bool = False
    session_done: bool = False
    no_train: NoTrain | None = None
    is_retry: bool = False
    episode: Episode | None = None

    @property
    def scoped_key(self) -> str | None:
        """The session's name; two attempts at a task may use the same one, so it is told apart by the episode."""
        if self.episode is None or self.session_key is None:
            return self.session_key
        return f"{self.episode.id}/{self.session_key}"

    def of_attempt(self, at_work: AtWork | None) -> Identity:
        """The same, known to come from an agent at work; what it does is kept from training unless it is to learn."""
        if at_work is None:
            return self
        return replace(self, episode=at_work.episode, no_train=self.no_train if at_work.learn else "session")


def identify(
    headers: Mapping[str, str], body: Mapping[str, Any], messages: Sequence[Message], tools: Sequence[Tool]
) -> Identity:
    """Reads the identity of one request. `headers` compare without case; `body` is the request as sent."""
    runtime = runtime_facts(messages)
    source, key = _session_key(headers, body, runtime)
    kind = told_kind(headers, body)
    is_openclaw = bool(runtime) or names_openclaw(messages)
    names = (key, runtime.get("session"), runtime.get("sessionId"), headers.get("x-session-key"))
    return Identity(
        client=OPENCLAW if is_openclaw else _client(headers),
        session_key=key,
        kind=guessed_kind(headers, body, names, messages, tools, is_openclaw) if kind is None else kind,
        label=turn_label(headers, body),
        # A cache key may be shared by everything that an application does: it does not make one session of it.
        is_doubtful=kind is None and not tools and source not in ("", _CACHE_KEY),
        session_done=_is_true("session_done", headers.get("x-session-done", body.get("session_done"))),
        no_train=_no_train(headers, body),
        is_retry="idempotency-key" in headers or headers.get("x-stainless-retry-count", "0") != "0",
    )


def _session_key(
    headers: Mapping[str, str], body: Mapping[str, Any], runtime: Mapping[str, str]
) -> tuple[str, str | None]:
    """Where the session is named first, and its name."""
    for source, name in _session_names(headers, body, runtime):
        if isinstance(name, str) and _KEY.fullmatch(name):
            return source, name if source in _OUR_NAMES else _without_epoch(name, headers, runtime)
        if source in _OUR_NAMES:
            param = source.split(" ", 1)[0]
            raise RequestError(f"{param} must be 1 to 200 printable ASCII characters without spaces", param=param)
    return "", None


def _session_names(
    headers: Mapping[str, str], body: Mapping[str, Any], runtime: Mapping[str, str]
) -> Iterator[tuple[str, object]]:
    named: list[tuple[str, object]] = [(name, headers.get(name)) for name in _SESSION_HEADERS]
    named += [
        ("session_id of the body", body.get("session_id")),
        (_CACHE_KEY, body.get(_CACHE_KEY)),
        ("metadata", _session_of_metadata(body.get("metadata"))),
        ("runtime", runtime.get("sessionId") or runtime.get("session")),
    ]
    return ((source, name) for source, name in named if name)


def _without_epoch(name: str, headers: Mapping[str, str], runtime: Mapping[str, str]) -> str:
    """`ID` of OpenClaw's `ID:EPOCH`. Others may end names in numbers too: something has to show that it is one."""
    counted = _EPOCH.fullmatch(name)
    if counted is None:
        return name
    is_known = counted["id"] in (headers.get("x-session-id"), runtime.get("sessionId"))
    if is_known or headers.get("x-client-request-id") == name or _UUID.fullmatch(counted["id"]):
        return counted["id"]
    return name


def _session_of_metadata(metadata: object) -> object:
    """Claude Code names its session inside `user_id`: as JSON, or in older versions behind `_session_`."""
    user_id = metadata.get("user_id") if isinstance(metadata, Mapping) else None
    if not isinstance(user_id, str):
        return None
    try:
        parsed = orjson.loads(user_id.encode("utf-8", "surrogatepass"))
    except orjson.JSONDecodeError:
        found = _SESSION_OF_USER_ID.search(user_id)
        return found[1] if found else None
    return parsed.get("session_id") if isinstance(parsed, dict) else None


def _no_train(headers: Mapping[str, str], body: Mapping[str, Any]) -> NoTrain | None:
    """What headers and body say; of two wishes the stricter one."""
    wishes = [_left_out("X-No-Train", value) for name, value in headers.items() if name.lower() == "x-no-train"]
    wishes.append(_left_out("no_train", body.get("no_train")))
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


def _client(headers: Mapping[str, str]) -> str:
    agent = headers.get("user-agent", "").split(" ")[0]
    return "".join(c for c in agent if c.isprintable())[:80] or "unknown"


def _is_true(name: str, value: object) -> bool:
    word = str(value).strip().lower() if isinstance(value, str | bool | int | None) else "?"
    if word not in _TRUE and word not in _FALSE:
        raise RequestError(f"{name} is true or false", param=name)
    return word in _TRUE
