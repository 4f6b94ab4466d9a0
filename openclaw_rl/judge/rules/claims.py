"""What a reply stands on, whatever is said of it: a question of fact, what somebody told before, code, tools.

    a question of fact      "How many legs has a spider?"                only wishes about its form are learned
    something told before   "Remember: a spider has 48 legs." "I will."  no score of what stands on it is learned
    tools or their results  what is so shows by itself                   everything is learned
    code that was asked for can be tried out                             nothing said of it is a claim

Whether a reaction itself is about the matter is for the heads. Credit decides what is learned from a marked verdict
(`training.claims`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from openclaw_rl.judge.rules.clauses import MOVES_ON
from openclaw_rl.judge.rules.language import load_languages
from openclaw_rl.judge.rules.matter import asks_fact, is_about, shows_code
from openclaw_rl.judge.rules.reactions import last_said, read_findings, sign_of, stated_in, told_in
from openclaw_rl.judge.rules.similarity import content
from openclaw_rl.judge.rules.wording import clean, read_words
from openclaw_rl.types import Evidence, Message


@dataclass(frozen=True, slots=True)
class Standing:
    """See the module."""

    is_free: bool
    """The reply calls tools or stands on what they returned."""
    is_fact: bool
    shows_code: bool
    told: tuple[str, ...]
    """What was told to be remembered, or in the request itself, or stated of a reply before."""
    earlier: tuple[tuple[str, str, str], ...]
    """The reactions before: request, reply and what was said."""


def standing_of(evidence: Evidence) -> Standing:
    """The standing of what followed a reply."""
    if evidence.reply.tool_calls or any(message.role == "tool" for message in evidence.request):
        return Standing(True, False, False, (), ())
    question, before = last_said(evidence.request), (*evidence.history, *evidence.request)
    is_code = shows_code(evidence.reply.content, question)
    told = [text for message in before if message.role == "user" for text in told_in(message.content, question)]
    earlier = tuple(_reactions(before))
    stated = [text for request, reply, said in earlier for text in stated_in(said, request, reply)]
    return Standing(
        is_free=False,
        is_fact=not is_code and _is_of_fact(before, evidence.reply.content),
        shows_code=is_code,
        told=(*told, *stated),
        earlier=earlier,
    )


def is_spoofed(text: str) -> bool:
    """Whether a text talks to the judge, or has a marker that only a judge would read."""
    return read_words(clean(text), *load_languages()).spoofed


def _is_of_fact(before: Sequence[Message], reply: str) -> bool:
    """Whether a reply answers a question of fact: the current one, or an earlier one in whose words it is."""
    asked = [message.content for message in before if message.role == "user" and asks_fact(message.content)]
    return asks_fact(_matter(before)) or any(is_about(content(question), reply) for question in asked)


def _matter(messages: Sequence[Message]) -> str:
    """The current request: the last message of the user that is more than a reaction to a reply."""
    for place in range(len(messages) - 1, 0, -1):
        message, reply = messages[place], messages[place - 1]
        if message.role == "user" and reply.role == "assistant":
            findings = read_findings(last_said(messages[: place - 1]), reply.content, [message.content])
            if (sign_of(findings) or 0) > 0 and any(finding.rule == MOVES_ON for finding in findings):
                return message.content
    return next((message.content for message in messages if message.role == "user"), "")


def _reactions(messages: Sequence[Message]) -> Iterator[tuple[str, str, str]]:
    """Each reply of a conversation, with its request and the reactions to it."""
    for place, message in enumerate(messages):
        if message.role == "assistant":
            said = takewhile(lambda following: following.role == "user", messages[place + 1 :])
            yield last_said(messages[:place]), message.content, "\n".join(one.content for one in said)
