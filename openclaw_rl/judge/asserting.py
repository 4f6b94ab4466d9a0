"""A clause of a reaction -> whether it says something about the matter of the reply: what is so, or is to be said.

    the matter   "spiders have 48 legs"   "mention the price"   "say yes"   "my lawyer says so"   "wrong!"
    not          "shorter please"   "in German"   "this is useless"   "thanks"   "are you sure?"   "I am a vegan"

Nobody here knows what is true, and false things are said in more ways than rules can know. Wishes about the *form*,
words of praise and blame, and what people say of themselves are short lists; whatever else is said of a reply is about
its matter. Where code is asked for and shown, what is so can be tried out, and nothing counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.judge.findings import Finding, Reading
from openclaw_rl.judge.language import load_languages
from openclaw_rl.judge.similarity import content
from openclaw_rl.judge.wishes import is_formal
from openclaw_rl.judge.wording import Clause, clean

MAX_REQUEST = 2000
"""Characters of a request that are looked at."""
MIN_ASKED, SAME_MATTER = 2, 0.6
"""Words of a question, and the part of them that a sentence about the same thing has."""


def is_claim(reading: Reading, findings: Sequence[Finding]) -> bool:
    """Whether a clause with these findings is one; what praises the reply, moves on or only asks says nothing of it."""
    of_themselves = reading.has("personal") and not content(reading.low) & content(reading.scene.known)
    if any(finding.sign > 0 for finding in findings) or reading.bare or of_themselves:
        return False
    only_asks = (reading.has("question") or reading.clause.asked) and not any(finding.hint for finding in findings)
    if only_asks or not reading.weight(reading.found):
        return False
    is_code = shows_code(reading.scene.reply, reading.scene.request)
    return not is_code and not is_formal(reading.low, reading.clause.language)


def is_denial(reading: Reading) -> bool:
    """Whether it says that the reply is not true, and no more."""
    denies, scene = reading.clause.language.grammar["untrue"].fullmatch(reading.low), reading.scene
    return denies is not None and not _matches("work", scene.request) and not shows_code(scene.reply, scene.request)


def asks_fact(request: str) -> bool:
    """Whether its answer is right or wrong, whatever anybody likes, and not about the person who asks."""
    return _matches("fact", request) and not _matches("work", request)


def shows_code(reply: str, request: str) -> bool:
    """Asked for, or all that the reply is: small models show some unasked, behind other words."""
    return "```" in reply if _matches("coding", request) else reply.lstrip().startswith("```")


def _matches(key: str, request: str) -> bool:
    low = " ".join(clean(request[:MAX_REQUEST]).lower().split())
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
