"""Main or side: whether a person reads the answer, and may react to it.

Turns what a request says about itself, and what it looks like, into a `TurnKind`. Programs call models for themselves
too: titles, summaries, commit messages, memory, heartbeats, scheduled jobs, sub-agents, second passes. What the client
says outright wins. Otherwise a call is *side* if one of these tells so, and *main* if nothing does: a stock client
trains by default.

    a name      a session, thread or request kind that belongs to sub-agents, jobs or upkeep
    the asker   the last words were not a person's (`wording.py`), or nobody spoke after the last answer
    the shape   no tools, and a system prompt that makes the model a writer of titles, summaries and the like;
                no tools, and a transcript in place of a message; no tools, and a second try at an answer
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.wording import is_automatic, is_carrier, is_nudge, is_spoken, said
from openclaw_rl.types import Message, Tool, TurnKind

_SIDE_SESSION = re.compile(
    r"(?:^|:)(?:subagent|acp|cron|hook|helper)(?::|$)|^openclaw-cron-|internal-session-effects|^slug-generator-"
)
_CHILD_HEADERS = ("x-parent-session-id", "x-openai-subagent")
_CODEX_METADATA = "x-codex-turn-metadata"
_SIDE_LABEL = re.compile(r"sub:.*|heartbeat|cron|memory|compaction|simple|finalize|announce|title|summary")
_MAX_METADATA_CHARS = 65_536

# What a system prompt asks for in its opening. All of it is written for a program, none of it for a person.
_SIDE_SYSTEM = re.compile(
    r"""\b(?:
        (?:session|conversation|chat|thread)\ titles? | title\ (?:generator|writer)
      | title\ for\ (?:this|the|a)\ (?:\w+\ )?(?:chat|conversation|session|thread) | new\ conversation\ topic
      | (?:context|conversation|chat|session|transcript)\ summari[sz]\w+
      | summari[sz]\w*\ (?:[\w*]+\ ){0,4}(?:conversation|chat|session|transcript)s?
      | dream\ diary | commit\ messages? | filename\ slug
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)
_OPENING_CHARS = 200
_ONE_SHOT_CHARS = 600
# A whole conversation as one message: it stands in a frame of its own, at the very start or under a task.
_TRANSCRIPT = re.compile(r"<(conversation|chat_history|transcript)>")
_TASK = re.compile(r"#{1,6} task\b", re.I)
# A second question in a row, for an answer without tools to what was done with them.
_SECOND_PASS = re.compile(
    r"\buser-visible\b|\btext-only\b|\btools? (?:calls? )?(?:are|is) (?:un|not )available\b", re.I
)
_SUMMARY_TASK = re.compile(r"your task is to \w+ an? (?:[\w,-]+ ){0,4}summary of (?:the|this|our) conversation\b", re.I)


def told_kind(headers: Mapping[str, str], body: Mapping[str, Any]) -> TurnKind | None:
    """What the client says outright, by our header or our body key."""
    told = headers.get("x-turn-type", body.get("turn_type"))
    if told is None:
        return None
    kind = told.strip().lower() if isinstance(told, str) else told
    if kind == "main" or kind == "side":
        return "main" if kind == "main" else "side"
    raise RequestError("turn_type must be main or side", param="turn_type")


def turn_label(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """The finer name that a client gives to what it does (`user`, `cron`, `compaction`, …); empty if it gives none."""
    label = headers.get("x-turn-kind") or _codex_metadata(headers, body).get("request_kind")
    return "".join(c for c in label if c.isprintable()).strip().lower()[:80] if isinstance(label, str) else ""


def guessed_kind(
    headers: Mapping[str, str],
    body: Mapping[str, Any],
    sessions: Iterable[str | None],
    messages: Sequence[Message],
    tools: Sequence[Tool],
) -> TurnKind:
    """What the request looks like. `sessions` are the names it gives to the session it belongs to."""
    if _is_side_by_name(headers, body, sessions) or _is_side_by_asker(messages):
        return "side"
    return "side" if not tools and _is_side_by_shape(messages) else "main"


def _is_side_by_name(headers: Mapping[str, str], body: Mapping[str, Any], sessions: Iterable[str | None]) -> bool:
    if any(name and _SIDE_SESSION.search(name) for name in sessions):
        return True
    if any(headers.get(name) for name in _CHILD_HEADERS):
        return True
    metadata = _codex_metadata(headers, body)
    if metadata.get("request_kind", "turn") != "turn" or metadata.get("thread_source", "user") not in ("user", None):
        return True
    return _SIDE_LABEL.fullmatch(turn_label(headers, body)) is not None


def _codex_metadata(headers: Mapping[str, str], body: Mapping[str, Any]) -> Mapping[str, Any]:
    """What Codex says about the request, in a header or in the body; empty if it cannot be read."""
    client = body.get("client_metadata")
    for text in (headers.get(_CODEX_METADATA), client.get(_CODEX_METADATA) if isinstance(client, Mapping) else None):
        if isinstance(text, str) and len(text) <= _MAX_METADATA_CHARS:
            try:
                metadata = orjson.loads(text.encode("utf-8", "surrogateescape"))
            except orjson.JSONDecodeError:
                continue
            if isinstance(metadata, dict):
                return metadata
    return {}


def _is_side_by_asker(messages: Sequence[Message]) -> bool:
    asked = _asked(messages)
    if asked is not None and is_automatic(asked):
        return True
    # OpenClaw reports on a finished job in its trailing message alone: then the last to speak was the model.
    spoken = next((m for m in reversed(messages) if is_spoken(m)), None)
    return spoken is not None and spoken.role == "assistant" and is_carrier(messages[-1])


def _is_side_by_shape(messages: Sequence[Message]) -> bool:
    """For a request without tools."""
    is_one_shot = not any(m.role == "assistant" for m in messages)
    system = "\n".join(m.content[:_ONE_SHOT_CHARS] for m in messages[:4] if m.role == "system")
    if _is_side_system(system[: _ONE_SHOT_CHARS if is_one_shot else _OPENING_CHARS]):
        return True
    asked = _asked(messages)
    if asked is None:
        return False
    words = said(asked)
    if is_nudge(asked) or _SUMMARY_TASK.match(words[:400]):
        return True
    spoken = [m for m in messages[-4:] if is_spoken(m)]
    if (
        len(spoken) > 1
        and spoken[-1] is asked
        and spoken[-2].role != "assistant"
        and _SECOND_PASS.search(words[:2_000])
    ):
        return True
    return is_one_shot and _is_transcript(words)


def _is_transcript(words: str) -> bool:
    frame = _TRANSCRIPT.search(words[:20_000])
    is_first = frame is not None and (frame.start() == 0 or _TASK.match(words) is not None)
    return frame is not None and is_first and f"\n</{frame[1]}>" in words


def _asked(messages: Sequence[Message]) -> Message | None:
    return next((m for m in reversed(messages) if m.role == "user" and is_spoken(m)), None)


@lru_cache(maxsize=1024)
def _is_side_system(opening: str) -> bool:
    """Clients send the same system prompt again and again, and the search in it takes longer than all else here."""
    return _SIDE_SYSTEM.search(opening) is not None
