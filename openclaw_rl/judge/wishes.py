"""A hint -> its words for the form of an answer, if it is about nothing else: one sentence, no lists, in German.

Such a wish can be meant for whatever is asked next. "The capital is Canberra" cannot, nor can "run the tests first", so
that one word of another matter decides: the words of `form` in words/*.toml are what it may be about, those of `saying`
may stand around them, and beside both nothing may carry a meaning.
"""

from __future__ import annotations

from openclaw_rl.judge.language import load_languages
from openclaw_rl.judge.similarity import content


def form_words(hint: str) -> frozenset[str]:
    """Empty where a hint is, or may be, about the matter."""
    low = hint.lower()
    for language in load_languages()[1]:
        form, saying = language.grammar["form"], language.grammar["saying"]
        if (words := frozenset(form.findall(low))) and not content(saying.sub(" ", form.sub(" ", low))):
            return words
    return frozenset()
