"""Ids to text while they arrive: each push returns the text that no later id can change.

Pushed and finished texts together equal the decoding of all ids at once, invalid bytes included, at a constant cost
per id. Does not know which ids are special: whoever makes a decoder says what each id stands for.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from functools import cache


class ByteDecoder:
    """For byte-level vocabularies, where every id is a few bytes of UTF-8."""

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        self._bytes_of = bytes_of
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_ids: Sequence[int]) -> str:
        return self._utf8.decode(b"".join(map(self._bytes_of, token_ids)))

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)


class PieceDecoder:
    """For vocabularies of text pieces with byte pieces (`<0xE2>`) in between, as SentencePiece makes them.

    A run of byte pieces is one decision (valid UTF-8 as a whole, or one U+FFFD for each byte), so it is held until it
    ends. What comes after is decoded together with the piece before it, because the decoder strips the blank of a
    text's first piece.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], is_byte: Callable[[int], bool], is_shown: Callable[[int], bool]
    ) -> None:
        self._decode = decode
        self._is_byte = is_byte
        self._is_shown = is_shown
        self._anchor: list[int] = []
        self._pending: list[int] = []

    def push(self, token_ids: Sequence[int]) -> str:
        ended = 0
        for token in token_ids:
            if self._is_shown(token):
                self._pending.append(token)
                if not self._is_byte(token):
                    ended = len(self._pending)
        return self._emit(ended)

    def finish(self) -> str:
        return self._emit(len(self._pending))

    def _emit(self, count: int) -> str:
        if not count:
            return ""
        certain, self._pending = self._pending[:count], self._pending[count:]
        text = self._decode(self._anchor + certain)[len(self._decode(self._anchor)) :]
        self._anchor = certain[-1:]
        return text


@cache
def byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in byte-level vocabularies (GPT-2's table), inverted."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
