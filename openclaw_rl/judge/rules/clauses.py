"""One clause of a reaction -> the praise, the blame or the plain request in it. The first rule that applies decides.

Requests are tried before phrases. So "wrong" counts only where it is said of the reply, and not in "write a function
that raises an error when the input is wrong". Only requests that begin with a verb of revising, a prohibition, or a
form ("in French") are read: wishes in other words are for the heads, as is what is wanted instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from openclaw_rl.judge.rules.findings import Finding, Reading
from openclaw_rl.judge.rules.language import PhraseFound
from openclaw_rl.judge.rules.matter import form_words

NEGATIVE = frozenset({"wrong", "poor", "failure", "redo", "doubt", "rude", "sarcasm"})
MOVES_ON = "moves on"
POSITIVE = frozenset({"thanks", "praise", "accept"})
MAX_FRAGMENT = 60
"""Characters of a request without a verb."""

ClauseRule = Callable[[Reading], list[Finding] | None]


def read_clause(reading: Reading) -> tuple[list[Finding], bool]:
    """The findings of a clause, and whether it is a request or a report rather than an interjection."""
    for rule in (says_no, is_a_phrase):
        if (found := rule(reading)) is not None:
            return found, False
    if (found := requests(reading)) is not None:
        return found, True
    return from_phrases(reading, reading.found), len(reading.low.split()) > 3


def says_no(reading: Reading) -> list[Finding] | None:
    """A "no" at the start of a message is a complaint, unless it answers a question of the reply."""
    said = reading.clause.language.grammar["no"].match(reading.low)
    if not (said and reading.opening and said.end() == len(reading.low)) or "shield" in reading.at(0):
        return None
    return [] if reading.scene.asked or reading.scene.offered else [Finding("no", -1, reading.low)]


def is_a_phrase(reading: Reading) -> list[Finding] | None:
    """A clause that is one phrase; kind words need to fill only most of it."""
    if not reading.found or reading.found[0].start:
        return None
    first = reading.found[0]
    share = {"redo": math.inf, "thanks": 0.6, "praise": 0.6, "accept": 0.6, "retract": 0.6}.get(first.category, 1.0)
    return from_phrases(reading, reading.found) if first.end >= share * len(reading.low) else None


def requests(reading: Reading) -> list[Finding] | None:
    """A request for a change is a complaint; a question, or a request for the next task, is not."""
    clause, grammar, scene = reading.clause, reading.clause.language.grammar, reading.scene
    opened = grammar["openers"].match(clause.low)
    start = opened.end() if opened else 0
    head, opener = clause.low[start:], clause.low[:start]
    at_head = reading.at(start)
    leads_over = grammar["next"].search(opener) is not None
    if not head or "shield" in at_head:
        return None
    again = any(f.category == "redo" for f in reading.found)
    is_task, is_form = bool(grammar["task"].match(head)), bool(form_words(clause.low))
    revises = grammar["revise"].match(head) and not leads_over
    if grammar["prohibit"].match(head) or revises or (is_form and (is_task or leads_over or clause.asked)):
        return [Finding("redo" if again else "change request", -1, clause.low)]
    if is_task or (leads_over and not reading.found):
        before = [f for f in reading.found if f.start < start]
        return [Finding("redo", -1, clause.low)] if again else [*from_phrases(reading, before), moves_on(reading)]
    is_told = any(f.category in NEGATIVE | POSITIVE for f in reading.found)
    if len(head) <= MAX_FRAGMENT and grammar["fragment"].match(head) and not (is_told or clause.asked):
        return None if reading.attached or scene.asked else [Finding("change request", -1, clause.low)]
    return [moves_on(reading)] if clause.asked and clause.rest == clause.text and not reading.found else None


def from_phrases(reading: Reading, phrases: list[PhraseFound]) -> list[Finding]:
    """The finding of each phrase. A negation before it reverses it."""
    negation = reading.clause.language.grammar["negation"]
    hedged = any(phrase.category == "hedge" for phrase in phrases)
    findings: list[Finding] = []
    used_until = 0
    for phrase in phrases:
        negated = negation.search(reading.low[used_until : phrase.start]) is not None
        used_until = phrase.end
        match phrase.category:
            case "thanks" if reading.clause.language.grammar["no"].match(reading.low):
                findings.append(Finding("neutral", 0, phrase.text, strength=0))
            case "retract":
                findings.append(Finding("retraction", 1, phrase.text, strength=2))
            case "poor" | "wrong" | "failure" if negated:
                findings.append(Finding("praise", 1, phrase.text))
            case "praise" if negated:
                findings.append(Finding("wrong", -1, phrase.text))
            case category if category in NEGATIVE:
                findings.append(Finding(category, -1, phrase.text))
            case category if category in POSITIVE and not (hedged and category == "praise"):
                findings.append(Finding(category, 1, phrase.text))
            case "neutral" | "hedge":
                findings.append(Finding("neutral", 0, phrase.text, strength=0))
    return findings


def moves_on(reading: Reading) -> Finding:
    """The person goes on to the next thing: a weak good sign."""
    return Finding(MOVES_ON, 1, reading.low[:60], strength=0)
