"""Votes on the hint question -> the hints that a teacher may be given, the shortest first.

A hint is accepted when its vote says that there is a correction, when it is long enough to say something and short
enough to be an instruction, when no shorter accepted one says nearly the same, and when it tells nothing that could
not be known when the reply was written: what a tool returned because the reply called it. What the user said
afterwards is the lesson itself and may be in it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from openclaw_rl.types import Evidence, Message, Vote

MIN_CHARS = 11
"""Shorter hints ("No.", "Be better.") are nothing that a teacher could follow."""
MAX_CHARS = 1000
"""Longer hints are no instruction but the answer itself."""
NEAR_EQUAL = 0.75
"""Two hints say the same when they share this part of all their words, and differ in no number and no negation."""
VERBATIM_WORDS = 6
"""So many words in a row (of CJK characters twice as many) that only a tool result has were copied from it."""

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_CJK_CHARACTER = re.compile(rf"[{_CJK}]")
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+(?:['’][^\W_]+)*")
_IDENTIFIER = re.compile(r"[\w.:/@#$%+\\-]*\w", re.ASCII)
_IDENTIFIER_MARK = re.compile(r"\w[_./@\\]\w|::|--|\w-\w+-\w")
_NAME = re.compile(r"(?<=[\w,;:'\"’”(] )[\"'“‘(]*([A-Z][^\W\d_]*[a-z][^\W\d_]*)")
_CONTRACTION = re.compile(r"n['’]t\b")
_NEGATION = re.compile(r"no|not|never|without|avoid|stop|[不别勿没無无莫]")


def accept_hints(
    votes: Sequence[Vote], evidence: Evidence, *, max_candidates: int, min_chars: int = MIN_CHARS
) -> tuple[str, ...]:
    """At most `max_candidates` of the hints in these votes, the shortest first; other questions do not matter."""
    stripped = {vote.hint.strip() for vote in votes if vote.question == "hint" and vote.score == 1}
    proposed = sorted((h for h in stripped if min_chars <= len(h) <= MAX_CHARS), key=lambda hint: (len(hint), hint))
    results, known = _knowledge(evidence) if proposed else ("", "")
    accepted: list[str] = []
    for hint in proposed:
        if len(accepted) == max_candidates:
            break
        if not any(near_equal(hint, other) for other in accepted) and not _tells(hint, results, known):
            accepted.append(hint)
    return tuple(accepted)


def near_equal(first: str, second: str) -> bool:
    """Whether two hints say the same in nearly the same words, in whatever order and spelling."""
    a, b = _words(first), _words(second)
    if _negated(a) != _negated(b) or _numbers(a) != _numbers(b):
        return False
    return len(set(a) & set(b)) >= NEAR_EQUAL * len(set(a) | set(b))


def _knowledge(evidence: Evidence) -> tuple[str, str]:
    """What tools told after the reply; and what was known before it or said by the user."""
    results = [m for m in evidence.following if m.role != "user"]
    if not results:
        return "", ""
    own_words = [m for m in evidence.following if m.role == "user"]
    known = [*_texts((*evidence.history, *evidence.request, evidence.reply, *own_words))]
    known += [feedback.text for feedback in evidence.feedback]
    known += [f"{tool.name}\n{tool.description}\n{dict(tool.parameters)}" for tool in evidence.tools]
    return _fold("\n".join(_texts(results))), _fold("\n".join(known))


def _tells(hint: str, results: str, known: str) -> bool:
    """Whether the hint holds something that only the results have: a number, an identifier, a name, a long quote."""
    if not results:
        return False
    if any(_occurs(thing, results) and not _occurs(thing, known) for thing in _things(hint)):
        return True
    words = _words(hint)
    size = VERBATIM_WORDS * (2 if any(map(_CJK_CHARACTER.match, words)) else 1)
    if len(words) < size:
        return False
    results_run, known_run = _run(_words(results)), _run(_words(known))
    quotes = (_run(words[i : i + size]) for i in range(len(words) - size + 1))
    return any(quote in results_run and quote not in known_run for quote in quotes)


def _things(hint: str) -> Iterator[str]:
    """The pieces of a hint that nobody guesses: numbers of two digits or more, identifiers, paths, names."""
    plain = unicodedata.normalize("NFKC", hint)
    words = (word.strip(".:-+#") for word in _IDENTIFIER.findall(plain))
    yield from map(_fold, filter(_is_identifier, words))
    yield from map(_fold, _NAME.findall(plain))


def _is_identifier(word: str) -> bool:
    num_digits = sum(c.isdigit() for c in word)
    if num_digits:
        return len(word) > (1 if num_digits == len(word) else 2)
    inner_capital = any(a.islower() and b.isupper() for a, b in pairwise(word))
    return len(word) > 3 and (inner_capital or _IDENTIFIER_MARK.search(word) is not None)


def _occurs(thing: str, text: str) -> bool:
    """Whether it stands in the text as a whole: 42 is not in 1420."""
    return thing in text and re.search(rf"(?<!\w){re.escape(thing)}(?!\w)", text, re.ASCII) is not None


def _texts(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        yield from (message.content, message.reasoning)
        yield from (f"{call.name}\n{call.arguments}" for call in message.tool_calls)


def _negated(words: Sequence[str]) -> set[str]:
    """The words right behind a negation: "tabs, not spaces" and "spaces, not tabs" have all their words in common."""
    return {after for word, after in pairwise(words) if _NEGATION.fullmatch(word)}


def _numbers(words: Sequence[str]) -> set[str]:
    return {word for word in words if any(c.isdigit() for c in word)}


def _words(text: str) -> list[str]:
    return _WORD.findall(_CONTRACTION.sub(" not", _fold(text)))


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _run(words: Sequence[str]) -> str:
    return f" {' '.join(words)} "
