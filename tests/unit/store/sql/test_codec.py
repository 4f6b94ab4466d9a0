"""Arrays to bytes and back."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.store.sql import codec
from openclaw_rl.types import TokenLogprob
from tests.unit.store.drawn import logprobs, token_ids

top_logprobs = st.lists(
    st.lists(st.builds(TokenLogprob, token_id=st.integers(0, 2**31 - 1), logprob=logprobs), max_size=20).map(tuple),
    max_size=5,
).map(tuple)


def test_ids_and_floats_are_little_endian_and_four_bytes_wide() -> None:
    assert codec.pack_ids([1, -2]) == bytes.fromhex("01000000 feffffff")
    assert codec.pack_floats([-0.5]) == bytes.fromhex("000000bf")


def test_docstring_example() -> None:
    failed, attempted = doctest.testmod(codec, extraglobs={"TokenLogprob": TokenLogprob})
    assert (failed, attempted) == (0, 1)


@given(token_ids)
def test_ids_come_back(ids: tuple[int, ...]) -> None:
    assert codec.unpack_ids(codec.pack_ids(ids)) == ids


@given(st.lists(logprobs).map(tuple))
def test_float32_values_come_back_exactly(values: tuple[float, ...]) -> None:
    assert codec.unpack_floats(codec.pack_floats(values)) == values


@given(top_logprobs)
def test_top_logprobs_come_back(top: codec.TopLogprobs) -> None:
    assert codec.unpack_top_logprobs(codec.pack_top_logprobs(top)) == top


@pytest.mark.parametrize("bad", [2**31, 1.5, "a", None])
def test_what_is_no_token_id_is_refused(bad: int) -> None:
    with pytest.raises((OverflowError, TypeError)):
        codec.pack_ids([bad])


def test_the_digest_tells_where_one_part_ends() -> None:
    assert codec.digest_of(b"ab", b"c") != codec.digest_of(b"a", b"bc")
    assert codec.digest_of(b"ab") != codec.digest_of(b"ab", b"")
