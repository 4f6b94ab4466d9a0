"""A hint -> its words for the form of an answer, if it is about nothing else: one sentence, no lists, in German.

Such a wish can be meant for whatever is asked next. "The capital is Canberra" cannot, nor can "run the tests first", so
that one word of another matter decides: the words of `form` in words/*.toml are what it may be about, those of `saying`
may stand around them, and beside both nothing may carry a meaning. A number counts sentences or the like, or it is
what the answer says: "the short answer is 48".
"""

from __future__ import annotations

import re

from openclaw_rl.judge.language import load_languages
from openclaw_rl.judge.similarity import content

_SENTENCE = re.compile(r"[^\s.!?。！？][^.!?。！？]*[.!?。！？]*")


def form_words(hint: str) -> frozenset[str]:
    """Empty where a hint is, or may be, about the matter."""
    low = hint.lower()
    for language in load_languages()[1]:
        form, saying, counted = (language.grammar[key] for key in ("form", "saying", "counted"))
        words = frozenset(form.findall(low))
        if words and not counted.search(low) and not content(saying.sub(" ", form.sub(" ", low))):
            return words
    return frozenset()


def form_part(hint: str) -> str:
    """The sentences of a hint that are about the form alone."""
    return " ".join(sentence for sentence in _SENTENCE.findall(hint) if form_words(sentence))
