"""What a clause or a hint is about: the matter of a reply (what is so, or is to be said), or only its form.

    the matter   "spiders have 48 legs"   "mention the price"   "say yes"   "my lawyer says so"   "wrong!"
    not          "shorter please"   "in German"   "this is useless"   "thanks"   "are you sure?"   "I am a vegan"

These rules do not know what is true, and false things are said in more ways than rules can know. So they know the
opposite: the form of an answer, praise and blame, and what people say of themselves are short lists; whatever else is
said of a reply is about its matter. Code that was asked for can be tried out, so nothing said of it is a claim.

A wish about the form can hold for whatever is asked next; "run the tests first" cannot. One word of another matter
decides: the words of `form` in words/*.toml are what such a wish may be about, the words of `saying` may stand around
them, and no other word may carry a meaning. A number has to count sentences or the like: "the short answer is 48" does
not. "It is cold" may be said of the sun.
"""

from __future__ import annotations

import re
from itertools import islice

from openclaw_rl.judge.rules.language import Language, load_languages
from openclaw_rl.judge.rules.similarity import content
from openclaw_rl.judge.rules.unknown import is_foreign
from openclaw_rl.judge.rules.wording import Clause, clean, is_held

_SENTENCE = re.compile(r"[^\s.!?。！？][^.!?。！？]*[.!?。！？]*")
_COMMA = re.compile(r"[,;，；(]")
_FOREIGN = re.compile(r"[^\W\d_a-z\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Letters of scripts that no list here covers."""
MAX_HEADS = 8
"""Commas of a sentence at which its part about the form may end."""


def form_words(hint: str) -> frozenset[str]:
    """The words of a hint for the form of an answer; none where the hint is, or may be, about the matter."""
    low = hint.lower()
    for language in load_languages()[1]:
        words = frozenset(language.grammar["form"].findall(low))
        if words and not says_more(low, language):
            return words
    return frozenset()


def says_more(low: str, language: Language) -> bool:
    """Whether a text has words beside those for the form."""
    form, saying, *others = (language.grammar[key] for key in ("form", "saying", "counted", "answering"))
    left = saying.sub(" ", form.sub(" ", low))
    if content(left) or _FOREIGN.search(left) or any(map(is_held, left)):
        return True
    return any(other.search(low) for other in others)


def form_part(hint: str) -> str:
    """The part of a hint that is about the form alone: whole sentences, or the beginning of one up to a comma."""
    return " ".join(part for sentence in _SENTENCE.findall(hint) if (part := _form_of(sentence)))


def _form_of(sentence: str) -> str:
    if form_words(sentence):
        return sentence
    commas = [match.start() for match in islice(_COMMA.finditer(sentence), MAX_HEADS)]
    heads = (sentence[:place].rstrip() for place in reversed(commas))
    return next((f"{head}." for head in heads if form_words(head)), "")


MAX_REQUEST = 2000
"""Characters of a request that are looked at."""
MIN_ASKED, SAME_MATTER = 2, 0.6
"""A question needs this many content words, and a text about the same thing has this part of them."""


def asks_fact(request: str) -> bool:
    """Whether the answer to a request is right or wrong, whatever anybody likes, and not about the person."""
    # "Was ist Schwerkraft?" has an English word for questions of fact.
    return _matches("fact", request) and not _matches("work", request) and not is_foreign(request)


def shows_code(reply: str, request: str) -> bool:
    """Whether a reply shows code that was asked for, or is all code. Small models add code that nobody asked for."""
    return "```" in reply if _matches("coding", request) else reply.lstrip().startswith("```")


def _matches(key: str, request: str) -> bool:
    low = " ".join(clean(request[:MAX_REQUEST]).lower().split())
    return any(language.grammar[key].search(low) for language in load_languages()[1])


def is_told(clause: Clause) -> bool:
    """Whether a clause tells something to remember: "remember: the capital is Sydney"."""
    return clause.language.grammar["reports"].search(clause.rest.lower()) is not None


def is_given(clause: Clause, asked: frozenset[str]) -> bool:
    """Whether a clause answers the question that has these words: "a week has nine days; how many has it?"."""
    grammar = clause.language.grammar
    own = grammar["speaker"].match(clause.low) and not grammar["believes"].match(clause.low)
    return not clause.asked and not own and is_about(asked, clause.rest)


def is_about(asked: frozenset[str], text: str) -> bool:
    """Whether a text is about the same thing as the question that has these words."""
    return len(asked) >= MIN_ASKED and len(asked & content(text)) >= SAME_MATTER * len(asked)
