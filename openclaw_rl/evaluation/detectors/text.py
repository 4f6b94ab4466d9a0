"""Text -> what a person sees of it: words, sentences, and the words that carry the meaning.

Special tokens, thoughts and invisible characters are gone first, so a reply of nothing but those is an empty one.
English; `sentences` knows the CJK full stop as well.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from functools import cache
from pathlib import Path

from openclaw_rl.types import Json

_SPECIAL = re.compile(r"<\|[^|<>\n]{1,40}\|>|</?(?:s|bos|eos|pad|unk)>|\[/?INST\]", re.IGNORECASE)
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_INVISIBLE = ("Cc", "Cf", "Cs", "Co")
_CODE_BLOCK = re.compile(  # "```x```" in one line is none
    r"^[ \t]*(```|~~~)(?![^\n]*[^`~\n]\1).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)
_WORD = re.compile(r"[^\W_]+(?:[’'.,:/-][^\W_]+)*")
CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_CJK = re.compile(f"[{CJK}]")
_ENDINGS = re.compile(r"(?:isation|ization|ations?|ings?|edly|ed|es|s|ly|ers?|e|y)$")
_MIN_STEM = 3


@cache
def lexicon() -> dict[str, Json]:
    """words.toml."""
    return tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


def any_of(name: str) -> str:
    """The alternatives of an entry of words.toml, as one group of an expression."""
    return f"(?:{'|'.join(lexicon()[name])})"


def visible(text: str) -> str:
    """What a person sees of it."""
    text = _SPECIAL.sub(" ", _THOUGHT.sub(" ", text))
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in _INVISIBLE).strip()


def prose(text: str) -> str:
    """What a person sees of it, without blocks of code; apostrophes are straight."""
    return _CODE_BLOCK.sub("", visible(text)).replace("’", "'")


def words(text: str) -> tuple[str, ...]:
    """The words, in lower case; a number with its point is one, and each CJK character is one."""
    return tuple(w.lower().replace("’", "'") for w in _WORD.findall(spaced(text)))


def spaced(text: str) -> str:
    """What a person sees of it, each CJK character apart."""
    return _CJK.sub(lambda c: f" {c[0]} ", visible(text))


def content_words(text: str) -> frozenset[str]:
    """The stems of the words that carry the meaning."""
    stop = _stop_words()
    return frozenset(_stem(word) for word in words(text) if word not in stop)


def _stem(word: str) -> str:
    word = re.sub(r"ies$", "y", word.removesuffix("'s"))
    stem = re.sub(r"([^aeiou\d])\1$", r"\1", _ENDINGS.sub("", word))  # swimm(er) is swim
    return stem if len(stem) >= _MIN_STEM else word


@cache
def _stop_words() -> frozenset[str]:
    return frozenset(lexicon()["stop"].split())


BULLET = re.compile(
    r"^(?![ \t]*([-*])(?:[ \t]*\1){2,}[ \t]*$)"  # "* * *" is a rule
    r"[ \t]*(?:(?:[-*+•‣◦▪▸●○■□►➤➢✓✔✅·∙⁃]|[\U0001f539\U0001f538])[ \t]+|•)(?=\S)"
)
DASH = re.compile(r"^[ \t]*[–—][ \t]+(?=\S)")
_APART = r"(?:\*\*|__)?[ \t]+(?=\S)"
NUMBERED = re.compile(
    r"^[ \t]*(?:\*\*|__)?"
    rf"(?:\(?(\d{{1,2}})(?:[.)]{_APART}|、[ \t]*(?=[^\s\d]))|(\d)\ufe0f?\u20e3{_APART})"
)
_HASHES = re.compile(r"^[ \t]{0,3}#{1,6}[ \t]+")
_END = re.compile(r"(?<![.!?…])[.!?…]+[\"'”’)\]*_]*(?=\s|$)|[。！？]+[」』”）]*")
_LIST_NUMBER = re.compile(r"(?:^|[.:;,!?]\s)\s*\d{1,2}$")
_SMALL = re.compile(r"\s+[a-z]")
_REACH = 60
"""Characters before an end that tell whether it is one."""


def sentences(text: str) -> tuple[str, ...]:
    """The sentences as they stand. An item of a list and a heading are one each; a wrapped line is not.

    Dr., e.g., 3.5 and "1." of a list end none.
    """
    found: list[str] = []
    for block in _blocks(prose(text)):
        start = 0
        for end in _END.finditer(block):
            if not _goes_on(block, end):
                found.append(block[start : end.end()])
                start = end.end()
        found.append(block[start:])
    return tuple(s.strip() for s in found if _WORD.search(s))


def _blocks(text: str) -> list[str]:
    """Pieces that no sentence reaches across: paragraphs and list items without their marks."""
    blocks: list[str] = []
    joins = False
    for line in text.split("\n"):
        marked = next((m for shape in (BULLET, DASH, NUMBERED, _HASHES) if (m := shape.match(line))), None)
        body = line[marked.end() :] if marked else line
        if joins and not marked and body[:1].islower():
            blocks[-1] += f" {body}"
        elif body.strip():
            blocks.append(body)
        joins = bool(body.strip())
    return blocks


def _goes_on(block: str, end: re.Match[str]) -> bool:
    """Whether what looks like an end is none: an abbreviation, "1." of a list in a line, dots in mid-sentence."""
    before = (block, max(0, end.start() - _REACH), end.start())
    if end[0] == "." and (_abbreviation().search(*before) or _LIST_NUMBER.search(*before)):
        return True
    return bool(_SMALL.match(block, end.end())) and end[0][0] in ".…"


@cache
def _abbreviation() -> re.Pattern[str]:
    return re.compile(rf"(?:^|[\s(\"'“‘]){any_of('abbreviations')}$", re.IGNORECASE)
