"""The fewest tokens that a text can become, known without tokenising it: read off the tokenizer's own vocabulary.

Every character weighs one over the length of the longest token that it occurs in. A token of n characters then weighs
at most n times 1/n, so no text has fewer tokens than its characters weigh together. Letters stand in short tokens and
blanks in long ones, which makes this far sharper than the longest token alone.

It is a promise, so a tokenizer gets a bound only if every step of it is known to lose nothing: BPE over bytes, or with
a token for each byte. For any other the answer is 0.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from openclaw_rl.render.decoding import byte_alphabet
from openclaw_rl.types import Json

_ASCII, _CONTINUED, _FIRST = slice(0x80), slice(0x80, 0xC0), slice(0xC0, 0x100)
"""UTF-8: characters of one byte, bytes that go on with a longer one, and those that begin it."""
_OTHER = 0xC0
"""Stands for every character of more than one byte."""
UnicodeForm = Literal["NFC", "NFD", "NFKC", "NFKD"]
_UNICODE_FORMS: tuple[UnicodeForm, ...] = get_args(UnicodeForm)
_FAITHFUL = ("ByteLevel", "Digits", "Metaspace", "Prepend", "Punctuation", "Split", "UnicodeScripts", *_UNICODE_FORMS)
"""Steps that take no character away, unless they are told to."""
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
_SLAB_CHARS = 1 << 18


class FewestTokens:
    """Made from a `tokenizer.json`. `added` are the texts that it reads as one token each, `hidden` the pieces of its
    vocabulary that no text becomes."""

    def __init__(self, raw: Json, added: Iterable[str], hidden: Collection[str]) -> None:
        steps = [*_steps(raw["normalizer"], "normalizers"), *_steps(raw["pre_tokenizer"], "pretokenizers")]
        pieces = [piece for piece in raw["model"]["vocab"] if piece not in hidden] if _is_faithful(raw, steps) else []
        is_byte_level = any(step["type"] == "ByteLevel" for step in steps)
        self._weights = (_weights_of_bytes if is_byte_level else _weights_of_characters)(pieces, added)
        self._forms = [form for form in _UNICODE_FORMS if any(step["type"] == form for step in steps)]
        # Where an accent may take a letter with it and become anything, only the other letters count.
        self._accented = self._weights.copy()
        self._accented[_CONTINUED], self._accented[_FIRST] = 0, -self._weights[_ASCII].max()

    def of(self, text: str) -> int:
        """No fewer tokens than this, whatever stands around the text."""
        weights = self._weights if all(_is_stable(text, form) for form in self._forms) else self._accented
        weight = 0.0
        for at in range(0, len(text), _SLAB_CHARS):
            raw = np.frombuffer(text[at : at + _SLAB_CHARS].encode("utf-8", "surrogatepass"), np.uint8)
            weight += float(np.bincount(raw, minlength=256) @ weights)
        return max(0, int(weight * (1 - 1e-9)))


def _is_stable(text: str, form: UnicodeForm) -> bool:
    """Whether a text is in this Unicode form already, by any version of Unicode."""
    if text.isascii():
        return True
    return unicodedata.is_normalized(form, text) and all(unicodedata.category(char) != "Cn" for char in set(text))


def _steps(step: Json, inner: str) -> list[Json]:
    """A normalizer or pre-tokenizer as the list of its steps."""
    if step is None:
        return []
    return [found for each in step[inner] for found in _steps(each, inner)] if step["type"] == "Sequence" else [step]


def _is_faithful(raw: Json, steps: Sequence[Json]) -> bool:
    """Whether every character of a text is still in its tokens, and none of them can hold more than it spells."""
    model = raw["model"]
    if model["type"] != "BPE" or model.get("dropout"):
        return False
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return False
    if any(token["lstrip"] or token["rstrip"] for token in raw["added_tokens"]):
        return False  # it swallows any number of blanks beside it
    return all(_keeps(step) for step in steps)


def _keeps(step: Json) -> bool:
    if step["type"] == "Replace":
        return bool(step["pattern"] == {"String": " "} and step["content"] == "▁")
    if step["type"] == "Metaspace" and step.get("replacement", "▁") != "▁":
        return False
    return step["type"] in _FAITHFUL and step.get("behavior") != "Removed"


def _weights_of_bytes(pieces: Iterable[str], added: Iterable[str]) -> NDArray[np.float64]:
    """For vocabularies whose pieces spell bytes. A byte that has no token is lost, and weighs nothing."""
    alphabet = byte_alphabet()
    spelled = [bytes(map(alphabet.__getitem__, piece)) for piece in pieces if alphabet.keys() >= set(piece)]
    return _one_over_longest([*spelled, *(text.encode() for text in added)])


def _weights_of_characters(pieces: Sequence[str], added: Iterable[str]) -> NDArray[np.float64]:
    """For vocabularies whose pieces spell characters: those of one byte, and all others as if they were one.

    What is in no piece becomes its bytes, a token each; nothing is promised where one of those is missing.
    """
    if sum(_BYTE_PIECE.fullmatch(piece) is not None for piece in pieces) != 256:
        return np.zeros(256)
    texts = [piece for piece in (*pieces, *added) if not _BYTE_PIECE.fullmatch(piece)]
    texts += [text.replace("▁", " ") for text in texts]
    weights = _one_over_longest(bytes(ord(char) if char.isascii() else _OTHER for char in text) for text in texts)
    weights[weights == 0] = 1
    weights[_CONTINUED], weights[_FIRST] = 0, weights[_OTHER]
    return weights


def _one_over_longest(tokens: Iterable[bytes]) -> NDArray[np.float64]:
    """For each byte, one over the length of the longest token with it; 0 if there is none."""
    weights = np.zeros(256)
    for length, same in groupby(sorted(tokens, key=len), key=len):
        if length:
            weights[list(set(b"".join(same)))] = 1 / length
    return weights
