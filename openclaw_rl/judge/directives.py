"""A clause -> what it wants of the assistant: a change of the reply, the next task, or nothing; and its instruction.

"make it shorter" is about the reply just given and says what was missing from it; "write me a poem" is the next task,
and moving on is a good sign. What decides is the verb, what it is applied to, and whether words like `now` lead over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from openclaw_rl.judge.language import WIDE, Language
from openclaw_rl.judge.wording import EDGES, Clause, Words

Act = Literal["change", "task", "none"]

MAX_INSTRUCTION = 300
"""Characters; a longer sentence is cut to its clause."""
SHORT = 14
"""Characters; so short an instruction is put into a sentence, which says what it is about."""


@dataclass(frozen=True, slots=True)
class Directive:
    """What a clause asks for, and from where in it the request itself starts."""

    act: Act
    start: int = 0
    fragment: bool = False
    """Whether it has no verb of its own ("in French")."""
    bold: bool = False
    """Whether its verb is not one of the lists, so that any phrase that is known goes before."""


def read_directive(clause: Clause, *, known: str, fragments: bool) -> Directive:
    """`known` is the request and the reply in lower case; `fragments`: whether "in French" alone may be a request."""
    grammar, low = clause.language.grammar, clause.low
    opened = grammar["openers"].match(low)
    start = opened.end() if opened else 0
    head, opener = low[start:], low[:start]
    if not head:
        return Directive("none")
    leads_over = bool(grammar["next"].search(opener))
    polite = bool(grammar["polite"].search(opener))
    styled = style_hint(clause.language, low) is not None
    standing = bool(grammar["standing"].search(clause.sentence.lower()))
    if grammar["prohibit"].match(head):
        return Directive("change", start)
    if grammar["noun"].match(head) and not polite:
        return Directive("none")
    if grammar["revise"].match(head):
        if leads_over and not styled and not grammar["again"].search(head):
            return Directive("task", start)
        return Directive("change", start)
    if styled and (polite or grammar["task"].match(head) or grammar["reshape"].match(head)):
        return Directive("change", start)
    if standing and (grammar["task"].match(head) or grammar["reshape"].match(head)):
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
        return Directive("change", start)
    if polite and (clause.asked or grammar["pronoun"].search(head)):
        return Directive("change" if grammar["pronoun"].search(head) else "task", start)
    if not leads_over and grammar["imperative"].match(head):
        return Directive("change", start, bold=True)
    if fragments and len(head) <= 60 and grammar["fragment"].match(head):
        return Directive("change", start, fragment=True)
    return Directive("none")


def _speaks_of(head: str, known: str, language: Language) -> bool:
    """Whether a definite object of the clause stands in the request or the reply."""
    definite = language.grammar["definite"].search(head)
    return definite is not None and any(len(w) > 3 and w in known for w in head[definite.end() :].split())


def style_hint(language: Language, low: str) -> str | None:
    """The instruction of the first style rule (those with a fixed text) that the words meet."""
    for rule in language.hints:
        if "{" not in rule.template and rule.pattern.search(low):
            return rule.template
    return None


def says_more_than_style(clause: Clause, directive: Directive) -> bool:
    """Of a language without spaces, where words can not be counted: whether a request has more in it than a style."""
    low = clause.low[directive.start :]
    if not WIDE.search(low):
        return False
    rule = next((r for r in clause.language.hints if "{" not in r.template and r.pattern.search(low)), None)
    left = rule.pattern.sub("", low) if rule else low
    return len(clause.language.grammar["filler"].sub("", left)) > 1


def instruction(clause: Clause, words: Words, directive: Directive) -> str:
    """The request as an instruction: the user's own words without greeting, politeness and mood; empty if bare."""
    grammar, start = clause.language.grammar, directive.start
    rest_low = clause.rest.lower()
    text = clause.rest if len(rest_low) == len(clause.rest) <= MAX_INSTRUCTION else clause.text
    closers = grammar["closers"].search(text.lower(), start)
    text = text[start : closers.start() if closers else None].strip(EDGES)
    if not grammar["filler"].sub("", text.lower()).strip():
        return ""
    form = "sentence" if len(text) > SHORT else "short"
    if directive.fragment:
        form = "fragment" if grammar["adverbial"].match(text.lower()) else "wanted"
    if form in ("fragment", "short"):
        text = text[:1].lower() + text[1:]
    return phrase_as(clause.language, form, words.restore(text))


def correction(clause: Clause, words: Words, *, bare: bool = False, asked: bool = False) -> str | None:
    """The hint of the first rule that a statement or question meets; None when there is none.

    Of a `bare` clause, one that only judges ("that is so wrong"), the words themselves would instruct nobody; of a
    question (`asked`) only the rules that are not `plain` hold, and no style rule ("is it longer than that one?").
    """
    language = clause.language
    for rule in language.hints:
        if asked and (rule.plain or "{" not in rule.template):
            continue
        match = rule.pattern.search(clause.low)
        if not match:
            continue
        if "{" not in rule.template:
            return rule.template
        source = clause.rest
        wide = rule.pattern.search(source.lower()) if len(source) <= MAX_INSTRUCTION else None
        match, source = (wide, source) if wide else (match, clause.text)
        if rule.template == "{note}" and bare:
            continue
        if rule.template in ("{note}", "{clause}"):
            return phrase_as(language, "note", words.restore(_trimmed(language, source)))
        groups = [source[slice(*match.span(i))] for i in range(1, len(match.groups()) + 1) if match.group(i)]
        whole = _trimmed(language, source[slice(*match.span())])
        first = _trimmed(language, groups[0]) if groups else whole
        if not first:
            continue
        return rule.template.replace("{1}", words.restore(first)).replace("{0}", words.restore(whole))
    return None


def phrase_as(language: Language, key: str, text: str) -> str:
    """The text in one of the language's forms for instructions, with a capital letter where it opens."""
    text = text.strip(EDGES)
    form = language.replies[key]
    if form.startswith("{0}"):
        text = text[:1].upper() + text[1:]
    return form.replace("{0}", text)


def _trimmed(language: Language, text: str) -> str:
    closers = language.grammar["closers"].search(text.lower())
    return text[: closers.start() if closers else None].strip(EDGES)
