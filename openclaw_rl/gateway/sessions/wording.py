"""Reads one message: whether it belongs to the conversation, whether a person wrote it, and what he said.

Turns a `Message` into facts about its words. Agent programs write into the same list as people: clocks, run-time facts,
heartbeats, reports of finished jobs, requests to try again. What they write carries marks of its own (a bracketed
note, a line with the time of the run, a wrapper); the marks are read rather than the sentences, because sentences
change from version to version and many can be configured. People write some of these sentences too: those count only
where OpenClaw is known to speak. It knows nothing of requests, sessions or turns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from openclaw_rl.types import Message

_CARRIER_BEGIN, _CARRIER_END = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
_CARRIER = re.compile(
    rf"\s*(?:{_CARRIER_BEGIN}|\[\[OPENCLAW_INTERNAL_CONTEXT_BEGIN\]\]"
    r"|OpenClaw runtime (?:context|event)(?: \(\w+\)| for [^\n]{1,80})?[.:]\s*\n)"
)
_STAMP = re.compile(r"\s*\[(?:\w{2,4},? )?\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?: ?[^\]\n]{1,40})?\]\s*")
# A line that names the session, and ends: one of megabytes is not walked through. It begins with its letters, not with
# the check that they open a line, because those are what is searched for fast.
_RUNTIME_LINE = re.compile(
    r"Runtime: (?<![^\n]Runtime: )(?=\w+=)(?=[^\n]{0,4000}$)(?=(?:[^\n]*[ |])?session(?:Id)?=)[^\n]*$", re.MULTILINE
)
_EVENTS = re.compile(
    r"\s*System(?: \(untrusted\))?: \[(?:\w{2,4},? )?\d{4}-\d\d-\d\d[^\n]*"
    r"(?:\n+System(?: \(untrusted\))?: [^\n]*)*\s*"
)
_RUNTIME_FACT = re.compile(r"(?P<name>\w+)=(?P<value>.*)")

OPENCLAW = "openclaw"
"""What the client is called whose requests show that it is OpenClaw, whatever its headers say."""

_LOOKED_AT_CHARS = 20_000
"""Marks stand near the ends of a message; a pasted book is not searched for them."""

_NOTE = re.compile(
    r"""
    \[cron:\S | \[openclaw\ [a-z][^\]\n]{1,60}\]\s*(?:\n|$) | \[system\ message\]\ \[
  | .{0,200}\[internal\ task\ completion\ event\]
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
# The same as prose: a person may well write this, about a program of his own.
_PROSE_NOTE = re.compile(
    r"""
    \[system\ message\] | (?:[\w-]+\ ){0,2}memory\ flush[.:]
  | .{0,200}\bruntime-generated,\ not\ user-authored\b
  | an?\ scheduled\ reminder\b.{0,40}\btriggered\b
  | an?\ (?:background|subagent|async|scheduled)\ (?:task|job|command|run)\b.{0,200}
    \b(?:completed|finished|failed|timed\ out)\b.{0,400}\b(?:to\ the\ user|assistant\ voice)\b
  | (?:read|follow|check)\ (?:the\ )?heartbeat(?:\.md\ if\ it\ exists|\ monitor\b)
  | (?=.{0,400}heartbeat).{0,2000}\b(?:reply|respond|answer|return|say)\b[^.\n]{0,40}\b(?:heartbeat_ok|no_reply)\b
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_TIME_OF_RUN = re.compile(
    r"^Current time: [^\n]+(?:\n+(?:Reference )?UTC\b[^\n]{0,20}| / )\d{4}-\d\d-\d\d", re.MULTILINE
)
# A greeting that a person called for has the time of its run too.
_GREETING = re.compile(r".{0,40}\bnew session\b", re.IGNORECASE)

_NUDGE = re.compile(
    r"""
    the\ previous\ (?:\w+\ ){0,2}(?:turn|attempt|reply|response)\b.{0,160}?\bvisible\ (?:answer|reply|response|text)\b
  | continue\ (?:the\ current\ task\ )?from\ the\ (?:\w+\ )?transcript\b
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_SYNTHETIC_RESULT = re.compile(r"\s*\[openclaw\]", re.IGNORECASE)
_REMINDER, _REMINDER_END = "<system-reminder>", "</system-reminder>"
# What a person said while the agent worked, and what the client adds: that he did, and not to forget about it.
_WRAPPED = re.compile(r"\s*The user sent\b(?:[^:\n]{0,80}:)?")
_WRAPPED_END = re.compile(r"[^\n]{0,200}\baddress (?:this|the user's) message\b")
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
        text = without_blocks(text, _REMINDER, _REMINDER_END, _wrapped_words)
    return text.strip()


def without_blocks(text: str, begin: str, end: str, kept_of: Callable[[str], str] = lambda _: "") -> str:
    """A text without what stands between two marks, but for what `kept_of` keeps of it.

    One walk: an expression would start anew at every open mark.
    """
    kept: list[str] = []
    at = 0
    while (start := text.find(begin, at)) >= 0 and (stop := text.find(end, start)) >= 0:
        kept += [text[at:start], kept_of(text[start + len(begin) : stop])]
        at = stop + len(end)
    return "".join(kept) + text[at:] if at else text


def _wrapped_words(reminder: str) -> str:
    lead = _WRAPPED.match(reminder)
    if lead is None:
        return ""
    words = reminder[lead.end() :].strip()
    above, _, last = words.rpartition("\n\n")
    return f"\n{above.rstrip() if _WRAPPED_END.match(last) else words}\n"


def are_automatic(words: str, *, is_openclaw: bool = True) -> bool:
    """Whether a program wrote this as if it were the user: a heartbeat, a scheduled job, a report, a flush; a message
    that says nothing holds attachments only. Unless `is_openclaw`, what a person may have written himself is his.

    >>> are_automatic("[cron:7 nightly] sweep the floor")
    True
    """
    if not words:
        return True
    opening = words[:_LOOKED_AT_CHARS]
    if _NOTE.match(opening) or (is_openclaw and _PROSE_NOTE.match(opening)):
        return True
    closing = words[-_LOOKED_AT_CHARS:]
    # Nearly no message has the words; looking for them takes a twentieth of the expression's time.
    has_time = "Current time: " in closing and _TIME_OF_RUN.search(closing) is not None
    return has_time and _GREETING.match(words) is None


def is_nudge(message: Message) -> bool:
    """Whether a program asks the model to go on after a reply that nobody could see; it is gone in the next request."""
    return message.role == "user" and are_nudging(said(message))


def are_nudging(words: str) -> bool:
    """`is_nudge` of a user message that says this."""
    return _NUDGE.match(words[:1_000]) is not None


def is_reaction(message: Message, *, is_automatic: bool) -> bool:
    """Whether a message that is no answer tells something about the answer before it: a person or a tool spoke.

    `is_automatic`: a program wrote its words.
    """
    if message.role == "tool":
        return _SYNTHETIC_RESULT.match(message.content) is None
    if not is_spoken(message):
        return False
    return not is_automatic or not message.content.strip()


def is_silence(message: Message) -> bool:
    """Whether an answer is a bare token such as NO_REPLY, by which an agent says nothing to the person."""
    return not message.tool_calls and _SILENCE.fullmatch(message.content.strip()) is not None


def is_reminder(message: Message) -> bool:
    """Whether a message holds a client's reminder."""
    return message.role == "user" and _REMINDER in message.content


def names_openclaw(messages: Sequence[Message]) -> bool:
    """Whether OpenClaw's agent speaks here: by the opening of its system prompt, or by a carrier at the end.

    Further down a system prompt names the folders and files that somebody works on.
    """
    is_named = any(m.role == "system" and "openclaw" in m.content[:200].lower() for m in messages[:4])
    return is_named or is_carrier(messages[-1])


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
