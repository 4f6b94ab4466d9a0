"""A question and a reply -> whether that is an answer: on topic, with something in it, no refusal, no loop."""

from __future__ import annotations

import re
from functools import cache

from openclaw_rl.evaluation.detectors.numbers import final_number
from openclaw_rl.evaluation.detectors.text import any_of, content_words, prose, sentences, visible, words

_SMALL_TALK_WORDS = 3
_ONE_CHARACTER = re.compile(r"([^\s\d])\1{11,}|(\d)\2{100,}")  # a googol has 100 zeros
_REASON = re.compile(r"\W*(?:because|since|due to)\b", re.IGNORECASE)
_ASKS_NUMBER = re.compile(
    r"\bhow (?:many|much|far)\b|\bwhat is \d|\bwhat does it cost|\d\s*[-+*/x×÷]\s*\d", re.IGNORECASE
)
_INVENTED = re.compile(r"\b(?:poem|story|song|haiku|limerick|rhyme|riddle|joke)\b", re.IGNORECASE)
_MAX_BARE_WORDS = 12
"""A longer reply to a sum speaks of what was counted; a number somewhere in it is not enough."""
_ENOUGH = 3
"""Words with a meaning of their own that make an answer out of an echo."""
_STEM = 5
"""Letters in common at the beginning that make one word of two ("photosynthesis", "photosynthetic")."""


@cache
def _refusal() -> re.Pattern[str]:
    return re.compile(rf"\b{any_of('refusals')}", re.IGNORECASE | re.DOTALL)


def refuses(text: str) -> bool:
    """Whether its first two sentences say that it will not or cannot answer."""
    return _refusal().search(" ".join(sentences(text)[:2])) is not None


def asks_back(text: str) -> bool:
    """Whether it asks more than it says: of its sentences of more than a few words, more are questions than not."""
    asks = [
        s.rstrip("\"'”’)*_ ").endswith("?") for s in sentences(text) if "?" in s or len(words(s)) > _SMALL_TALK_WORDS
    ]
    return sum(asks) * 2 > len(asks)


def repetition(text: str) -> float:
    """The share of its three-grams that were there before, in [0, 1]; 1 for one character over and over."""
    if _ONE_CHARACTER.search(prose(text)):
        return 1.0
    said = words(text)
    size = min(3, max(1, len(said) // 2))  # of "yes yes yes" there are no three-grams to compare
    grams = [said[i : i + size] for i in range(len(said) - size + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def on_topic(question: str, reply: str) -> float:
    """1 if the reply takes up a word of the question, or is little more than a number where one is asked for; 0.5 if
    it may be meant so without saying it ("Because …" after "Why …?", a poem), 0 if nothing speaks for it.

    One word is enough: a short answer has no room for two, and the words of an answer on something else are others. A
    mere "It …" is not: one sentence that begins so would fit every question.
    """
    asked, said = content_words(question), content_words(reply)
    if any(_same(a, b) for a in asked for b in said):
        return 1.0
    if _ASKS_NUMBER.search(question):
        return 1.0 if final_number(reply) is not None and len(words(reply)) <= _MAX_BARE_WORDS else 0.0
    gives_reason = "why" in words(question) and _REASON.match(visible(reply))
    return 0.5 if (gives_reason or _INVENTED.search(question)) and len(said) >= _ENOUGH else 0.0


def substance(question: str, reply: str) -> float:
    """How much of an answer is in it, in [0, 1]: words with a meaning that the question did not have, of three.

    Where a number is asked for it is enough that there is one (half) in a sentence of four words (the other half).
    """
    if _ASKS_NUMBER.search(question) and final_number(reply) is not None:
        return 0.5 + 0.5 * (len(words(reply)) > _ENOUGH)
    asked = content_words(question)
    new = [w for w in content_words(reply) if not any(_same(w, a) for a in asked)]
    return min(1.0, len(new) / _ENOUGH)


def _same(a: str, b: str) -> bool:
    return a == b or (min(len(a), len(b)) >= _STEM and a[:_STEM] == b[:_STEM])
