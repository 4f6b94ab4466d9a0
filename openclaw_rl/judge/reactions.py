"""What a person said after a reply -> findings, clause by clause and of the message as a whole.

Findings do not decide: judge/rules.py weighs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from openclaw_rl.judge.asserting import is_claim, is_denial, is_given, is_told
from openclaw_rl.judge.clauses import NEGATIVE, REMARK, read_clause
from openclaw_rl.judge.directives import phrase_as
from openclaw_rl.judge.findings import Finding, Reading, Scene
from openclaw_rl.judge.language import Found, load_languages, load_table
from openclaw_rl.judge.similarity import asks_again, content, is_noise
from openclaw_rl.judge.wording import MAX_CLAUSE, Clause, Words, clean, read_words

_LOUD_QUESTION = re.compile(r"\?\s*\?")
_TRACE = re.compile(
    r"Traceback \(most recent call last\)|^\s*(?:\w{1,60}\.){0,8}\w{0,60}(?:Error|Exception)\b(?::| in\b)"
    r"|^\s*at \S{1,200}\(.{0,200}:\d+\)|^(?:[Ee]rror|ERROR|[Ff]atal|FATAL)(?:\[\w+\]| \d+)?.{0,20}: "
    r"|^npm ERR!|\berror TS\d+:|^-?(?:ba|z|da|k|fi)?sh: "
    r"|^[\w./-]{1,80}: (?:command not found|.{0,200}No such file or directory|.{0,200}[Pp]ermission denied)",
    re.MULTILINE,
)
MAX_REPHRASED = 300
"""Characters of a request that may stand in a hint as a whole."""


def read_reaction(text: str, scene: Scene) -> list[Finding]:
    """All findings in the words of a person; none at all when there is no sense in them."""
    spoken = "\n".join(line for line in clean(text).split("\n") if not _TRACE.search(line))
    words = read_words(spoken, scene.lexicon, scene.languages)
    findings = [finding for rule in WHOLE if (finding := rule(text, words, scene))]
    findings += _of_clauses(words, scene)
    if words.brings:
        findings.append(Finding("neutral", 0, "a text to work on", strength=0))
    if words.spoofed:
        # Who talks to the judge is not believed: only plain words against the reply are left of it.
        return [f for f in findings if f.rule in NEGATIVE - {"redo"} and f.strength]
    if not any(f.sign < 0 and f.strength for f in findings) and asks_again(scene.request, words.plain):
        findings.append(Finding("rephrased request", -1, hint=_rephrased(text, words, scene)))
    if scene.asked and _is_answer(words, findings, scene):
        findings.append(Finding("answers the question", 1))
    return findings


def told_in(text: str, question: str) -> list[str]:
    """What a message hands over to be known, and what it says of the very thing that is asked."""
    asked = frozenset[str]().union(*(content(c.low) for c in _clauses(question) if c.asked))
    return [clause.rest for clause in _clauses(text) if is_told(clause) or is_given(clause, asked)]


def _clauses(text: str) -> tuple[Clause, ...]:
    return read_words(clean(text), *load_languages()).clauses


def _is_answer(words: Words, findings: list[Finding], scene: Scene) -> bool:
    """Whether a message plainly answers: no complaint, no question back, not only "hm", no noise."""
    if any(f.sign < 0 or (f.sign and f.strength) or f.rule == "asks back" for f in findings):
        return False
    return any(
        not is_noise(clause.low) and not all_neutral(clause.low, scene.lexicon.find(clause.low))
        for clause in words.clauses
    )


def all_neutral(low: str, found: list[Found]) -> bool:
    """Whether a clause is nothing but neutral words ("hm", "lol")."""
    covered = sum(f.end - f.start for f in found if f.category == "neutral")
    return bool(found) and covered >= len(low.replace(" ", ""))


def _of_clauses(words: Words, scene: Scene) -> list[Finding]:
    findings: list[Finding] = []
    denials: list[bool] = []
    attached = denied = claims = False
    for number, clause in enumerate(words.clauses):
        if clause.first:
            attached = denied = claims = False
            findings += _sarcasm(clause, scene)
        reading = Reading(
            clause=clause,
            found=scene.lexicon.find(clause.low),
            words=words,
            scene=scene,
            opening=number == 0,
            attached=attached,
            denied=denied,
            complained=any(f.sign < 0 and (f.strength or f.rule == REMARK) for f in findings),
        )
        new, acted = read_clause(reading)
        if clause.first or not reading.has("contrary"):  # "not Java" goes on with what was said before it
            claims = is_claim(reading, new)
        if any(f.sign < 0 for f in new):
            denials.append(is_denial(reading))
        if claims:
            new = [replace(f, claim=True) for f in new] or [Finding("claim", 0, clause.low, strength=0, claim=True)]
        attached = attached or acted
        denied = any(f.rule == "no" for f in new) or (denied and not acted)
        findings += new
    if denials and all(denials):
        return [replace(f, claim=True) if f.sign < 0 else f for f in findings]
    return findings


def _sarcasm(clause: Clause, scene: Scene) -> list[Finding]:
    """Mock praise shows only in the whole sentence: "great, another wrong answer"."""
    found = scene.lexicon.find(clause.rest[:MAX_CLAUSE].lower())
    return [Finding("sarcasm", -1, f.text) for f in found if f.category == "sarcasm"][:1]


def emoji(text: str, words: Words, scene: Scene) -> Finding | None:
    """Signs decide alone where there are no words; some are never meant well."""
    signs = load_table("emoji")
    visible = words.plain if words.clauses else clean(text).lower()
    if not visible.isascii() and any(sign in visible for sign in signs["never_meant_well"]):
        return Finding("emoji", -1, "never meant well")
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
    """What came of the code that the reply gave; a weak sign where it gave none."""
    return Finding("pasted error", -1, strength=int(scene.has_code)) if _TRACE.search(clean(text)) else None


WHOLE: tuple[Callable[[str, Words, Scene], Finding | None], ...] = (emoji, loud_question, pasted_error)


def _rephrased(text: str, words: Words, scene: Scene) -> str:
    """What the second asking adds is what the first answer missed; a mere repetition tells nothing."""
    added = content(words.plain) - content(scene.request)
    if len(added) < 2 or not words.clauses or len(text) > MAX_REPHRASED:
        return ""
    return phrase_as(words.clauses[0].language, "rephrased", " ".join(clean(text).split()))
