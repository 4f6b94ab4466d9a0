"""A clause -> what it asks for (a change of the reply, the next task, or nothing), and the hint in it.

"make it shorter" is about the reply just given; "write me a poem" is the next task. The verb decides, with its object
and with words like `now` that lead to something new. A hint is the person's own words: no template puts a complaint as
a wish. Only common styles ("too long", "shorter") have a text of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from openclaw_rl.judge.rules.language import WIDE, Language
from openclaw_rl.judge.rules.wording import EDGES, Clause, Words

Act = Literal["change", "task", "none"]

MAX_INSTRUCTION = 300
"""Characters. Of a longer sentence only the clause is quoted."""
SHORT = 14
"""Characters. So short an instruction needs a sentence around it that says what it is about."""


@dataclass(frozen=True, slots=True)
class Directive:
    """What a clause asks for, and where in it the request starts."""

    act: Act
    start: int = 0
    fragment: bool = False
    """It has no verb ("in French")."""
    obliged: bool = False
    """Only the words before it ("next time", "always") show that something is asked for."""
    bold: bool = False
    """Its verb is in no list, so any known phrase in the clause goes first."""

    @property
    def verbless(self) -> bool:
        return self.fragment or self.obliged


def read_directive(clause: Clause, *, known: str, fragments: bool) -> Directive:
    """What the clause asks for. `known` is the request and the reply in lower case; `fragments` allows "in French"."""
    grammar, low = clause.language.grammar, clause.low
    opened = grammar["openers"].match(low)
    start = opened.end() if opened else 0
    head, opener = low[start:], low[:start]
    if not head:
        return Directive("none")
    leads_over = bool(grammar["next"].search(opener))
    polite = bool(grammar["polite"].search(opener))
    styled = speaks_of_style(clause.language, low)
    standing = bool(grammar["standing"].search(clause.sentence.lower()))
    if grammar["prohibit"].match(head):
        return Directive("change", start)
    if grammar["noun"].match(head) and not polite:
        return Directive("none")
    if grammar["revise"].match(head):
        if leads_over and not styled and not grammar["again"].search(head):
            return Directive("task", start)
        return Directive("change", start)
    has_verb = bool(grammar["task"].match(head) or grammar["reshape"].match(head))
    if styled and (polite or has_verb):
        return Directive("change", start, obliged=not has_verb and not grammar["verb_follows"].search(opener))
    if standing and has_verb:
        return Directive("change", start)
    if grammar["recast"].match(head) and not leads_over:
        return Directive("change", start)
    if grammar["reshape"].match(head):
        about = grammar["pronoun"].search(head) or grammar["again"].search(head)
        if not leads_over and (about or _speaks_of(head, known, clause.language)):
            return Directive("change", start)
        return Directive("task", start)
    if grammar["task"].match(head):
        restricted = grammar["restricts"].search(opener) and grammar["definite"].search(head) and not leads_over
        return Directive("change" if restricted or grammar["again"].search(head) else "task", start)
    if grammar["obliges"].search(opener) and not leads_over:
        return Directive("change", start, obliged=not grammar["verb_follows"].search(opener))
    if polite and (clause.asked or grammar["pronoun"].search(head)):
        return Directive("change" if grammar["pronoun"].search(head) else "task", start)
    if not leads_over and grammar["imperative"].match(head):
        return Directive("change", start, bold=True)
    if fragments and len(head) <= 60 and grammar["fragment"].match(head):
        return Directive("change", start, fragment=True)
    return Directive("none")


def _speaks_of(head: str, known: str, language: Language) -> bool:
    """Whether the clause names something of the request or the reply: "the second column"."""
    definite = language.grammar["definite"].search(head)
    return definite is not None and any(len(w) > 3 and w in known for w in head[definite.end() :].split())


def speaks_of_style(language: Language, low: str) -> bool:
    """Whether the words name a style, whatever they say of it."""
    return any(style.fault.search(low) or style.wish.search(low) for style in language.styles)


def style_hint(language: Language, low: str) -> str | None:
    """The instruction for a style that the words find fault with or ask for; None where they may mean the opposite.

    A fault behind a negation is none. A wish is one unless a word beside it may turn it round ("no shorter", "longer
    again"), or the words tell what is so already ("it got longer").
    """
    grammar = language.grammar
    for style in language.styles:
        fault, wish = style.fault.search(low), style.wish.search(low)
        if fault and not grammar["negation"].search(low[: fault.start()]):
            return style.hint
        around = f"{low[: wish.start()]} {low[wish.end() :]}" if wish else ""
        if wish and not grammar["reported"].search(low) and not grammar["flips"].search(around):
            return style.hint
    return None


def says_more_than_style(clause: Clause, directive: Directive) -> bool:
    """Whether a request in a language without spaces, where words cannot be counted, says more than a style."""
    low = clause.low[directive.start :]
    if not WIDE.search(low):
        return False
    found = (pattern for style in clause.language.styles for pattern in (style.fault, style.wish))
    pattern = next((pattern for pattern in found if pattern.search(low)), None)
    left = pattern.sub("", low) if pattern else low
    return len(clause.language.grammar["filler"].sub("", left)) > 1


def is_turned(clause: Clause, directive: Directive) -> bool:
    """Whether words like a request are none: a bare question, a threat, or what should not have been done."""
    grammar = clause.language.grammar
    wonders = clause.asked and clause.rest == clause.text and not grammar["invites"].search(clause.low)
    return wonders or grammar["turned"].search(clause.rest[directive.start :].lower()) is not None


def instruction(clause: Clause, words: Words, directive: Directive) -> str:
    """The request as a hint, in the person's own words; empty if it says nothing.

    Greeting, politeness and mood are left out of a request with a verb. Words without one are put as a wish only where
    something shows that they are: otherwise "again with the capitals" would become what it complains of.
    """
    grammar, start = clause.language.grammar, directive.start
    rest_low = clause.rest.lower()
    whole = clause.rest if len(rest_low) == len(clause.rest) <= MAX_INSTRUCTION else clause.text
    report = grammar["report_follows"].search(whole.lower(), start)
    whole = whole[: report.start()] if report else whole
    closers = grammar["closers"].search(whole.lower(), start)
    text = whole[start : closers.start() if closers else None].strip(EDGES)
    if not grammar["filler"].sub("", text.lower()).strip():
        return ""
    if is_turned(clause, directive):
        return quoted(clause, words)
    form = "sentence" if len(text) > SHORT else "short"
    if directive.verbless:
        wished = grammar["wished"].search(clause.low) or grammar["fragment_wish"].match(text.lower())
        around = f"{whole[:start]} {whole[start + len(text) :]}".lower()
        if not wished or grammar["flips"].search(around):
            return quoted(clause, words)
        form = "fragment" if grammar["adverbial"].match(text.lower()) else "wanted"
    if form in ("fragment", "short"):
        text = text[:1].lower() + text[1:]
    return phrase_as(clause.language, form, words.restore(text))


def correction(clause: Clause, words: Words, *, bare: bool = False, asked: bool = False) -> str | None:
    """The hint in a statement or a question that corrects the reply: a style's, or the words themselves; or None.

    A `bare` clause only judges ("that is so wrong"): its words would instruct nobody. A question (`asked`) names no
    style ("is it longer than that one?").
    """
    language, low = clause.language, clause.low
    if not asked and speaks_of_style(language, low):
        return style_hint(language, low) or quoted(clause, words)
    for one in language.corrections:
        if not (asked and one.plain) and not (bare and not one.bare) and one.pattern.search(low):
            return quoted(clause, words)
    return None


def quoted(clause: Clause, words: Words, text: str | None = None) -> str:
    """The words of a clause, or a `text` around it, as they were said: a quotation never says the opposite."""
    if text is None:
        text = clause.rest if len(clause.rest) <= MAX_INSTRUCTION else clause.text
    note = phrase_as(clause.language, "note", words.restore(text))
    return f"{note[:-1]}?" if clause.asked else note


def phrase_as(language: Language, key: str, text: str) -> str:
    """The text in one of the language's forms for hints, with a capital letter where it opens the hint."""
    text = text.strip(EDGES)
    form = language.replies[key]
    if form.startswith("{0}"):
        text = text[:1].upper() + text[1:]
    return form.replace("{0}", text)
