"""Main or side: whether a person reads the answer, and may react to it.

Turns what a request says about itself, and what it looks like, into a `TurnKind`. Programs call models for themselves
too: titles, summaries, commit messages, memory, heartbeats, scheduled jobs, sub-agents, second passes. What the client
says outright wins. Otherwise a call is *side* if one of these tells so, and *main* if nothing does: a stock client
trains by default.

    a name      a session, thread or request kind that belongs to sub-agents, jobs or upkeep
    the asker   the last words were not a person's (`wording.py`), or nobody spoke after the last answer;
                they speak of the user, shout an order at the model, or ask for a summary of it all
    the shape   no tools, and a system prompt that makes the model a writer of titles, summaries and the like;
                no tools, and a transcript in place of a message; no tools, and a second try at an answer;
                no tools, and one token

What people write too (a heartbeat, a memory flush, a transcript) tells only where OpenClaw is known to speak.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.sessions.wording import are_automatic, is_carrier, is_nudge, is_reminder, is_spoken, said
from openclaw_rl.types import Message, Tool, TurnKind

_SIDE_SESSION = re.compile(
    r"^agent:[^:]*:(?:.*:)?(?:subagent|acp|cron|hook|helper)(?::|$)"
    r"|^openclaw-cron-|internal-session-effects|^slug-generator-"
)
_CHILD_HEADERS = (
    "x-parent-session-id",
    "x-openai-subagent",
    "x-claude-code-agent-id",
    "x-claude-code-parent-agent-id",
)
_CLAUDE_CLASS = "x-claude-code-request-class"
_CODEX_METADATA = "x-codex-turn-metadata"
_SIDE_LABEL = re.compile(r"sub:.*|heartbeat|cron|memory|compaction|simple|finalize|announce|title|summary")
_MAX_METADATA_CHARS = 65_536
_TOKEN_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")

# What a system prompt asks for in its opening. All of it is written for a program, none of it for a person.
_SIDE_SYSTEM = re.compile(
    r"""\b(?:
        (?:session|conversation|chat|thread)\ titles? | title\ (?:generator|writer)
      | title\ for\ (?:this|the|a)\ (?:\w+\ )?(?:chat|conversation|session|thread) | new\ conversation\ topic
      | titles?\ \((?:\d+\W{1,3})?\d+\ words? | titles?\b[^.\n]{0,80}\bcoding\ session
      | (?:context|conversation|chat|session|transcript)\ summari[sz]\w+
      | summari[sz]\w*\ (?:[\w*]+\ ){0,7}(?:conversation|chat|session|transcript)s?
      | dream\ diary | filename\ slug
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)
_COMMIT_SYSTEM = re.compile(
    r"(?<!how to )\b(?:generat|writ|creat|produc)\w* (?:[\w,-]+ ){0,4}commit messages?\b", re.IGNORECASE
)
_OPENING_CHARS = 200
_ONE_SHOT_CHARS = 600
_SENTENCE_END = re.compile(r"[.\n]")
# A whole conversation as one message: it stands in a frame of its own, at the very start or under a task.
_TRANSCRIPT = re.compile(r"<(conversation|chat_history|transcript)>")
_TASK = re.compile(r"#{1,6} task:", re.I)
# A second question in a row, for an answer without tools to what was done with them.
_SECOND_PASS = re.compile(
    r"\buser-visible\b|\btext-only\b|\btools? (?:calls? )?(?:are|is) (?:un|not )available\b", re.I
)
_SUMMARY_TASK = re.compile(
    r"your task is to \w+ an? (?:[\w,-]+ ){0,4}summary of (?:the|this|our) (?:[\w-]+ ){0,4}conversation\b"
    r"(?! (?:in|from|between|with)\b)",
    re.IGNORECASE,
)
# Behind a whole conversation: an order in capitals, or words about the user to somebody who is not the assistant.
_ORDER = re.compile(
    r"\[(?:[A-Z]+ ){1,3}MODE: |[^\n]{0,80}\b(?:[A-Z]{4,} ){2,3}COMPACTION\b|[A-Z]{4,}: [^\n]{0,40}\bTEXT ONLY\b"
    r"|[Tt]he user (?:has )?stepped away\b|[Yy]ou (?:are (?:now )?acting|act) as [^.\n]{0,40}\bsub-?agent\b"
)
_SUBAGENT = re.compile(r"\[subagent (?:context|task)\]", re.IGNORECASE)
_SLUG = re.compile(r".{0,200}\bfilename slug\b", re.IGNORECASE | re.DOTALL)


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
    is_openclaw: bool,
) -> TurnKind:
    """What the request looks like. `sessions` are the names it gives to the session it belongs to."""
    if _is_side_by_name(headers, body, sessions) or _is_side_by_asker(messages, is_openclaw):
        return "side"
    return "side" if not tools and (_wants_one_token(body) or _is_side_by_shape(messages, is_openclaw)) else "main"


def _is_side_by_name(headers: Mapping[str, str], body: Mapping[str, Any], sessions: Iterable[str | None]) -> bool:
    if any(name and _SIDE_SESSION.search(name) for name in sessions):
        return True
    if any(headers.get(name) for name in _CHILD_HEADERS):
        return True
    if headers.get(_CLAUDE_CLASS, "").strip().lower() not in ("main", ""):
        return True
    metadata = _codex_metadata(headers, body)
    if metadata.get("request_kind") not in ("turn", None) or metadata.get("thread_source") not in ("user", None):
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


def _is_side_by_asker(messages: Sequence[Message], is_openclaw: bool) -> bool:
    asked = _asked(messages, is_openclaw)
    if asked is not None:
        words = said(asked)
        if are_automatic(words, is_openclaw=is_openclaw) or _SUBAGENT.match(words):
            return True
        if _is_one_shot(messages):
            if is_openclaw and _SLUG.match(words):
                return True
        elif _ORDER.match(words) or _SUMMARY_TASK.search(words[:4_000]):
            return True
    # OpenClaw reports on a finished job in its trailing message alone: then the last to speak was the model.
    spoken = next((m for m in reversed(messages) if is_spoken(m)), None)
    return spoken is not None and spoken.role == "assistant" and is_carrier(messages[-1])


def _wants_one_token(body: Mapping[str, Any]) -> bool:
    """Whether the answer is not for reading: a client asks whether it may ask."""
    return any(body.get(name) == 1 and body.get(name) is not True for name in _TOKEN_LIMITS)


def _is_side_by_shape(messages: Sequence[Message], is_openclaw: bool) -> bool:
    """For a request without tools."""
    is_one_shot = _is_one_shot(messages)
    system = "\n".join(m.content[:_ONE_SHOT_CHARS] for m in messages[:4] if m.role == "system")
    if _is_side_system(system[: _ONE_SHOT_CHARS if is_one_shot else _OPENING_CHARS], is_one_shot):
        return True
    asked = _asked(messages, is_openclaw)
    if asked is None:
        return False
    words = said(asked)
    spoken = [m for m in messages[-4:] if is_spoken(m)]
    is_second = len(spoken) > 1 and spoken[-1] is asked and spoken[-2].role != "assistant"
    if (is_nudge(asked) and (is_second or is_openclaw)) or (is_second and _SECOND_PASS.search(words[:2_000])):
        return True
    return is_one_shot and _is_transcript(words, is_openclaw)


def _is_one_shot(messages: Sequence[Message]) -> bool:
    """Whether nothing was answered yet; an answer at the end was begun by the client."""
    return not any(m.role == "assistant" for m in messages[:-1])


def _is_transcript(words: str, is_openclaw: bool) -> bool:
    frame = _TRANSCRIPT.search(words[:20_000])
    if frame is None or f"\n</{frame[1]}>" not in words:
        return False
    return _TASK.match(words) is not None or (is_openclaw and frame.start() == 0)


def _asked(messages: Sequence[Message], is_openclaw: bool) -> Message | None:
    """The message that this run answers, further up than its tool loop.

    One that holds attachments only is none, unless there is nothing else that the model could react to.
    """
    spoken = [m for m in messages if is_spoken(m)]
    for position in range(len(spoken) - 1, -1, -1):
        message = spoken[position]
        if message.role != "user":
            continue
        if said(message):
            return message
        before = spoken[position - 1] if position else None
        is_answered = before is not None and before.role == "assistant" and not before.tool_calls
        if is_answered and (is_openclaw or is_reminder(message)):
            return message
    return None


@lru_cache(maxsize=1024)
def _is_side_system(opening: str, is_one_shot: bool) -> bool:
    """Whether a system prompt makes the model a writer of one thing; where a conversation grows, in its first sentence.

    Clients send the same system prompt again and again, and the search in it takes longer than all else here.
    """
    if is_one_shot:
        return _SIDE_SYSTEM.search(opening) is not None or _COMMIT_SYSTEM.search(opening) is not None
    return _SIDE_SYSTEM.search(_SENTENCE_END.split(opening, maxsplit=1)[0]) is not None
