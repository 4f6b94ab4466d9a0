"""What a person said after a reply -> findings, clause by clause and of the message as a whole.

Findings do not decide: `score_of` weighs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from openclaw_rl.judge.rules.clauses import MOVES_ON, NEGATIVE, read_clause
from openclaw_rl.judge.rules.findings import Finding, Reading, Scene
from openclaw_rl.judge.rules.language import load_languages, load_table
from openclaw_rl.judge.rules.matter import is_given, is_told, says_more
from openclaw_rl.judge.rules.similarity import asks_again, content
from openclaw_rl.judge.rules.wording import MAX_CLAUSE, Clause, Words, clean, read_words
from openclaw_rl.types.learning import Evidence, Score
from openclaw_rl.types.messages import Message

_LOUD_QUESTION = re.compile(r"\?\s*\?")
_TRACE = re.compile(
    r"Traceback \(most recent call last\)|^\s*(?:\w{1,60}\.){0,8}\w{0,60}(?:Error|Exception)\b(?::| in\b)"
    r"|^\s*at \S{1,200}\(.{0,200}:\d+\)|^(?:[Ee]rror|ERROR|[Ff]atal|FATAL)(?:\[\w+\]| \d+)?.{0,20}: "
    r"|^npm ERR!|\berror TS\d+:|^-?(?:ba|z|da|k|fi)?sh: "
    r"|^[\w./-]{1,80}: (?:command not found|.{0,200}No such file or directory|.{0,200}[Pp]ermission denied)",
    re.MULTILINE,
)
GOES_ALONG = frozenset({MOVES_ON, "accept"})
"""Findings of the good sign that say nothing of the reply: wishes in new words are often misread as these."""
UNREAD = "unknown language"
"""The finding that some of what was said is in a language that has no word list."""


def read_reaction(text: str, scene: Scene) -> list[Finding]:
    """All findings in one message of a person."""
    spoken = "\n".join(line for line in clean(text).split("\n") if not _TRACE.search(line))
    words = read_words(spoken, scene.lexicon, scene.languages)
    findings = [finding for rule in WHOLE if (finding := rule(text, words, scene))]
    for clause, found in _of_clauses(words, scene):
        findings += [*(_sarcasm(clause, scene) if clause.first else []), *found]
    if words.unread:
        findings.append(Finding(UNREAD, 0, strength=-1))
    if words.brings:
        findings.append(Finding("neutral", 0, "a text to work on", strength=0))
    if words.spoofed:
        # Words to the judge discredit the message: only plain complaints of it count.
        return [f for f in findings if f.rule in NEGATIVE - {"redo"} and f.strength]
    again = scene.request.split() == text.split() if words.unread else asks_again(scene.request, words.plain)
    if again and not any(f.sign < 0 and f.strength > 0 for f in findings):
        findings.append(Finding("rephrased request", -1))
    return findings


def last_said(messages: Sequence[Message]) -> str:
    """The last words of the user among some messages."""
    return next((m.content for m in reversed(messages) if m.role == "user"), "")


def said_after(evidence: Evidence) -> list[str]:
    """What people said after the reply, and about it."""
    return [m.content for m in evidence.following if m.role == "user"] + [f.text for f in evidence.feedback]


def read_findings(request: str, reply: str, said: Sequence[str]) -> list[Finding]:
    """The findings in everything that people said after a reply, in order."""
    scene = Scene(request, reply, *load_languages())
    return [finding for text in said if text.strip() for finding in read_reaction(text, scene)]


def score_of(findings: Sequence[Finding]) -> tuple[Score | None, str]:
    """The score: complaints before praise. Who merely goes along has said neither."""
    counted = counted_of(findings)
    goes_along = bool(counted) and all(f.sign > 0 and f.rule in GOES_ALONG for f in counted)
    return 0 if goes_along else sign_of(findings), "; ".join(dict.fromkeys(_named(f) for f in counted))


def sign_of(findings: Sequence[Finding]) -> Score | None:
    """How the reaction sounds: 1 also where the person merely goes along."""
    counted = counted_of(findings)
    return counted[0].sign if counted else None


def counted_of(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that decide, all of one sign. What came before a retraction does not count."""
    taken_back = max((i for i, f in enumerate(findings) if f.strength > 1), default=-1)
    counted = findings[max(taken_back, 0) :]
    if any(
        finding.rule == UNREAD for finding in findings
    ):  # nobody knows what else was said: only what is plain counts
        counted = [finding for finding in counted if finding.strength]
    for sign, strength in ((-1, 1), (1, 1), (1, 0), (-1, 0), (0, 0)):
        named = [f for f in counted if f.sign == sign and f.strength >= strength]
        if named:
            return named
    return []


def _named(finding: Finding) -> str:
    return f"{finding.rule}: {finding.words}" if finding.words else finding.rule


def told_in(text: str, question: str) -> list[str]:
    """What a message tells to remember, and its own answers to the question."""
    asked = frozenset[str]().union(*(content(c.low) for c in _clauses(question) if c.asked))
    return [clause.rest for clause in _clauses(text) if is_told(clause) or is_given(clause, asked)]


def _clauses(text: str) -> tuple[Clause, ...]:
    return read_words(clean(text), *load_languages()).clauses


def stated_in(text: str, request: str, reply: str) -> list[str]:
    """The clauses of a reaction that state something beside the form of the reply: no praise, question or next task."""
    scene = Scene(request, reply, *load_languages())
    clauses = _of_clauses(read_words(clean(text), scene.lexicon, scene.languages), scene)
    return [
        clause.rest
        for clause, found in clauses
        if not (clause.asked or any(f.sign > 0 for f in found)) and says_more(clause.low, clause.language)
    ]


def _of_clauses(words: Words, scene: Scene) -> Iterator[tuple[Clause, list[Finding]]]:
    attached = False
    for number, clause in enumerate(words.clauses):
        attached = attached and not clause.first
        reading = Reading(
            clause=clause,
            found=scene.lexicon.find(clause.low),
            scene=scene,
            opening=number == 0,
            attached=attached,
        )
        found, acted = read_clause(reading)
        attached = attached or acted
        yield clause, found


def _sarcasm(clause: Clause, scene: Scene) -> list[Finding]:
    """Mock praise shows only in the whole sentence: "great, another wrong answer"."""
    found = scene.lexicon.find(clause.rest[:MAX_CLAUSE].lower())
    return [Finding("sarcasm", -1, f.text) for f in found if f.category == "sarcasm"][:1]


def emoji(text: str, words: Words, scene: Scene) -> Finding | None:
    """Emoji decide where there are no words; some are never meant well."""
    signs = load_table("emoji")
    visible = words.plain if words.clauses else clean(text).lower()
    if not visible.isascii() and any(sign in visible for sign in signs["never_meant_well"]):
        return Finding("emoji", -1, "never meant well")
    if words.unread:  # a smile beside words that nobody read may be mere politeness
        visible = visible.translate(dict.fromkeys(map(ord, signs["polite"])))
    good, bad = (sum(map(visible.count, signs[kind])) if not visible.isascii() else 0 for kind in ("good", "bad"))
    good += len(_emoticon("good_text").findall(visible))
    bad += len(_emoticon("bad_text").findall(visible))
    if good == bad:
        return None
    return Finding("emoji", 1 if good > bad else -1, strength=0 if words.clauses else 1)


@cache
def _emoticon(kind: str) -> re.Pattern[str]:
    return re.compile(load_table("emoji")[kind])


def loud_question(text: str, words: Words, scene: Scene) -> Finding | None:
    """A "???" alone or after a word or two."""
    if _LOUD_QUESTION.search(words.plain) and len(words.plain.split()) <= 4:
        return Finding("doubt", -1, "??")
    return None


def pasted_error(text: str, words: Words, scene: Scene) -> Finding | None:
    """A pasted error is what the reply's code led to; a weak sign where the reply has no code."""
    return Finding("pasted error", -1, strength=int(scene.has_code)) if _TRACE.search(clean(text)) else None


WHOLE: tuple[Callable[[str, Words, Scene], Finding | None], ...] = (emoji, loud_question, pasted_error)
