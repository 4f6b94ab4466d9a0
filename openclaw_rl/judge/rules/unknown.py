"""A message -> what of it is in a language that has a word list; the rest is left out, never read as another language.

Script decides first: letters that no list knows. Among Latin letters a sentence is English unless it has more small
words of other languages (words/others.toml) than words of the English list, or, if it is long, next to none of these.
A sentence too short to tell goes with the others of its message: "ok", names, numbers and code alone stay as they are.
A message of a few words is English if one of them shows it, or if all are known or near it (words/short.toml).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Literal

from openclaw_rl.judge.rules.language import Language, Lexicon, load_table
from openclaw_rl.judge.rules.similarity import is_noise

LONG = 3
"""Words; shorter sentences may be names or slang."""
MIN_SHARE = 0.2
"""A longer sentence of English has more of its words in the list: in the test data at least a quarter."""
SHORT = 4
"""Words; in a message as short, one word that is not English decides."""
FOREIGN_LETTERS = 0.25
"""The part of letters in an unknown script that makes a sentence unknown."""

_WORD = re.compile(r"[^\W\d_]{2,}(?:'[^\W\d_]+)*|[^\W\d_]'[^\W\d_]+|\b[ai]\b", re.IGNORECASE)
_ELIDED = re.compile(r"(?!c'mon|d'you|d'oh)(?:[cdjlmnst]|qu)'\w\w")
_LETTER = re.compile(r"[^\W\d_]")
_LATIN = re.compile(r"[a-z\u00c0-\u024f\u1e00-\u1eff]", re.IGNORECASE)
_KANA = re.compile(r"[\u3041-\u30fa\u31f0-\u31ff]")
_PLAIN = re.compile(r"(?<![\w.$/\\@#-])[^\W\d_]{2,}(?:'[^\W\d_]+)*(?![\w(/\\@=+-]|\.\w)")
_OPENS_FORM = re.compile(r"\W*(?:in|as|with|without|per)\b", re.IGNORECASE)
_ENGLISH_ENDING = re.compile(
    r"\w{3,}(?:ing|ings|ed|ly|ness|ful|less|ship|ight|ough|ck|cks|ish|tion|tions|ould|wn|th|sh)"
)

Reading = Literal["known", "unknown", "open"]


def known_part(sentences: Iterable[str], lexicon: Lexicon, languages: tuple[Language, ...]) -> tuple[str, bool]:
    """The sentences that can be read, and whether others were left out."""
    sentences = list(sentences)
    readings = [_reading(sentence, languages) for sentence in sentences]
    if "unknown" not in readings and _is_foreign("".join(sentences), lexicon, languages):
        readings = ["unknown"] * len(sentences)
    if "unknown" not in readings or all(_is_phrase(sentence, lexicon) for sentence in sentences):
        return "".join(sentences), False
    return "".join(s for s, reading in zip(sentences, readings, strict=True) if reading == "known"), True


def is_foreign(text: str) -> bool:
    """Whether a text has a small word of a language without a list."""
    return any(word in _small_words()[1] for word in _WORD.findall(text.lower()))


def _reading(sentence: str, languages: tuple[Language, ...]) -> Reading:
    low = sentence.lower()
    latin = len(_LATIN.findall(low))
    listed = sum(len(language.letters.findall(low)) for language in languages[1:])
    num_letters = len(_LETTER.findall(low))
    if num_letters - latin - listed >= max(2, FOREIGN_LETTERS * num_letters):
        return "unknown"
    if _KANA.search(low) and num_letters > 2 * latin:
        return "unknown"
    if 3 * listed > latin:
        return "known"
    words, (shared, others) = _WORD.findall(low), _small_words()
    num_others = sum(word in others or bool(_ELIDED.match(word)) for word in words)
    own = [word for word in words if word.partition("'")[0] in languages[0].words]
    num_own = sum(word not in shared for word in own)
    if len(words) < LONG:
        if num_others > num_own or (words and not own and not low.isascii()):
            return "unknown"
        return "known" if num_own == len(words) == 2 else "open"
    if num_others and num_others >= num_own:
        return "unknown"
    is_name = all(word[0].isupper() for word in _WORD.findall(sentence))
    if not is_name and (len(own) < MIN_SHARE * len(words) or not (num_own or low.isascii())):
        return "unknown"
    return "known"


def _is_foreign(text: str, lexicon: Lexicon, languages: tuple[Language, ...]) -> bool:
    """Whether a message of a few words has one that is not English, and none that only English has."""
    low = text.lower()
    if not 0 < len(low.split()) <= SHORT or any(language.letters.search(low) for language in languages[1:]):
        return False
    english, short, (shared, others) = languages[0].words | lexicon.words, _short_words(), _small_words()
    words = _PLAIN.findall(lexicon.spell(text))
    if len(words) == 1 and words[0].lower() in short["alone"]:
        return True
    known = (english | shared | short["common"] | short["marked"] | short["borrowed"]) - others
    strange = [word for word in words if word.lower().partition("'")[0] not in known]
    strong = bool(re.search(r"\bi\b|\b(?:as|in|with) an? ", low)) or any(
        word not in strange and word.lower() not in shared | short["borrowed"] for word in words
    )
    counts = any(map(str.isdigit, text))
    is_name = len(strange) == len(words) and all(word[0].isupper() for word in words)
    for place, word in enumerate(words):
        if word not in strange or is_noise(word.lower()) or len(set(word)) == 1 or _is_code(word, text):
            continue
        if word.lower() in others and not strong:
            return True
        if word[0].isupper() and (strong or is_name or (place and not _OPENS_FORM.match(text))):
            continue
        if not word.isascii() or not (strong or counts or _is_near(word.lower(), known)):
            return True
    return False


def _is_code(word: str, text: str) -> bool:
    """Whether a word is an abbreviation or a name of a program: "CSV", "KeyError"."""
    return word[1:] != word[1:].lower() and text != text.upper()


def _is_near(word: str, known: frozenset[str]) -> bool:
    """Whether a word ends as English words do, or is a known one with letters swapped, left out or doubled."""
    if _ENGLISH_ENDING.fullmatch(word) or word.removesuffix("s") in known:
        return True
    places = range(1, len(word))
    swapped = (word[: i - 1] + word[i] + word[i - 1] + word[i + 1 :] for i in places)
    doubled = (word[:i] + word[i + 1 :] for i in places if word[i] == word[i - 1])
    left_out = (f"{word[:i]}{letter}{word[i:]}" for i in places for letter in "abcdefghijklmnopqrstuvwxyz")
    return len(word) > LONG and any(near in known for near in (*swapped, *doubled, *left_out))


def _is_phrase(sentence: str, lexicon: Lexicon) -> bool:
    """Whether a sentence is one that the lists know, whatever its language: "Danke!", "merci beaucoup"."""
    low = sentence.lower()
    for phrase in reversed(lexicon.find(low)):
        low = low[: phrase.start] + low[phrase.end :]
    return _LETTER.search(low) is None


@cache
def _small_words() -> tuple[frozenset[str], frozenset[str]]:
    """The words that English shares with other languages, and those of the others alone."""
    lists = {name: frozenset(words.split()) for name, words in load_table("others").items()}
    return lists["shared"], frozenset[str]().union(*lists.values()) - lists["shared"]


@cache
def _short_words() -> Mapping[str, frozenset[str]]:
    return {name: frozenset(words.split()) for name, words in load_table("short").items()}
