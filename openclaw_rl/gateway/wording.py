"""Reads one message: whether it belongs to the conversation, whether a person wrote it, and what he said.

Turns a `Message` into facts about its words. Agent programs write into the same list as people: clocks, run-time facts,
heartbeats, reports of finished jobs, requests to try again. What they write carries marks of its own (a bracketed
note, a line with the time of the run, a wrapper); the marks are read rather than the sentences, because sentences
change from version to version and many can be configured. It knows nothing of requests, sessions or turns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from openclaw_rl.types import Message

_CARRIER_BEGIN, _CARRIER_END = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
_CARRIER = re.compile(
    rf"\s*(?:{_CARRIER_BEGIN}|\[\[OPENCLAW_INTERNAL_CONTEXT_BEGIN\]\]|OpenClaw runtime (?:context|event)\b)"
)
_STAMP = re.compile(r"\s*\[(?:\w{2,4},? )?\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?: ?[^\]\n]{1,40})?\]\s*")
_RUNTIME_LINE = re.compile(r"^Runtime: (?:\w+=[^|\n]*\|)+[^\n]*$", re.MULTILINE)
_EVENTS = re.compile(r"\s*System: \[[^\n]*(?:\n+System: [^\n]*)*\s*")
_RUNTIME_FACT = re.compile(r"(?P<name>\w+)=(?P<value>.*)")

_LOOKED_AT_CHARS = 20_000
"""Marks stand near the ends of a message; a pasted book is not searched for them."""

_NOTE = re.compile(
    r"""
    \[cron: | \[openclaw\ [^\]\n]{1,60}\]\s*(?:\n|$) | \[system\ message\] | (?:[\w-]+\ ){0,2}memory\ flush[.:]
  | .{0,200}(?:\[internal\ task\ completion\ event\] | \bruntime-generated,\ not\ user-authored\b)
  | an?\ (?:background|subagent|async|scheduled)\ (?:task|job|command|run)\b.{0,200}
    \b(?:completed|finished|failed|timed\ out)\b.{0,400}\b(?:to\ the\ user|assistant\ voice)\b
  | (?:read|follow|check)\ (?:the\ )?heartbeat(?:\.md\ if\ it\ exists|\ monitor\b)
  | (?=.{0,400}\bheartbeat\b).{0,2000}\b(?:heartbeat_ok|no_reply)\b
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_TIME_OF_RUN = re.compile(r"^Current time: [^\n]+\n+(?:Reference )?UTC\b", re.MULTILINE)

_NUDGE = re.compile(
    r"""
    the\ previous\ (?:\w+\ ){0,2}(?:turn|attempt|reply|response)\b.{0,160}?\bvisible\ (?:answer|reply|response|text)\b
  | continue\ (?:the\ current\ task\ )?from\ the\ (?:\w+\ )?transcript\b
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_SYNTHETIC_RESULT = re.compile(r"\s*\[openclaw\]", re.IGNORECASE)
_SILENCE = re.compile(r"[A-Z]+(?:_[A-Z]+)+[.!]?")


def is_carrier(message: Message) -> bool:
    """Whether this is OpenClaw's throw-away message: it stands at the end of a request and is gone in the next."""
    return message.role == "user" and _CARRIER.match(message.content) is not None


def is_spoken(message: Message) -> bool:
    """Whether a message is part of the conversation: neither a system prompt nor a carrier."""
    return message.role != "system" and not is_carrier(message)


def said(message: Message) -> str:
    """The words of a message without what clients attach to it: events, time stamp, run-time facts, reminders.

    >>> said(Message(role="user", content="[Mon 2030-01-07 09:00 UTC] hello\\n\\nRuntime: agent=a | session=s"))
    'hello'
    """
    text = message.content
    if message.role == "user":
        for attached in (_EVENTS, _STAMP):
            found = attached.match(text)
            text = text[found.end() :] if found else text
        if "Runtime: " in text:
            text = _RUNTIME_LINE.sub("", text)
        text = without_blocks(text, _CARRIER_BEGIN, _CARRIER_END)
        text = without_blocks(text, "<system-reminder>", "</system-reminder>")
    return text.strip()


def without_blocks(text: str, begin: str, end: str) -> str:
    """A text without what stands between two marks. One walk: an expression would start anew at every open mark."""
    kept: list[str] = []
    at = 0
    while (start := text.find(begin, at)) >= 0 and (stop := text.find(end, start)) >= 0:
        kept.append(text[at:start])
        at = stop + len(end)
    return "".join(kept) + text[at:] if at else text


def is_automatic(message: Message) -> bool:
    """Whether a program wrote this as if it were the user: a heartbeat, a scheduled job, a report, a flush.

    >>> is_automatic(Message(role="user", content="[cron:7 nightly] sweep the floor"))
    True
    """
    return message.role == "user" and are_automatic(said(message)) and bool(message.content.strip())


def are_automatic(words: str) -> bool:
    """`is_automatic` of a user message that says this; one that says nothing holds attachments only."""
    return not words or bool(_NOTE.match(words[:_LOOKED_AT_CHARS]) or _TIME_OF_RUN.search(words[-_LOOKED_AT_CHARS:]))


def is_nudge(message: Message) -> bool:
    """Whether a program asks the model to go on after a reply that nobody could see; it is gone in the next request."""
    return message.role == "user" and are_nudging(said(message))


def are_nudging(words: str) -> bool:
    """`is_nudge` of a user message that says this."""
    return _NUDGE.match(words[:1_000]) is not None


def is_reaction(message: Message) -> bool:
    """Whether a message that is no answer tells something about the answer before it: a person or a tool spoke."""
    if message.role == "tool":
        return _SYNTHETIC_RESULT.match(message.content) is None
    return is_spoken(message) and not is_automatic(message) and not is_nudge(message)


def is_silence(message: Message) -> bool:
    """Whether an answer is a bare token such as NO_REPLY, by which an agent says nothing to the person."""
    return not message.tool_calls and _SILENCE.fullmatch(message.content.strip()) is not None


def runtime_facts(messages: Sequence[Message]) -> dict[str, str]:
    """What OpenClaw says of its run, in the first user message or in the system prompt; empty if it says nothing.

    >>> runtime_facts([Message(role="user", content="hi\\n\\nRuntime: agent=a | session=s | sessionId=u")])["sessionId"]
    'u'
    """
    for message in messages[:4]:
        if message.role in ("system", "user") and "Runtime: " in message.content:
            # The program's own line is the last one; a person may have pasted another above it.
            for line in reversed(_RUNTIME_LINE.findall(message.content)):
                facts = _facts(line)
                if "session" in facts or "sessionId" in facts:
                    return facts
    return {}


def _facts(line: str) -> dict[str, str]:
    found = (_RUNTIME_FACT.fullmatch(part.strip()) for part in line.removeprefix("Runtime: ").split("|"))
    return {fact["name"]: fact["value"] for fact in found if fact}
