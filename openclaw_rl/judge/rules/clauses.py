"""One clause of a reaction -> what it says about the reply. The rules stand in a table; the first that applies decides.

Requests are tried before questions, and questions before statements. So "wrong" counts only where it is said of the
reply, and not in "write a function that raises an error when the input is wrong".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from openclaw_rl.judge.rules.directives import (
    Directive,
    correction,
    instruction,
    is_turned,
    quoted,
    read_directive,
    says_more_than_style,
    speaks_of_style,
    style_hint,
)
from openclaw_rl.judge.rules.findings import Finding, Reading
from openclaw_rl.judge.rules.language import PhraseFound
from openclaw_rl.judge.rules.similarity import content

NEGATIVE = frozenset({"wrong", "poor", "failure", "redo", "doubt", "rude", "sarcasm"})
REMARK = "remark on the reply"
MOVES_ON = "moves on"
UNTELLING = frozenset({"doubt", "failure"})
"""A complaint of this kind makes no hint: the words around it do not say what is wanted."""
POSITIVE = frozenset({"thanks", "praise", "accept"})

SHORT_REQUEST = 4
"""Words. The hint of so short a request ("shorter please") is the style's own text."""

SHORT_QUESTION = 2
"""Words. A question as short as this that names a style ("simpler?") is a request."""

ClauseRule = Callable[[Reading], list[Finding] | None]


def read_clause(reading: Reading) -> tuple[list[Finding], bool]:
    """The findings of a clause, and whether it is a request, a question or a report rather than an interjection."""
    for rule in INTERJECTIONS:
        if (found := rule(reading)) is not None:
            return found, False
    for rule in ACTS:
        if (found := rule(reading)) is not None:
            return found, True
    return statement(reading), len(reading.low.split()) > 3


def declines(reading: Reading) -> list[Finding] | None:
    """A "no thanks" that declines an offer is a good sign."""
    if not reading.has("no_thanks"):
        return None
    invited = reading.scene.questions or reading.scene.offered
    return [Finding("declines", 1 if invited else 0, reading.low, strength=0)]


def says_no(reading: Reading) -> list[Finding] | None:
    """A "no" at the start of a message is a complaint, unless it answers a question of the reply."""
    said = reading.clause.language.grammar["no"].match(reading.low)
    if not (said and reading.opening and said.end() == len(reading.low)) or "shield" in reading.at(0):
        return None
    if reading.scene.offered:  # the offer is declined, unless a correction follows
        return [Finding("no", 1 if reading.alone else 0, reading.low, strength=0)]
    return [] if reading.scene.asked else [Finding("no", -1, reading.low)]


def is_amazed(reading: Reading) -> list[Finding] | None:
    """A "really?" doubts the reply; a "what?" asks back."""
    if not reading.has("what"):
        return None
    if reading.clause.asked:
        return [Finding("doubt", -1, reading.low)]
    return [Finding("asks back", 0, reading.low, strength=0)] if reading.alone and not reading.found else None


def mocks(reading: Reading) -> list[Finding] | None:
    """A bare "not" after praise makes it sarcasm."""
    return [Finding("sarcasm", -1, reading.low)] if reading.has("mocks") and not reading.opening else None


def is_a_phrase(reading: Reading) -> list[Finding] | None:
    """A clause that is one phrase; kind words need to fill only most of it."""
    if not reading.found or reading.found[0].start:
        return None
    first = reading.found[0]
    share = {"redo": math.inf, "thanks": 0.6, "praise": 0.6, "accept": 0.6, "retract": 0.6}.get(first.category, 1.0)
    return statement(reading) if first.end >= share * len(reading.low) else None


def asks_for_a_part(reading: Reading) -> list[Finding] | None:
    """A "where are the tests?" complains of a missing part, if the request named it or replies usually have it."""
    clause, grammar = reading.clause, reading.clause.language.grammar
    match = grammar["asks_for"].match(clause.low)
    if match:
        place = match.span(1)
    elif reading.asks_whole and (bare := grammar["parts"].fullmatch(clause.low)):
        place = bare.span()
    else:
        return None
    thing = clause.low[slice(*place)].strip()
    wanted = content(thing)
    if not grammar["parts"].match(thing) and not wanted & content(reading.scene.request):
        return None
    if wanted and wanted <= content(reading.scene.reply[:2000]):
        return None
    return [Finding("asks for what is missing", -1, clause.low, quoted(clause, reading.words, clause.text))]


def requests(reading: Reading) -> list[Finding] | None:
    """A request for a change is a complaint; one for the next task is not."""
    clause, scene = reading.clause, reading.scene
    fragments = not (reading.attached or scene.asked or clause.asked)
    directive = read_directive(clause, known=scene.known, fragments=fragments)
    at_head = reading.at(directive.start)
    if "shield" in at_head or (directive.fragment and at_head & (NEGATIVE | POSITIVE) - {"redo"}):
        return None
    if directive.bold and (reading.found or scene.asked or reading.asks_whole):
        return None
    if directive.act == "none" and clause.asked and len(clause.low.split()) <= SHORT_QUESTION:
        if not speaks_of_style(clause.language, clause.low):
            return None
        hint = style_hint(clause.language, clause.low) or quoted(clause, reading.words)
        return [Finding("change request", -1, clause.low, hint)]
    if directive.act == "change" and any(
        f.category == "redo" and f.start <= directive.start and f.end == len(clause.low) for f in reading.found
    ):
        return [Finding("redo", -1, clause.low)]
    if directive.act == "change":
        hint = instruction(clause, reading.words, directive)
        is_short = len(clause.low.split()) <= SHORT_REQUEST and not is_turned(clause, directive)
        if is_short and not says_more_than_style(clause, directive):
            hint = style_hint(clause.language, clause.low) or hint
        return [Finding("change request" if hint else "redo", -1, clause.low, hint)]
    if directive.act == "task":
        again = next((f for f in reading.found if f.category == "redo"), None)
        if again:
            return [Finding("redo", -1, again.text)]
        before = [f for f in reading.found if f.start < directive.start]
        return [*from_phrases(reading, before), moves_on(reading)]
    return None


def supposes(reading: Reading) -> list[Finding] | None:
    """An "if it does not work" reports nothing."""
    whole_question = reading.asks_whole and reading.clause.first
    return [] if reading.clause.language.grammar["conditional"].match(reading.low) and not whole_question else None


def is_puzzled(reading: Reading) -> list[Finding] | None:
    """A bare "why?" may be doubt or interest."""
    return [Finding("asks back", 0, reading.low, strength=0)] if reading.has("puzzled") else None


def asks(reading: Reading) -> list[Finding] | None:
    """A question moves on, unless it doubts the reply or asks why it is as it is."""
    bare = reading.asks_whole and not reading.found
    if not (bare or reading.has("question")):
        return None
    hint = correction(reading.clause, reading.words, asked=True)
    if hint:
        return [Finding("questions the reply", -1, reading.low, hint)]
    about_reply = reading.has("about_reply") and not reading.has("own")
    for phrase in reading.found:
        if phrase.category in ("doubt", "rude", "sarcasm") or (phrase.category in NEGATIVE and about_reply):
            return [Finding("doubt", -1, phrase.text)]
    thanks = [Finding("thanks", 1, f.text) for f in reading.found if f.category == "thanks"]
    return [*thanks, moves_on(reading)]


def says_please(reading: Reading) -> list[Finding] | None:
    """A "grams please" asks for what the reply does not have."""
    if reading.found or reading.scene.asked or not reading.has("please") or len(reading.low.split()) < 2:
        return None
    grammar = reading.clause.language.grammar
    if grammar["next"].search(reading.low):
        return [moves_on(reading)]
    opened = grammar["openers"].match(reading.low)
    said_no = opened is not None and grammar["flips"].search(opened.group()) is not None
    wanted = Directive("change", opened.end() if opened else 0, fragment=not opened, obliged=said_no)
    own_words = instruction(reading.clause, reading.words, wanted)
    hint = style_hint(reading.clause.language, reading.low) or own_words
    return [Finding("change request", -1, reading.low, hint)]


INTERJECTIONS: tuple[ClauseRule, ...] = (declines, says_no, is_amazed, mocks, is_a_phrase)
ACTS: tuple[ClauseRule, ...] = (asks_for_a_part, requests, supposes, is_puzzled, asks, says_please)


def statement(reading: Reading) -> list[Finding]:
    """Praise, complaints, corrections; else a wish or a remark."""
    findings = from_phrases(reading, reading.found)
    negative = any(f.sign < 0 for f in findings)
    if reading.clause.language.grammar["next"].match(reading.low) and not negative:
        return [*findings, moves_on(reading)]
    findings = _conceded(reading, findings)
    if not findings and (_denies(reading) or _contradicts(reading)):
        return [Finding("correction", -1, reading.low, quoted(reading.clause, reading.words, reading.clause.sentence))]
    shielded = bool(reading.found) and all(f.category == "shield" for f in reading.found)
    vague = shielded or reading.bare or (reading.about_self and not negative)
    hint = correction(reading.clause, reading.words, bare=vague)
    if not findings and hint is None and reading.has("wish"):
        return [
            Finding("correction", -1, reading.low, quoted(reading.clause, reading.words))
            if reading.complained
            else moves_on(reading)
        ]
    complains = any(f.sign < 0 and f.rule not in UNTELLING for f in findings)
    if hint is None and complains and reading.telling and not reading.about_self:
        hint = quoted(reading.clause, reading.words)
    if hint and (negative or not any(f.sign > 0 and f.strength for f in findings)):
        findings.append(Finding("correction", -1, reading.low, hint))
    told = [f for f in findings if f.rule != "neutral"]
    open_question = reading.scene.asked or (
        reading.scene.questions and not reading.scene.offered and not reading.has("tells")
    )
    if told or open_question or (findings and not _goes_on(reading)):
        return findings
    return findings + remark(reading)


def _conceded(reading: Reading, findings: list[Finding]) -> list[Finding]:
    """Praise after "not what I expected, but" takes the complaint back."""
    conceded = reading.clause.language.grammar["concedes"].search(reading.clause.sentence.lower())
    if not (conceded and reading.has("turns")) or any(f.sign < 0 for f in findings):
        return findings
    return [replace(f, strength=2) if f.sign > 0 and f.strength else f for f in findings]


def _denies(reading: Reading) -> bool:
    """Whether a "no" precedes, unless it declines an offer and the person says why."""
    return reading.denied and not (reading.scene.offered and (reading.has("own") or reading.has("speaker")))


def _contradicts(reading: Reading) -> bool:
    """Whether a clause like "not Java" contradicts the clause before it, or words of the reply."""
    if not reading.has("contrary"):
        return False
    return not reading.clause.first or bool(content(reading.low) & content(reading.scene.reply[:2000]))


def _goes_on(reading: Reading) -> bool:
    """Whether a statement follows a neutral word: "lol that is fantasy"."""
    first = reading.found[0]
    return not first.start and bool(reading.clause.language.grammar["tells"].match(reading.low[first.end :].lstrip()))


def remark(reading: Reading) -> list[Finding]:
    """A statement about the reply without praise, or about the person, mostly says what was wrong with the reply.

    It is a weak sign: beside a question or a task it is only their background.
    """
    if reading.has("constraint"):
        return [Finding("constraint", -1, reading.low, quoted(reading.clause, reading.words), strength=0)]
    tells = reading.has("tells") or (bool(reading.found) and _goes_on(reading))
    own = reading.has("own")
    if reading.weight([]) < (1 if tells or reading.words.ends_held(reading.low) else 2):
        return []
    of_reply = reading.has("remark") and (not own or " not " in reading.low)
    if not (of_reply or tells or content(reading.low) & content(reading.scene.known)):
        return []
    hint = (
        quoted(reading.clause, reading.words)
        if tells or own or reading.telling or (reading.complained and reading.has("states"))
        else ""
    )
    if any(
        f.category == "failure" for f in reading.scene.lexicon.find(reading.words.restore(reading.clause.rest).lower())
    ):
        hint = ""  # a message of a program, not a direction
    plain = of_reply and reading.has("turns") and not own
    return [Finding(REMARK, -1, reading.low, hint, strength=int(plain))]


def from_phrases(reading: Reading, phrases: list[PhraseFound]) -> list[Finding]:
    """The finding of each phrase. A negation before it reverses it; blame of somebody else does not count."""
    negation = reading.clause.language.grammar["negation"]
    hedged = any(phrase.category == "hedge" for phrase in phrases)
    findings: list[Finding] = []
    used_until = 0
    for phrase in phrases:
        negated = negation.search(reading.low[used_until : phrase.start]) is not None
        used_until = phrase.end
        match phrase.category:
            case "retract":
                findings.append(Finding("retraction", 1, phrase.text, strength=2))
            case "poor" if reading.about_self:
                continue
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
