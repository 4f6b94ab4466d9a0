"""Strands: what is found again, what is copied, what goes when memory is short."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.engine.embedded.cache import (
    MIN_OLDER,
    MIN_SHARED,
    Strand,
    Strands,
    TensorStorage,
    common_prefix,
    new_tensor_storage,
    reuse_rule,
)
from openclaw_rl.errors import ConfigError

new_storage = new_tensor_storage(2, 1, 4, dtype=torch.float32, device=torch.device("cpu"))


def anything(_: str) -> bool:
    return True


def make(max_tokens: int = 10_000) -> Strands[TensorStorage]:
    return Strands(new_storage, max_tokens=max_tokens)


def fill(strand: Strand[TensorStorage], token_ids: Sequence[int], version: str = "v0") -> None:
    """Computes: the key of a token is the token itself, so that a copy can be told from garbage."""
    for token in token_ids:
        strand.kv[:, :, :, strand.length] = float(token)
        strand.append([token], version)


def taken(
    strands: Strands[TensorStorage],
    token_ids: Sequence[int],
    *,
    room: int | None = None,
    version: str = "v0",
    salt: str = "ann",
    num_shareable: int = 0,
) -> Strand[TensorStorage]:
    strand = strands.take(
        token_ids,
        version,
        lambda other: other == version,
        room=room or len(token_ids),
        salt=salt,
        num_shareable=num_shareable,
    )
    assert strand is not None
    return strand


def holds(strand: Strand[TensorStorage], token_ids: Sequence[int]) -> bool:
    values = strand.kv[1, 1, 0, : strand.length, 3].tolist()
    return list(strand.token_ids) == list(token_ids) and values == [float(token) for token in token_ids]


def test_a_session_continues_its_own_strand_without_a_copy() -> None:
    strands = make()
    first = taken(strands, range(100))
    fill(first, range(100))
    strands.release(first)
    again = taken(strands, range(150))
    assert again is first
    assert holds(again, range(100))
    assert len(strands) == 1


def test_the_last_token_is_always_left_to_compute() -> None:
    strands = make()
    first = taken(strands, range(50))
    fill(first, range(50))
    strands.release(first)
    assert taken(strands, range(50)).length == 49


def test_a_busy_strand_is_copied_and_both_go_their_way() -> None:
    strands = make()
    first = taken(strands, range(100))
    fill(first, range(100))
    other = taken(strands, [*range(60), *range(900, 960)])
    assert other is not first
    assert holds(other, range(60))
    fill(other, range(900, 960))
    assert holds(first, range(len(first.token_ids)))
    assert holds(other, [*range(60), *range(900, 960)])


def test_a_fork_from_the_middle_of_an_idle_strand_does_not_cut_it() -> None:
    strands = make()
    long = taken(strands, range(1000))
    fill(long, range(1000))
    strands.release(long)
    fork = taken(strands, [*range(200), 5000, 5001])
    assert fork is not long
    assert holds(fork, range(200))
    assert holds(long, range(1000))


def test_where_there_is_no_memory_for_a_copy_the_strand_itself_is_cut() -> None:
    strands = make(max_tokens=1024)
    long = taken(strands, range(1000))
    fill(long, range(1000))
    strands.release(long)
    fork = taken(strands, [*range(200), 5000, 5001])
    assert holds(fork, range(200))
    assert len(strands) == 1


def test_strangers_do_not_share_the_few_tokens_that_every_prompt_begins_with() -> None:
    strands = make()
    first = taken(strands, range(100))
    fill(first, range(100))
    strands.release(first)
    stranger = taken(strands, [*range(MIN_SHARED - 1), *range(500, 600)])
    assert stranger.length == 0
    assert holds(first, range(100))


def test_the_least_recently_used_idle_strand_goes_first_and_busy_ones_stay() -> None:
    strands = make(max_tokens=64 * 4)
    held = []
    for i in range(4):
        strand = taken(strands, range(100 * i, 100 * i + 60))
        fill(strand, range(100 * i, 100 * i + 60))
        held.append(strand)
    assert strands.take(range(900, 960), "v0", anything, room=60, salt="ann") is None
    for i in (2, 0):
        strands.release(held[i])
    fifth = taken(strands, range(900, 960))
    assert len(strands) == 4
    strands.release(fifth)
    assert taken(strands, range(61)).length == 60  # number 0 was used last, so number 2 went
    assert strands.num_tokens <= strands.max_tokens


def test_all_that_is_promised_can_be_had() -> None:
    strands = make(max_tokens=150)
    assert strands.max_tokens == 128
    assert taken(strands, range(100), room=strands.max_tokens).capacity == 128


def test_what_a_strand_takes_beside_its_tokens_counts() -> None:
    strands = Strands(new_storage, max_tokens=64 * 8, tokens_per_strand=100)
    assert strands.max_tokens == 64 * 6, "in whole granules, so that a strand of so many tokens fits"
    for number in range(3):
        strand = taken(strands, range(100 * number, 100 * number + 30))
        fill(strand, range(100 * number, 100 * number + 30))
        strands.release(strand)
    assert (len(strands), strands.num_tokens) == (3, 3 * 164)
    strands.release(taken(strands, range(900, 930)))
    assert len(strands) == 2, "64 tokens of eight times 64 were free, and 164 were wanted; what holds nothing is gone"
    longest = taken(strands, range(384))
    assert (longest.capacity, len(strands)) == (384, 1)


def test_growing_keeps_what_was_computed() -> None:
    strands = make()
    strand = taken(strands, range(60))
    fill(strand, range(60))
    assert strands.reserve(strand, 3000)
    assert strand.capacity >= 3000
    assert holds(strand, range(60))
    assert not strands.reserve(strand, 20_000)
    assert holds(strand, range(60))


def test_another_version_finds_only_what_it_may_use() -> None:
    strands = make()
    strand = taken(strands, range(2000))
    fill(strand, range(800), "v1")
    fill(strand, range(800, 1600), "v2")
    fill(strand, range(1600, 2000), "v3")
    strands.release(strand)
    prompt = array("I", range(2000))
    assert strand.num_usable(prompt, "v1", lambda version: version == "v1") == 800
    assert strand.num_usable(prompt, "v2", lambda version: version in ("v1", "v2")) == 1600
    assert strand.num_usable(prompt, "v2", lambda version: version == "v2") == 0
    strand.cut(1200)
    assert strand.made_by == [(800, "v1"), (1200, "v2")]
    assert strand.oldest_version == "v1"
    strands.forget("v2")
    assert len(strands) == 0


def test_a_short_beginning_of_an_older_version_is_read_anew() -> None:
    strands = make()
    strand = taken(strands, range(MIN_OLDER), room=MIN_OLDER + 100)
    fill(strand, range(MIN_OLDER), "v1")
    strands.release(strand)
    short, long = array("I", [*range(MIN_OLDER - 1), 9999]), array("I", range(MIN_OLDER))
    assert [strand.num_usable(prompt, "v2", anything) for prompt in (short, long)] == [0, MIN_OLDER]
    assert strand.num_usable(short, "v1", anything) == MIN_OLDER - 1
    fill(strand, range(MIN_OLDER, MIN_OLDER + 100), "v2")
    assert strand.num_usable(array("I", range(9000)), "v1", anything) == MIN_OLDER, "a hundred tokens are soon read"


@pytest.mark.parametrize(
    ("setting", "version", "serving"),
    [
        ("exact", "v3", {"v3"}),
        ("reuse(2)", "v3", {"v1", "v2", "v3"}),
        ("reuse(1)", "v1", {"v0", "v1"}),
        ("reuse(9)", "v2", {"v0", "v1", "v2"}),
        ("reuse(2)", "v2.ann", {"v0", "v1.ann", "v2.ann"}),
        ("reuse(2)", "trial", {"trial"}),
        ("reuse(2)", "v0", {"v0"}),
        ("reuse(2)", "v00", {"v00"}),
    ],
)
def test_which_versions_serve_which(setting: str, version: str, serving: set[str]) -> None:
    labels = {"v0", "v1", "v2", "v3", "v4", "v1.ann", "v2.ann", "v3.ann", "v1.bob", "trial", "other", "v00", "v01"}
    may_reuse = reuse_rule(setting)(version)
    assert {label for label in labels if may_reuse(label)} == serving


@pytest.mark.parametrize("setting", ["", "reuse", "reuse(0)", "reuse(-1)", "always"])
def test_a_wrong_rule_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="exact or reuse"):
        reuse_rule(setting)


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=40))
def test_common_prefix(first: list[int], second: list[int]) -> None:
    expected = 0
    while expected < min(len(first), len(second)) and first[expected] == second[expected]:
        expected += 1
    assert common_prefix(first, second) == expected


@given(st.data())
def test_whatever_happens_a_strand_holds_its_own_tokens(data: st.DataObject) -> None:
    """Random takes, computations, releases and drops over prompts that share prefixes, in little memory."""
    strands, busy = make(max_tokens=64 * 6), list[Strand[TensorStorage]]()
    for _ in range(data.draw(st.integers(1, 25))):
        if data.draw(st.booleans()) and busy:
            strand = busy.pop(data.draw(st.integers(0, len(busy) - 1)))
            if data.draw(st.integers(0, 4)):
                strands.release(strand)
            else:
                strands.drop(strand)
            continue
        trunk, branch = data.draw(st.integers(1, 100)), data.draw(st.integers(0, 3))
        prompt = [*range(trunk), *range(1000 * branch, 1000 * branch + data.draw(st.integers(1, 60)))]
        taken_strand = strands.take(prompt, "v0", anything, room=len(prompt), salt="ann")
        if taken_strand is None:
            continue
        assert holds(taken_strand, prompt[: taken_strand.length])
        assert taken_strand.length < len(prompt)
        fill(taken_strand, prompt[taken_strand.length :])
        busy.append(taken_strand)
        assert all(holds(strand, strand.token_ids) for strand in busy)
        assert len(set(map(id, busy))) == len(busy)
        assert strands.num_tokens <= strands.max_tokens


def test_another_salt_finds_nothing_of_a_strand() -> None:
    strands = make()
    first = taken(strands, range(100))
    fill(first, range(100))
    strands.release(first)
    other = taken(strands, range(100), salt="bob")
    assert (other.length, other.num_own) == (0, 0)
    assert taken(strands, range(100), salt="ann").num_own == 99


@pytest.mark.parametrize(
    ("lends", "borrows", "shared"), [(0, 50, 0), (50, 0, 0), (30, 50, 30), (50, 40, 40), (99, 99, 60)]
)
def test_another_salt_copies_as_much_of_the_beginning_as_both_allow(lends: int, borrows: int, shared: int) -> None:
    strands = make()
    first = taken(strands, range(100), num_shareable=lends)
    fill(first, range(100))
    strands.release(first)
    other = taken(strands, [*range(60), *range(900, 960)], salt="bob", num_shareable=borrows)
    assert other is not first
    assert (other.length, other.num_own) == (shared, 0), "what another left is used, and not told"
    assert holds(other, range(shared))
    assert holds(first, range(100))


def test_what_is_told_does_not_depend_on_what_another_left() -> None:
    strands = make()
    for salt, size in (("bob", 90), ("ann", 40)):
        strand = taken(strands, range(size), salt=salt, num_shareable=100)
        fill(strand, range(strand.length, size))
        strands.release(strand)
    again = taken(strands, range(100), num_shareable=100)
    assert (again.length, again.num_own) == (90, 40), "the other's goes further, one's own is told"


def test_what_has_no_salt_is_lent_to_nobody_and_ends_with_its_request() -> None:
    strands = make()
    nameless = taken(strands, range(100), salt="", num_shareable=100)
    fill(nameless, range(100))
    for salt in ("", "ann"):
        strand = taken(strands, range(100), salt=salt, num_shareable=100)
        assert strand.length == 0
        strands.drop(strand)
    strands.release(nameless)
    assert len(strands) == 0


def test_a_forgotten_salt_loses_idle_strands_at_once_and_busy_ones_when_released() -> None:
    strands = make()
    idle, busy = taken(strands, range(100)), taken(strands, range(500, 600))
    fill(idle, range(100))
    fill(busy, range(500, 600))
    strands.release(idle)
    others = taken(strands, range(900, 960), salt="bob")
    fill(others, range(900, 960))
    strands.forget_salts({"ann"})
    assert len(strands) == 2
    assert taken(strands, range(100)).length == 0
    assert taken(strands, range(500, 600)).length == 0, "nobody takes of a busy one either"
    assert holds(busy, range(500, 600)), "who computes on it goes on"
    strands.release(busy)
    strands.release(others)
    assert taken(strands, range(900, 961), salt="bob").length == 60


@given(st.data())
def test_whatever_others_do_the_same_requests_find_the_same(data: st.DataObject) -> None:
    """One salt's requests, once alone and once between those of others, some of which share its very words."""
    small = st.tuples(st.integers(1, 90), st.integers(0, 2), st.integers(1, 60))
    mine = data.draw(st.lists(small, min_size=1, max_size=6))
    theirs = data.draw(
        st.lists(st.lists(st.tuples(st.sampled_from(["bob", "eve"]), small), max_size=3), min_size=6, max_size=6)
    )

    def ask(strands: Strands[TensorStorage], salt: str, drawn: tuple[int, int, int]) -> int:
        trunk, branch, size = drawn
        prompt = [*range(trunk), *range(1000 * branch, 1000 * branch + size)]
        strand = taken(strands, prompt, salt=salt)
        assert holds(strand, prompt[: strand.length])
        fill(strand, prompt[strand.length :])
        strands.release(strand)
        return strand.num_own

    alone, among = make(), make()
    expected = [ask(alone, "ann", drawn) for drawn in mine]
    found = []
    for drawn, others in zip(mine, theirs, strict=False):
        for salt, their in others:
            ask(among, salt, their)
        found.append(ask(among, "ann", drawn))
    assert found == expected
