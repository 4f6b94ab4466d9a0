"""Passwords and random strings that the words beside them give away: `password = …`, `"api_key": "…"`, "my token is …".

Words that name a secret are looked for first, then what follows each on its line, up to the next such word. How much a
value must look like a secret depends on the word: after `password` nearly anything counts, after `token` only what a
machine drew, after a mere `key` only a long one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from openclaw_rl.redaction.randomness import is_placeholder, is_random
from openclaw_rl.redaction.rule import Found, Rule, Seen, Span

Strength = Literal["strong", "weak", "bare"]

_STRONG = ("password", "passwd", "passphrase", "passcode", "passwort", "kennwort", "contraseña", "mot de passe", "pwd")
_STRONG_CHINESE = ("密码", "口令")
_WEAK = ("secret", "token", "credentials", "credential", "密钥", "令牌")
_CORES: dict[str, Strength] = {
    **dict.fromkeys((*_STRONG, *_STRONG_CHINESE, "pass", "pw"), "strong"),
    **dict.fromkeys(_WEAK, "weak"),
    **dict.fromkeys(("key", "auth"), "bare"),
}
_QUALIFIED_KEY = re.compile(
    r"(?:api|access|account|auth|encryption|signing|private|master|service|session|shared|storage|client|app|license"
    r"|ssh|host|secret)[ _-]?\Z"
)
_OTHER_HEAD = re.compile(
    r"(?:max|min|num|total|public|primary|foreign|cache|partition|sort|stop|eos|bos|pad|unk|special|page|of|per|new)"
    r"[ _-]?\Z"
)
_OTHER_WORDS = frozenset(
    (
        *("count", "len", "length", "limit", "size", "usage", "budget", "min", "max", "per", "used"),
        *("id", "ids", "idx"),
        *("index", "list", "type", "name", "url", "uri", "path", "file", "field", "form", "input", "label", "hint"),
        *("format", "expiry", "expires", "expiration", "ttl", "policy", "reset", "rotation", "strength", "manager"),
        *("error", "failed", "required", "based", "authentication"),
    )
)
_WORDS = re.compile(r"[A-Z]?[a-z]++|[A-Z]++", re.ASCII)
_TAIL = re.compile(r"[A-Za-z0-9_-]{0,24}+", re.ASCII)
_ASSIGNED = re.compile(
    r"\\{0,3}[\"'`]?\]?[ \t]{0,8}(?::=|=>|={1,3}|:|：|>|\||是|为)[ \t]{0,8}(?:[rbf]{0,2}(?=[\"']))?"
    r"(?:\\{0,3}(?P<quote>[\"'`])(?P<quoted>(?:(?!(?P=quote))[^\\\n\0]|\\(?![\"'`\n\0]).){1,512}+)"
    r"|(?P<plain>[^\s\"'`<>,;&|\\\0]{3,512}+))",
    re.ASCII,
)
_OPTION = re.compile(r"[ ]{1,4}[\"']?(?P<plain>[^\s\"'`<>,;&|\\\0-][^\s\"'`<>,;&|\\\0]{3,512}+)", re.ASCII)
_TOLD = re.compile(r"(?<![\w-])(?:is|was|ist|to)\b:?[ \t]{1,4}[\"'`]?(?P<plain>[^\s\"'`<>\\\0]{5,128}+)", re.ASCII)
_TOKEN = re.compile(r"(?<![A-Za-z0-9+/_=.~-])[A-Za-z0-9+/_=.~-]{16,512}+", re.ASCII)
_REACH = 64
"""How far from its name, on the same line, a random string is still taken for what the name means."""
_CODE = re.compile(r"[A-Za-z_][\w.]{0,64}[(\[{]|[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)++\Z|/|\d++(?:\.\d++)*+\Z", re.ASCII)
_ENV_NAME = re.compile(r"[ \t]*+(?:(?:export|set)[ \t]{1,4})?[A-Z][A-Z0-9_]*+\Z", re.ASCII)
_ENV_VALUE = re.compile(r"[^\s\"'\\\0]{4,1024}+", re.ASCII)
_ENDS_LINE = re.compile(r"[ \t]{0,8}(?:\n|\Z|\\n|#|//|<)", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Name:
    """A word that names a secret, `tail` included: `API_KEY_PROD`."""

    strength: Strength
    start: int
    end: int


def is_secret_name(name: str) -> bool:
    """Whether what goes by this name is a secret, whatever it looks like."""
    return any(one.strength != "bare" for one in _names(Seen.of(name)))


def _beside(seen: Seen) -> Iterator[Found]:
    """The values beside names; the search goes on behind what was found."""
    text, done = seen.text, 0
    for name, following in pairwise((*_names(seen), None)):
        assert name is not None
        if name.start < done:
            continue
        # A name further on is nearer to what follows it, and nothing is then looked at twice.
        reach = min(name.end + _REACH, len(text) if following is None else following.start)
        span = _assigned(text, name) or _given_as_option(text, name) or _mentioned(text, name, reach)
        if span is not None:
            yield Found("password" if name.strength == "strong" else "secret", *span)
            done = span[1]


def _names(seen: Seen) -> list[_Name]:
    """The names in a text, in order."""
    places = seen.places(_CORES)
    return [name for at, core in places if (name := _name(seen.text, seen.lowered, at, core)) is not None]


def _name(text: str, lowered: str, at: int, core: str) -> _Name | None:
    """The name whose core stands at `at`; None where the word means something else: `max_tokens`, `public key`."""
    end = at + len(core)
    match = _TAIL.match(text, end)
    tail = "" if match is None else match[0]
    last = text[end - 1]
    goes_on = tail[:1].isalpha() and last.isascii() and tail[0].islower() == last.islower()
    if goes_on and (core + tail.lower()).removesuffix("s") not in (core, core + "key", core + "code"):
        return None  # `tokenizer`, `secretary`, `keyboard`
    if core == "token" and goes_on:
        return None  # `tokens` are counted
    head = lowered[max(0, at - 12) : at]
    strength = _CORES[core]
    inside_word = head[-1:].isascii() and head[-1:].isalpha() and not text[at].isupper()
    if core in ("key", "auth", "pw", "pass") and inside_word and not _QUALIFIED_KEY.search(head):
        return None
    if core == "pass" and not head.endswith("_") and not re.match(r"[\"']?[ ]?[:=]", text[end : end + 3]):
        return None
    if core == "key" and _QUALIFIED_KEY.search(head):
        strength = "weak"
    if any(word.lower() in _OTHER_WORDS for word in _WORDS.findall(tail)):
        return None
    if strength != "strong" and _OTHER_HEAD.search(head):
        return None
    return _Name(strength, at, end + len(tail))


def _assigned(text: str, name: _Name) -> Span | None:
    if name.strength == "strong" and text.startswith("=", name.end) and _is_env_name(text, name.end):
        whole = _ENV_VALUE.match(text, name.end + 1)
        if whole is not None:
            return None if is_placeholder(whole[0]) else whole.span()
    match = _ASSIGNED.match(text, name.end)
    if match is None:
        return None
    if match["quoted"] is not None:
        value, span = match["quoted"], match.span("quoted")
        likely = (name.strength == "strong" and len(value) >= 4) or is_random(value)
        return span if likely and not is_placeholder(value) and not _is_sentence(value) else None
    value, span = _trimmed(match["plain"], match.start("plain"))
    if len(value) < 4 or is_placeholder(value):
        return None
    if name.strength != "strong":
        return span if is_random(value) and (name.strength == "weak" or len(value) >= 20) else None
    if _CODE.match(value):
        return None
    plain_word = value.isalpha() and (value.islower() or value.istitle())
    return span if not plain_word or (len(value) >= 6 and _ENDS_LINE.match(text, span[1])) else None


def _is_env_name(text: str, end: int) -> bool:
    """`DB_PASSWORD` alone in front of its sign: a line of an .env file or of a shell, where any value counts."""
    start = max(text.rfind("\n", max(0, end - 80), end) + 1, end - 80, 0)
    return _ENV_NAME.match(text[start:end]) is not None


def _given_as_option(text: str, name: _Name) -> Span | None:
    """`--password hunter2`"""
    start = name.start - 1
    while start >= 0 and start > name.start - 32 and (text[start].isalnum() or text[start] in "_-"):
        start -= 1
    match = _OPTION.match(text, name.end) if text.startswith("--", start + 1) else None
    if match is None or is_placeholder(match["plain"]):
        return None
    value, span = _trimmed(match["plain"], match.start("plain"))
    return span if len(value) >= 4 and (name.strength == "strong" or is_random(value)) else None


def _mentioned(text: str, name: _Name, reach: int) -> Span | None:
    """ "the password for it is hunter2", "token for the build, 8f3a…": in words, on the same line."""
    line_end = text.find("\n", name.end, reach)
    reach = reach if line_end < 0 else line_end
    if name.strength == "strong" and (told := _TOLD.search(text, name.end, reach)) is not None:
        value, span = _trimmed(told["plain"], told.start("plain"))
        is_typed = any(map(str.isdigit, value)) or not value.isalnum()
        is_said = _CODE.match(value) or _is_prose(value)
        if is_typed and len(value) >= 5 and any(map(str.isalpha, value)) and not is_said:
            return None if is_placeholder(value) else span
    for candidate in _TOKEN.finditer(text, name.end, reach + 16):  # one that begins within reach may end behind it
        whole = _TOKEN.match(text, candidate.start())
        assert whole is not None
        value, span = _trimmed(whole[0], whole.start())
        is_long = len(value) >= (24 if name.strength == "bare" else 16)
        if is_long and is_random(value) and not is_placeholder(value):
            return span
    return None


def _trimmed(value: str, start: int) -> tuple[str, Span]:
    """Without the punctuation of the sentence, or of the code, that it stands in."""
    kept = value.rstrip(".,;:!?)]}。，")
    return kept, (start, start + len(kept))


def _is_sentence(value: str) -> bool:
    """`Must have 8 characters`; a password with blanks in it also has signs that sentences do without."""
    return " " in value.strip() and not (any(map(str.isdigit, value)) and any(sign in value for sign in "!@#$%^&*+=~_"))


def _is_prose(value: str) -> bool:
    """`case-sensitive`, `e-mailed`: words with hyphens."""
    return all(part.isalpha() for part in re.split(r"[-'/]", value)) and value.lower() == value


RULES: tuple[Rule, ...] = (Rule(("password", "secret"), tuple(_CORES), _beside),)
