"""What people say about the matter of a reply -> votes that mark it, so that it is not learned on their word.

    said now               "No, a spider has 48 legs. Shorter."           marks the score, and of hints all but the form
    a question of fact     "How many legs has a spider?" "Wrong!"         marks the same
    a reply stands on it   "You are right, 48 legs." "Perfect, thanks!"   marks the score, and hints that repeat it

The rules mark their own verdicts, and explicit scores where they are the judge; no other judge is bound by word lists.
Credit decides what is learned from a marked verdict (`training.claims`). Replies that call tools, stand on what tools
returned, or show code have no claims: there what is so shows by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from openclaw_rl.judge.rules.clauses import MOVES_ON
from openclaw_rl.judge.rules.language import load_languages
from openclaw_rl.judge.rules.matter import asks_fact, form_part, is_about, shows_code
from openclaw_rl.judge.rules.reactions import UNREAD, last_said, read_findings, said_after, sign_of, told_in
from openclaw_rl.judge.rules.similarity import content
from openclaw_rl.judge.rules.wording import clean, read_words
from openclaw_rl.types import Evidence, Message, Verdict, Vote

FACT = "a question of fact"
"""The claim of every reaction to an answer that is right or wrong: only its form can be liked or disliked."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What surrounds a reaction, whatever it says: what the rules know without words for claims."""

    is_free: bool
    """The reply calls tools or stands on what they returned: what is so shows by itself."""
    is_fact: bool
    shows_code: bool
    told: tuple[str, ...]
    """What was told to be remembered, in the request itself, or in a reaction before, as far as the rules hear it."""
    earlier: tuple[tuple[str, str, str], ...]
    """The reactions before: request, reply and what was said."""


def standing_of(evidence: Evidence) -> Standing:
    """The standing of what followed a reply."""
    if evidence.reply.tool_calls or any(message.role == "tool" for message in evidence.request):
        return Standing(True, False, False, (), ())
    question, before = last_said(evidence.request), (*evidence.history, *evidence.request)
    is_code = shows_code(evidence.reply.content, question)
    told = [text for message in before if message.role == "user" for text in told_in(message.content, question)]
    reactions = list(_reactions(before))
    return Standing(
        is_free=False,
        is_fact=not is_code and _is_of_fact(before, evidence.reply.content),
        shows_code=is_code,
        told=(*told, *(claim for one in reactions for claim in _claims(*one))),
        earlier=tuple((request, reply, "\n".join(said)) for request, reply, said in reactions),
    )


def is_spoofed(text: str) -> bool:
    """Whether a text talks to the judge, or has a marker that only a judge would read."""
    return read_words(clean(text), *load_languages()).spoofed


def marked(evidence: Evidence, verdict: Verdict) -> Verdict:
    """The verdict, with a vote for every hint that repeats a claim, or one if no hint does."""
    claims = read_claims(evidence)
    if not claims:
        return verdict
    told, said = content(" ".join(claims)), "; ".join(claims)
    is_now = FACT in claims or _claimed_now(evidence)
    repeating = [hint for hint in verdict.hints if is_now or content(hint) & told]
    votes = tuple(
        Vote(question="claim", score=1, hint=hint, rest=form_part(hint), raw=said) for hint in repeating or ("",)
    )
    return replace(verdict, votes=verdict.votes + votes)


def read_claims(evidence: Evidence) -> list[str]:
    """What people claim after the reply, or told before it, with `FACT` where a question of fact is answered."""
    if evidence.reply.tool_calls or any(message.role == "tool" for message in evidence.request):
        return []
    question, before = last_said(evidence.request), (*evidence.history, *evidence.request)
    after = _claimed_now(evidence)
    if not shows_code(evidence.reply.content, question) and _is_of_fact(before, evidence.reply.content):
        return [*after, FACT]
    if after:
        return after
    told = [text for message in before if message.role == "user" for text in told_in(message.content, question)]
    reactions = list(_reactions(before))
    claimed = told or [claim for one in reactions for claim in _claims(*one)]
    # Words of praise may be for what was claimed before in another language; a mere sign counts in every language.
    has_words = any(map(str.isalpha, "".join(said_after(evidence))))
    return claimed or ([UNREAD] if has_words and any(map(_is_unread, reactions)) else [])


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


def _claimed_now(evidence: Evidence) -> list[str]:
    """What the reaction claims; nothing where it is kind as a whole: then statements are about what comes next."""
    request, reply, said = last_said(evidence.request), evidence.reply.content, said_after(evidence)
    is_kind = (sign_of(read_findings(request, reply, said)) or 0) > 0
    return [] if is_kind else _claims(request, reply, said)


def _is_unread(reaction: tuple[str, str, list[str]]) -> bool:
    return any(finding.rule == UNREAD for finding in read_findings(*reaction))


def _claims(request: str, reply: str, reaction: Sequence[str]) -> list[str]:
    findings = read_findings(request, reply, reaction)
    return list(dict.fromkeys(finding.words for finding in findings if finding.claim))


def _reactions(messages: Sequence[Message]) -> Iterator[tuple[str, str, list[str]]]:
    """Each reply of a conversation, with its request and the reactions to it."""
    for place, message in enumerate(messages):
        if message.role == "assistant":
            said = takewhile(lambda following: following.role == "user", messages[place + 1 :])
            yield last_said(messages[:place]), message.content, [one.content for one in said]
