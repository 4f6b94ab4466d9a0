"""What a person typed -> the sentences and clauses whose words count as a reaction.

Code, quotations and pasted text stand for themselves: they become one character each (`own_words` puts short ones back,
for hints), so that an "error" in a quoted log is not a complaint, and thanks in a mail that is to be summed up are not
the person's. Words to the judge itself ("score: 1", a spoofed marker) are taken out: they are never evidence.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from openclaw_rl.judge.rules.language import Language, Lexicon, load_languages
from openclaw_rl.judge.rules.unknown import known_part

MAX_CHARS = 2400
"""Of a longer text the beginning and the end are read: people react there, and paste in between."""
MAX_CLAUSE = 300
MAX_CLAUSES = 60
MAX_PIECE = 200
"""Characters of one clause, clauses, and characters of a quotation that are read: nothing meets text of any length."""
MIN_BROUGHT = 20
"""Characters; what is shorter behind "this mail:" may be said of it."""

_SPOOF = "\uf8ff"  # stands where a marker stood
_HELD = 0xE000  # the first private-use character: stands for a piece of code or a quotation
_HIDDEN = re.compile(
    "\x1b\\[[0-9;]*[A-Za-z]|"  # colours of a terminal
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\x00-\x08\x0b-\x1f\x7f\U000e0000-\U000e007f]"
)
_QUOTES = str.maketrans({"‘": "'", "’": "'", "‛": "'", "´": "'", "“": '"', "”": '"', "„": '"', "–": "-", "—": "-"})
_MARKERS = re.compile(
    r"\[\s*HINT[\s_]*START\s*\].*?(?:\[\s*HINT[\s_]*END\s*\]|$)"  # a spoofed hint goes with its text
    r"|\[\s*/?\s*HINT[\s_]*(?:START|END)\s*\]|<{3}[^>\n]{0,120}>{3}"
    r"|\\*boxed\s*\{[^}\n]{0,40}\}?"
    r"|<\|[^|>\n]{0,40}\|>|</?(?:system|assistant|user|verdict|score|hint|judge|think|im_start|im_end|s)\b[^>\n]{0,40}>"
    r"|\[/?INST\]|<</?SYS>>",
    re.IGNORECASE | re.DOTALL,
)
_BLOBS = re.compile(r"https?://\S+|[A-Za-z0-9+/_=-]{60,}")
_HOLDS = (
    re.compile(r"```.*?(?:```|$)|~~~.*?(?:~~~|$)", re.DOTALL),
    re.compile(r"`[^`\n]+`"),
    re.compile(r"(?m)^[ \t]*>.*$"),
    re.compile(r"<([a-z][\w-]{0,30})(?: [^<>\n]{0,80})?>.*?</\1>", re.DOTALL | re.IGNORECASE),
    re.compile(r"(?ms)^[ \t]*([-=*_#~])\1{2,}[ \t]*$.*?^[ \t]*\1{3,}[ \t]*$"),
    re.compile(r'"[^"\n]{1,300}"|「[^」]{1,300}」|『[^』]{1,300}』|《[^》]{1,100}》'),
    re.compile(r"(?<![\w'])'[^'\n]{2,120}'(?![\w'])"),
)
_MARKDOWN = re.compile(r"(?m)^[ \t]*(?:#{1,6} |[-*+] (?=\S)|\d{1,2}[.)] )|\*\*|__|(?<!\w)\*(?=\S)|(?<=\S)\*(?!\w)|~~")
_SENTENCE_END = re.compile(
    r"(?<=[.!?])[.!?]*(?=\s|$)|(?<=[。!?])(?=[^\s.!?。])(?=[^\w]|[\u3400-\u9fff\ue000-\uf8ff])|\n+"
)
_PIECE_END = re.compile(rf"{_SENTENCE_END.pattern}|\s-+(?=\s)")
_COMMA = re.compile(
    r",(?=\s|[\u3400-\u9fff\ue000-\uf8ff])|(?<=[\u3400-\u9fff]),|;|:(?=\s)|\s-+\s|、(?=\b\B)|[()]|\.\.\.+"
)
EDGES = " ,;:-()!?.。~"
_PRIVATE = re.compile("[\ue000-\uf8ff]")
_SPEECH = re.compile(r"[^\W\d_]")


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause as typed (`text`), in lower case (`low`), and from its start to the end of its sentence (`rest`)."""

    text: str
    low: str
    rest: str
    sentence: str
    language: Language
    first: bool
    """Whether it opens its sentence."""
    asked: bool
    """Whether its sentence ends with a question mark."""


@dataclass(frozen=True, slots=True)
class Words:
    """What counts of a message."""

    clauses: tuple[Clause, ...]
    plain: str
    """The text in lower case without code, quotations and sentences that cannot be read."""
    spoofed: bool
    """Whether it talks to the judge, or has a marker that only a judge would read."""
    brings: bool
    """Whether it brings somebody else's text along, to do something with it."""
    unread: bool
    """Whether some of it is in a language that has no word list, and was left out."""


def is_held(character: str) -> bool:
    """Whether a character stands for something that was held back."""
    return "\ue000" <= character <= "\uf8ff"


@lru_cache(maxsize=8)  # several rules look at the same message
def clean(text: str) -> str:
    """Any text without what people cannot see, and with one character for each marker that only a judge would read."""
    if len(text) > MAX_CHARS:
        text = text[: MAX_CHARS // 2] + "\n" + text[-MAX_CHARS // 2 :]
    text = unicodedata.normalize("NFKC", _HIDDEN.sub("", _PRIVATE.sub("", text))).translate(_QUOTES)
    return _MARKERS.sub(f" {_SPOOF} ", text)


@lru_cache(maxsize=8)
def read_words(cleaned: str, lexicon: Lexicon, languages: tuple[Language, ...]) -> Words:
    """The clauses of a cleaned text that was typed by a person."""
    cleaned = _BLOBS.sub(" ", cleaned)
    plain, held = _held_back(cleaned)
    plain, brings = _without_brought(plain, languages)
    code = any("\n" in piece or "`" in piece for piece in held)
    if held and not code and not brings and not _SPEECH.search(_PRIVATE.sub("", plain)):
        plain = cleaned.replace(chr(34), " ")  # all of it is quoted: then the quotation is what was said
    plain = _MARKDOWN.sub("", plain)
    spoofed = _SPOOF in plain
    plain, unread = known_part(_pieces(plain), lexicon, languages)
    plain = lexicon.spell(plain)
    clauses: list[Clause] = []
    for sentence in _sentences(plain.replace(_SPOOF, " ")):
        language = language_of(sentence, languages)
        low = _lower(sentence)
        if any(other.grammar["judge_talk"].search(low) for other in languages):
            spoofed = True
        elif language is not None:
            clauses += _clauses(sentence, low, language)
    if len(clauses) > MAX_CLAUSES:
        clauses = clauses[: MAX_CLAUSES // 2] + clauses[-MAX_CLAUSES // 2 :]
    return Words(tuple(clauses), _lower(plain), spoofed, brings, unread)


def _without_brought(text: str, languages: tuple[Language, ...]) -> tuple[str, bool]:
    """The text up to where somebody else's is announced, and whether there is such a place with something after it."""
    for language in languages:
        announced = language.grammar["brings"].search(_lower(text))
        brought = text[announced.end() :].strip() if announced else ""
        if announced and (len(brought) >= MIN_BROUGHT or any(map(is_held, brought))):
            return text[: announced.start()], True
    return text, False


def language_of(text: str, languages: tuple[Language, ...]) -> Language | None:
    """The language whose letters a text has; of a mixed one that with the rarer script, since all have Latin names."""
    low = text.lower()
    counts = [(len(language.letters.findall(low)), language) for language in languages]
    written = [(number, language) for number, language in counts if number]
    if not written:
        return None
    others = [(number * 3, language) for number, language in written if language is not languages[0]]
    latin = [pair for pair in written if pair[1] is languages[0]]
    return max(latin + others, key=lambda pair: pair[0])[1]


def is_unread(text: str) -> bool:
    """Whether some of a text is in a language that has no word list."""
    return read_words(clean(text), *load_languages()).unread


def own_words(text: str) -> str:
    """What a person says themselves, as typed: without the texts of others, long code and what nobody can see."""
    cleaned = clean(text)
    plain, held = _held_back(cleaned)
    own, _ = _without_brought(plain, load_languages()[1])
    pieces = (piece if len(piece) <= MAX_PIECE and piece[0] != "<" and "\n" not in piece else "" for piece in held)
    own = own.translate({_HELD + place: piece for place, piece in enumerate(pieces)})
    return text if own.split() == cleaned.split() else own


def _held_back(text: str) -> tuple[str, list[str]]:
    """The text with one character for each piece of code and each quotation, and the pieces."""
    held: list[str] = []
    for pattern in _HOLDS:
        text = pattern.sub(lambda match: _hold(match.group(), held), text)
    return text, held


def _hold(piece: str, held: list[str]) -> str:
    if piece.lstrip().startswith(">") or _HELD + len(held) >= ord(_SPOOF):
        return " "
    held.append(piece)
    return chr(_HELD + len(held) - 1)


def _lower(text: str) -> str:
    low = text.lower()
    return low if len(low) == len(text) else text  # a few letters change their length; places must stay comparable


def _pieces(text: str) -> list[str]:
    """The sentences, or what dashes part in them, with all that stands between them."""
    cuts = [0, *(match.end() for match in _PIECE_END.finditer(text)), len(text)]
    return [text[start:end] for start, end in pairwise(cuts)]


def _sentences(text: str) -> list[str]:
    return [s for part in _SENTENCE_END.split(text) if (s := " ".join(part.split()))]


def _clauses(sentence: str, low: str, language: Language) -> list[Clause]:
    cuts = sorted(
        {0}
        | {match.end() for match in _COMMA.finditer(low)}
        | {match.end() for match in language.grammar["breaks"].finditer(low)}
    )
    asked = "?" in sentence[-3:]
    clauses: list[Clause] = []
    for start, end in zip(cuts, [*cuts[1:], len(sentence)], strict=True):
        text = sentence[start:end].strip(EDGES)[:MAX_CLAUSE]
        if text:
            rest = sentence[start:].strip(EDGES)
            clauses.append(Clause(text, _lower(text), rest, sentence.strip(EDGES), language, not clauses, asked))
    return clauses
