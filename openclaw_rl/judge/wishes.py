"""A hint -> its words for the form of an answer, if it is about nothing else: one sentence, no lists, in German.

Such a wish can be meant for whatever is asked next. "The capital is Canberra" cannot, nor can "run the tests first", so
that one word of another matter decides: the words of `form` in words/*.toml are what it may be about, those of `saying`
may stand around them, and beside both nothing may carry a meaning. A number counts sentences or the like, or it is
what the answer says: "the short answer is 48"; and "it is cold" may be said of the sun.
"""

from __future__ import annotations

import re

from openclaw_rl.judge.language import Language, load_languages
from openclaw_rl.judge.similarity import content
from openclaw_rl.judge.wording import is_held

_SENTENCE = re.compile(r"[^\s.!?。！？][^.!?。！？]*[.!?。！？]*")
_COMMA = re.compile(r"[,;，；(]")


def form_words(hint: str) -> frozenset[str]:
    """Empty where a hint is, or may be, about the matter."""
    low = hint.lower()
    for language in load_languages()[1]:
        words = frozenset(language.grammar["form"].findall(low))
        if words and not _says_more(low, language):
            return words
    return frozenset()


def is_formal(low: str, language: Language) -> bool:
    """Whether a clause has no word for the matter: "shorter please", and "keep it like that" too."""
    return not _says_more(low, language)


def _says_more(low: str, language: Language) -> bool:
    form, saying, *others = (language.grammar[key] for key in ("form", "saying", "counted", "thing"))
    left = saying.sub(" ", form.sub(" ", low))
    return bool(content(left)) or any(map(is_held, left)) or any(other.search(low) for other in others)


def form_part(hint: str) -> str:
    """What of a hint is about the form alone: sentences, and of others what stands before a comma."""
    return " ".join(part for sentence in _SENTENCE.findall(hint) if (part := _form_of(sentence)))


def _form_of(sentence: str) -> str:
    if form_words(sentence):
        return sentence
    commas = [match.start() for match in _COMMA.finditer(sentence)]
    heads = (sentence[:place].rstrip() for place in reversed(commas))
    return next((f"{head}." for head in heads if form_words(head)), "")
