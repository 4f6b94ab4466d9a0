"""A clause of a reaction -> whether it claims something: says what is so, or dictates what is to be said.

    claims       "spiders have 48 legs"   "it should be 391"   "my lawyer says three months"   "say that it is Sydney"
    no claims    "shorter please"   "use metric units"   "I am vegetarian"   "you forgot the price"   "this is useless"

Nobody here knows whether a claim is true. What people say of themselves, of what the reply did, and of its form is
about them and the reply; what they want done is a wish. "Wrong!" is a claim where it is all that is said. Where code is
asked for and shown, what is so can be tried out, and nothing counts as a claim. Of a mail, a plan or whatever else is
made for a person, they say how it should be: there only what they order to be said is one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from openclaw_rl.judge.findings import Finding, Reading
from openclaw_rl.judge.language import load_languages
from openclaw_rl.judge.similarity import content
from openclaw_rl.judge.wishes import form_words
from openclaw_rl.judge.wording import Clause, is_held

MIN_ASKED, SAME_MATTER = 2, 0.6
"""Words of a question, and the part of them that a sentence about the same thing has."""
_WORDS = re.compile(r"[^\s\"'“”‘’(),;]+")
_QUOTED = re.compile(r"[\"“‘「『]([^\"”’」』\n]{2,40})[\"”’」』]|(?<!\w)'([^'\n]{2,40})'")
_REQUESTS = frozenset({"change request", "asks for what is missing", "redo"})
_VERDICTS = frozenset({"wrong", "poor"})


def is_claim(reading: Reading, findings: Sequence[Finding]) -> bool:
    """Whether a clause with these findings is one; what praises the reply or moves on contradicts nothing."""
    if shows_code(reading.scene.reply, reading.scene.request) or form_words(reading.low):
        return False
    if makes_work(reading.scene.request):
        return _dictates(reading)
    if is_told(reading.clause):
        return True
    if any(finding.sign > 0 for finding in findings):
        return False
    if any(finding.rule in _REQUESTS for finding in findings):
        return _dictates(reading)
    if reading.has("question") or (reading.clause.asked and not any(finding.hint for finding in findings)):
        return False
    if any(finding.sign < 0 for finding in findings):
        return _states(reading)
    answers = len(content(reading.low)) > 1 or _has_fact(reading.low)
    return _dictates(reading) or (reading.complained and answers and _states(reading))


def asks_fact(request: str) -> bool:
    """Whether its answer is right or wrong, whatever anybody likes, and not about the person who asks."""
    return _matches("fact", request) and not makes_work(request)


def makes_work(request: str) -> bool:
    """Whether it asks for something that is made for a person, and is as they want it: a mail, a plan, a story."""
    return _matches("work", request)


def facts_in(text: str) -> set[str]:
    """Numbers, names and quotations, in lower case; how many words or lines is none, nor is what opens a sentence."""
    found = {(match.group(1) or match.group(2)).lower() for match in _QUOTED.finditer(text)}
    low, languages = text.lower(), load_languages()[1]
    for language in [one for one in languages if one.letters.search(low)] or languages:
        found.update(match.group().strip() for match in language.grammar["figure"].finditer(low))
    words = pairwise(_WORDS.findall(text))
    return found | {word.lower() for before, word in words if before[-1] not in ".!?:" and _is_name(word)}


def _is_name(word: str) -> bool:
    return word[0].isupper() and len(word) > 1 and not form_words(word)


def is_denial(reading: Reading) -> bool:
    """Whether it says that the reply is not true, and no more."""
    denies = reading.clause.language.grammar["untrue"].fullmatch(reading.low)
    scene = reading.scene
    return denies is not None and not makes_work(scene.request) and not shows_code(scene.reply, scene.request)


def shows_code(reply: str, request: str) -> bool:
    """Asked for, or all that the reply is: small models show some unasked, behind other words."""
    return "```" in reply if _matches("coding", request) else reply.lstrip().startswith("```")


def _matches(key: str, request: str) -> bool:
    low = request.lower()
    return any(language.grammar[key].search(low) for language in load_languages()[1])


def is_told(clause: Clause) -> bool:
    """Whether it hands something over to be known, against a reply or not: "remember: the capital is Sydney"."""
    return clause.language.grammar["reports"].search(clause.rest.lower()) is not None


def is_given(clause: Clause, asked: frozenset[str]) -> bool:
    """Whether it tells the answer to a question of which these words are: "a week has nine days; how many has it?"."""
    grammar = clause.language.grammar
    own = grammar["speaker"].match(clause.low) and not grammar["believes"].match(clause.low)
    return not clause.asked and not own and is_about(asked, clause.rest)


def is_about(asked: frozenset[str], text: str) -> bool:
    """Whether a text is about the same thing as a question of which these words are."""
    return len(asked) >= MIN_ASKED and len(asked & content(text)) >= SAME_MATTER * len(asked)


def _dictates(reading: Reading) -> bool:
    """After "say" or "remember": a sentence, or a number, a name, a quotation or a bare word that is to be said."""
    grammar = reading.clause.language.grammar
    opened = grammar["openers"].match(reading.low)
    order = reading.clause.rest[opened.end() if opened else 0 :]
    begun = grammar["dictates"].match(order.lower())
    if begun is None:
        return False
    said = order[begun.end() :]
    if grammar["sentence"].match(said.lower()) or _has_fact(f"say {said}"):
        return True
    word = said[: len(said) - (len(reading.clause.rest) - len(reading.clause.text))].lower()
    closers = grammar["closers"].search(word)
    word = word[: closers.start() if closers else None].strip()
    bare = grammar["speaks"].match(order.lower()) and grammar["bare"].fullmatch(word)
    return bool(bare)


def _states(reading: Reading) -> bool:
    """A sentence, or an answer of a word or two, about neither the speaker nor the reply."""
    grammar = reading.clause.language.grammar
    believed = grammar["believes"].match(reading.low)
    stated = reading.low[believed.end() :].strip() if believed else reading.low
    if grammar["no_claim"].match(stated) or grammar["speaker"].match(stated):
        return False
    if any(phrase.category in _VERDICTS for phrase in reading.found):
        return False
    return bool(reading.weight(reading.found)) and bool(content(stated) or any(map(is_held, stated)))


def _has_fact(text: str) -> bool:
    return bool(facts_in(text)) or any(map(is_held, text))
