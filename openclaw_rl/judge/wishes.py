"""A hint -> its words for the form of an answer, if it is about nothing else: one sentence, no lists, in German.

Such a wish can be meant for whatever is asked next. "The capital is Canberra" cannot, nor can "run the tests first", so
that one word of another matter decides: the words of `form` in words/*.toml are what it may be about, those of `saying`
may stand around them, and beside both nothing may carry a meaning. A number counts sentences or the like, or it is
what the answer says: "the short answer is 48"; and "it is cold" may be said of the sun.
"""

from __future__ import annotations

import re
from itertools import islice

from openclaw_rl.judge.language import Language, load_languages
from openclaw_rl.judge.similarity import content
from openclaw_rl.judge.wording import is_held

_SENTENCE = re.compile(r"[^\s.!?。！？][^.!?。！？]*[.!?。！？]*")
_COMMA = re.compile(r"[,;，；(]")
_FOREIGN = re.compile(r"[^\W\d_a-z\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Letters of which no list here knows a word."""
MAX_HEADS = 8
"""Places in a sentence before which its part about the form may end."""


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
    form, saying, *others = (language.grammar[key] for key in ("form", "saying", "counted", "answering"))
    left = saying.sub(" ", form.sub(" ", low))
    if content(left) or _FOREIGN.search(left) or any(map(is_held, left)):
        return True
    return any(other.search(low) for other in others)


def form_part(hint: str) -> str:
    """What of a hint is about the form alone: sentences, and of others what stands before a comma."""
    return " ".join(part for sentence in _SENTENCE.findall(hint) if (part := _form_of(sentence)))


def _form_of(sentence: str) -> str:
    if form_words(sentence):
        return sentence
    commas = [match.start() for match in islice(_COMMA.finditer(sentence), MAX_HEADS)]
    heads = (sentence[:place].rstrip() for place in reversed(commas))
    return next((f"{head}." for head in heads if form_words(head)), "")
