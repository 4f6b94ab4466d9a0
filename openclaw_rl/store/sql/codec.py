"""Arrays and JSON to the bytes that a row holds, and back. Knows no SQL and no table.

Token ids are little-endian int32, log-probs little-endian float32: what engines compute in, so nothing is lost.
Messages and tools are JSON under their digest; a list of them is the digests, one after the other.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import orjson

from openclaw_rl.types import Json, TokenLogprob

SqlValue = str | int | float | bytes | None
Row = Mapping[str, SqlValue]

ID_BYTES = 4
DIGEST_BYTES = 16
"""128 bits. Bodies are shared within one session only: a forged collision could but garble the forger's own words."""

Number = TypeVar("Number", int, float)

TopLogprobs = tuple[tuple[TokenLogprob, ...], ...]


def pack_ids(ids: Iterable[int]) -> bytes:
    """Token ids as int32; OverflowError or TypeError for what is none."""
    return _swapped(array("i", ids)).tobytes()


def unpack_ids(packed: bytes) -> tuple[int, ...]:
    """The inverse of `pack_ids`."""
    return tuple(_swapped(array("i", packed)))


def pack_floats(values: Iterable[float]) -> bytes:
    """Log-probs as float32; a value that no float32 equals is rounded to the nearest."""
    return _swapped(array("f", values)).tobytes()


def unpack_floats(packed: bytes) -> tuple[float, ...]:
    """The inverse of `pack_floats`."""
    return tuple(_swapped(array("f", packed)))


def pack_top_logprobs(top: TopLogprobs) -> bytes:
    """Number of positions, alternatives at each position, then all ids, then all log-probs.

    >>> pack_top_logprobs(((TokenLogprob(7, -0.5), TokenLogprob(9, -1.5)), ())).hex(" ", 4)
    '02000000 02000000 07000000 09000000 000000bf 0000c0bf'
    """
    flat = [alternative for position in top for alternative in position]
    return (
        struct.pack(f"<I{len(top)}H", len(top), *map(len, top))
        + pack_ids(a.token_id for a in flat)
        + pack_floats(a.logprob for a in flat)
    )


def unpack_top_logprobs(packed: bytes) -> TopLogprobs:
    """The inverse of `pack_top_logprobs`."""
    (num_positions,) = struct.unpack_from("<I", packed)
    counts = struct.unpack_from(f"<{num_positions}H", packed, 4)
    start, num_flat = 4 + 2 * num_positions, sum(counts)
    middle = start + ID_BYTES * num_flat
    flat = map(TokenLogprob, unpack_ids(packed[start:middle]), unpack_floats(packed[middle:]))
    return tuple(tuple(next(flat) for _ in range(count)) for count in counts)


def digest_of(*parts: bytes) -> bytes:
    """One digest over all parts; the length of each part counts, so that no two lists of parts read the same."""
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()


def body_of(value: Json) -> tuple[bytes, bytes]:
    """The JSON of a message or tool, and the digest it is stored under."""
    body = orjson.dumps(value)
    return digest_of(body), body


def split_digests(packed: bytes) -> Sequence[bytes]:
    """The digests that were joined, one after the other."""
    return [packed[i : i + DIGEST_BYTES] for i in range(0, len(packed), DIGEST_BYTES)]


def _swapped(values: array[Number]) -> array[Number]:
    """Between this machine's byte order and little-endian; nothing to do on nearly every machine."""
    if sys.byteorder == "big":
        values.byteswap()
    return values
