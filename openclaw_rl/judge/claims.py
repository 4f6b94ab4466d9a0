"""What people say about the matter of a reply -> votes of their own, so that nobody has to learn it from their word.

    said now               "No, a spider has 48 legs. Shorter."           marks the score, and of hints all but the form
    a question of fact     "How many legs has a spider?" "Wrong!"         marks the same
    a reply stands on it   "You are right, 48 legs." "Perfect, thanks!"   marks the score, and hints that repeat it

A judge in front of any other that reads what people say: claims are read by the rules of language, whoever judges. What
is learned from a turn with such votes is credit's matter (`training.claims`). Replies that call tools, stand on what
tools returned, or show code have none: there what is so shows by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from openclaw_rl.judge.asserting import asks_fact, is_about, shows_code
from openclaw_rl.judge.clauses import MOVES_ON
from openclaw_rl.judge.reactions import told_in
from openclaw_rl.judge.rules import last_said, read_findings, said_after, score_of
from openclaw_rl.judge.similarity import content
from openclaw_rl.judge.wishes import form_part
from openclaw_rl.protocols import Judge
from openclaw_rl.types import Evidence, Message, Verdict, Vote

FACT = "a question of fact"
"""Where the answer to a request is right or wrong, praise and complaints are about that, unless about its form."""


class ClaimsMarked:
    """`protocols.Judge` in front of `inner`, under its name; closes it."""

    def __init__(self, inner: Judge) -> None:
        self.name = inner.name
        self.prompt_version = inner.prompt_version
        self._inner = inner

    async def judge(self, evidence: Evidence) -> Verdict:
        """The inner judge's verdict, with a vote for every hint that repeats a claim, or one if none does."""
        verdict = await self._inner.judge(evidence)
        if verdict.score is None and not verdict.hints:
            return verdict
        votes = await asyncio.to_thread(_votes, evidence, verdict.hints)
        return replace(verdict, votes=verdict.votes + votes)

    def forget(self) -> None:
        """The inner judge forgets."""
        self._inner.forget()

    async def close(self) -> None:
        """Closes the inner judge."""
        await self._inner.close()


def _votes(evidence: Evidence, hints: Sequence[str]) -> tuple[Vote, ...]:
    claims = read_claims(evidence)
    if not claims:
        return ()
    told, said = content(" ".join(claims)), "; ".join(claims)
    is_now = FACT in claims or _claimed_now(evidence)
    repeating = [hint for hint in hints if is_now or content(hint) & told]
    return tuple(
        Vote(question="claim", score=1, hint=hint, rest=form_part(hint), raw=said) for hint in repeating or ("",)
    )


def read_claims(evidence: Evidence) -> list[str]:
    """What people claim after the reply, or have told before it; `FACT` where whatever they say is about what is so."""
    if evidence.reply.tool_calls or any(message.role == "tool" for message in evidence.request):
        return []
    question, before = last_said(evidence.request), (*evidence.history, *evidence.request)
    after = _claimed_now(evidence)
    if not shows_code(evidence.reply.content, question) and _is_of_fact(before, evidence.reply.content):
        return [*after, FACT]
    if after:
        return after
    told = [text for message in before if message.role == "user" for text in told_in(message.content, question)]
    return told or [claim for one in _reactions(before) for claim in _claims(*one)]


def _is_of_fact(before: Sequence[Message], reply: str) -> bool:
    """Whether a reply answers a question of fact: the one that is talked about, or one of before in its words."""
    asked = [message.content for message in before if message.role == "user" and asks_fact(message.content)]
    return asks_fact(_matter(before)) or any(is_about(content(question), reply) for question in asked)


def _matter(messages: Sequence[Message]) -> str:
    """The request that is talked about: the last one of the user that is no reaction to a reply."""
    for place in range(len(messages) - 1, 0, -1):
        message, reply = messages[place], messages[place - 1]
        if message.role == "user" and reply.role == "assistant":
            findings = read_findings(last_said(messages[: place - 1]), reply.content, [message.content])
            if (score_of(findings)[0] or 0) > 0 and any(finding.rule == MOVES_ON for finding in findings):
                return message.content
    return next((message.content for message in messages if message.role == "user"), "")


def _claimed_now(evidence: Evidence) -> list[str]:
    """None where the reaction as a whole is kind: who is content states what comes next."""
    request, reply, said = last_said(evidence.request), evidence.reply.content, said_after(evidence)
    is_kind = (score_of(read_findings(request, reply, said))[0] or 0) > 0
    return [] if is_kind else _claims(request, reply, said)


def _claims(request: str, reply: str, reaction: Sequence[str]) -> list[str]:
    findings = read_findings(request, reply, reaction)
    return list(dict.fromkeys(finding.words for finding in findings if finding.claim))


def _reactions(messages: Sequence[Message]) -> Iterator[tuple[str, str, list[str]]]:
    """Each reply of a conversation, with what it answered and what people said to it."""
    for place, message in enumerate(messages):
        if message.role == "assistant":
            said = takewhile(lambda following: following.role == "user", messages[place + 1 :])
            yield last_said(messages[:place]), message.content, [one.content for one in said]
