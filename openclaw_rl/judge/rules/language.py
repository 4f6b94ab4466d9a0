"""The word lists of every language (words/*.toml) -> one lexicon that finds phrases in a text, and each one's grammar.

A phrase is a regular expression that begins with a word (or with alternatives that do), so that a lookup by first word
leaves a handful of expressions to try at each place. The longest match wins and what it covers is used up: "not bad" is
praise because `bad` never gets its turn. A language with letters of its own is added by its file: nothing here knows
one by name. One in Latin letters must also be told from English, in `unknown.py`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

TOKEN = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*|\d+|[^\w\s]", re.UNICODE)
"""A word, a number, or one other character; of languages without spaces a token is one character (`WIDE`)."""
WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_ELONGATED = re.compile(r"(\w)\1{2,}")
_LETTERS = re.compile(r"[^\W\d_]*")
_NAME = re.compile(r"\{([a-z_]+)\}")

_Value = str | list[str]
"""An expression, or a list of alternatives."""


@dataclass(frozen=True, slots=True)
class PhraseFound:
    """A phrase of one category, between two places of a text."""

    category: str
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    """What one file says about one language; every expression meets lower-case text."""

    name: str
    title: str
    letters: re.Pattern[str]
    words: frozenset[str]
    """Every word of its file that is no word of `others`."""
    grammar: Mapping[str, re.Pattern[str]]


class Lexicon:
    """The phrases of all languages, by their first word."""

    def __init__(self, tables: Mapping[str, Mapping[str, list[str]]], spelling: Mapping[str, str]) -> None:
        self._by_first: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
        self._spelling = dict(spelling)
        self.words: set[str] = set(spelling)
        for table in tables.values():
            for category, phrases in table.items():
                for phrase in phrases:
                    self._add(category, phrase)

    def _add(self, category: str, phrase: str) -> None:
        firsts = set(first_words(phrase))
        wide = bool(WIDE.match(phrase.lstrip("(?:")))
        pattern = re.compile(phrase if wide or not phrase[-1].isalnum() else rf"{phrase}(?!\w)")
        self.words.update(word for word in re.findall(r"[a-z]+", phrase))
        for first in firsts:
            self._by_first.setdefault(first, []).append((category, pattern))

    def find(self, text: str) -> list[PhraseFound]:
        """The phrases of a lower-case text from left to right, the longest at each place; none overlap."""
        found: list[PhraseFound] = []
        used_until = 0
        for start, token in tokens(text):
            if start < used_until:
                continue
            best: PhraseFound | None = None
            for category, pattern in self._by_first.get(token, ()):
                match = pattern.match(text, start)
                if match and match.end() > (best.end if best else start):
                    best = PhraseFound(category, start, match.end(), match.group())
            if best:
                found.append(best)
                used_until = best.end
        return found

    def spell(self, text: str) -> str:
        """The text with stretched words ("soooo"), chat spellings and contractions written out."""
        return re.sub(r"[^\W\d_]+(?:'[^\W\d_]+)*", self._spell_word, text)

    def _spell_word(self, match: re.Match[str]) -> str:
        word = match.group()
        if _ELONGATED.search(word):
            short = (_ELONGATED.sub(r"\1", word), _ELONGATED.sub(r"\1\1", word))
            word = next((s for s in short if s.lower() in self.words), short[1])
        full = self._spelling.get(word.lower())
        if full is None:
            return word
        return full[0].upper() + full[1:] if word[0].isupper() else full


def tokens(text: str) -> Iterator[tuple[int, str]]:
    """Where each token starts, and the token."""
    for match in TOKEN.finditer(text):
        token = match.group()
        if WIDE.match(token):
            yield from enumerate(token, match.start())
        else:
            yield match.start(), token


def first_words(phrase: str) -> list[str]:
    """The tokens that a phrase can begin with; ValueError where it could begin with anything."""
    if phrase.startswith("(?:"):
        end = _closing(phrase)
        firsts = [word for option in _options(phrase[3:end]) for word in first_words(option)]
        rest = phrase[end + 1 :]
        return firsts + first_words(rest[1:].lstrip()) if rest.startswith(("?", "*")) else firsts
    match = TOKEN.match(phrase.replace("\\", ""))
    if not match or match.group() in ".[*+?|)(":
        raise ValueError(f"the phrase {phrase!r} must begin with a word, or with (?:word|word)")
    word = match.group()
    return [word[0]] if WIDE.match(word) else _spellings(word, phrase[len(word) :])


def _spellings(word: str, rest: str) -> list[str]:
    """The tokens that a word is the beginning of: `fails?`, `crash(?:es|ed)`, `favou?r`, `re-?do`, `obrigad[oa]`."""
    if rest.startswith("?"):
        return [*_grown(word, rest[1:]), *_grown(word[:-1], rest[1:])]
    if rest.startswith("-?"):
        return [word, *_grown(word, rest[2:])]
    if rest.startswith("["):
        end = rest.index("]")
        return [token for letter in rest[1:end] for token in _grown(word + letter, rest[end + 1 :])]
    if rest.startswith("(?:"):
        end = _closing(rest)
        grown = [token for option in _options(rest[3:end]) for token in _grown(word, option)]
        return [*grown, word] if rest[end + 1 :].startswith(("?", "*")) else grown
    return [word]


def _grown(word: str, rest: str) -> list[str]:
    """The word with the letters that follow it, and what these may be in turn."""
    letters = _LETTERS.match(rest)
    more = letters.group() if letters else ""
    return _spellings(word + more, rest[len(more) :])


def _closing(phrase: str) -> int:
    depth = 0
    for place, character in enumerate(phrase):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return place
    raise ValueError(f"a bracket of {phrase!r} is never closed")


def _options(inside: str) -> list[str]:
    depth, options = 0, [""]
    for character in inside:
        depth += (character == "(") - (character == ")")
        if character == "|" and depth == 0:
            options.append("")
        else:
            options[-1] += character
    return [option.strip() for option in options if option.strip()]


@cache
def load_languages() -> tuple[Lexicon, tuple[Language, ...]]:
    """The languages of words/, English first, and one lexicon of all their phrases."""
    folder = resources.files("openclaw_rl.judge.rules").joinpath("words")
    files = [(f.name.removesuffix(".toml"), f) for f in folder.iterdir() if f.name.endswith(".toml")]
    texts = {name: f.read_text(encoding="utf-8") for name, f in files}
    read = {name: tomllib.loads(text) for name, text in texts.items()}
    lists = read["others"]["others"]
    others = frozenset(" ".join(lists.values()).split()) - set(lists["shared"].split())
    raws = sorted(((name, raw) for name, raw in read.items() if "letters" in raw), key=lambda r: (r[0] != "en", r[0]))
    tables: dict[str, dict[str, list[str]]] = {}
    spelling: dict[str, str] = {}
    languages: list[Language] = []
    for name, raw in raws:
        names = named(raw.get("names", {}), {})
        tables[name] = {c: [_fill(p, names) for p in phrases] for c, phrases in raw["phrases"].items()}
        spelling.update(raw.get("spelling", {}))
        languages.append(
            Language(
                name=name,
                title=raw["title"],
                letters=re.compile(raw["letters"]),
                words=frozenset(re.findall("[a-z]{2,}|i", texts[name].lower())) - others,
                grammar={key: expression(value, names) for key, value in raw["grammar"].items()},
            )
        )
    return Lexicon(tables, spelling), tuple(languages)


def expression(value: _Value | Mapping[str, Any], names: Mapping[str, str]) -> re.Pattern[str]:
    """A value of the files; a table is the expression `match` with the lists that it alone uses."""
    if not isinstance(value, Mapping):
        return re.compile(_fill(value, names))
    lists = {key: entry for key, entry in value.items() if isinstance(entry, list) and key != "match"}
    return re.compile(_fill(value["match"], named(lists, names)))


def named(lists: Mapping[str, _Value], names: Mapping[str, str]) -> dict[str, str]:
    """The names with those of some lists, each of which may use what stands before it."""
    known = dict(names)
    for key, value in lists.items():
        known[key] = f"(?:{_fill(value, known)})"
    return known


def _fill(value: _Value, names: Mapping[str, str]) -> str:
    """An expression or alternatives, with each {name} replaced by what it stands for."""
    text = value if isinstance(value, str) else "|".join(value)
    unknown = set(_NAME.findall(text)) - names.keys()
    if unknown:
        raise ValueError(f"{text[:60]!r} uses {sorted(unknown)}, but no list of that name stands before it")
    return _NAME.sub(lambda m: names[m.group(1)], text)


@cache
def load_table(name: str) -> Mapping[str, Any]:
    """The table of a file that is no language: words/emoji.toml, words/others.toml."""
    text = resources.files("openclaw_rl.judge.rules").joinpath("words", f"{name}.toml").read_text(encoding="utf-8")
    table: Mapping[str, Any] = tomllib.loads(text)[name]
    return table
