"""Parts keep their order and their limits, whatever counts."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.train.passes.sequences import Each, Sequenced, in_parts, num_tokens
from openclaw_rl.train.tree.fold import Fold

ITEMS = st.lists(
    st.builds(
        Sequenced,
        st.lists(st.integers(0, 1), min_size=1, max_size=6).map(tuple),
        st.lists(st.integers(0, 1), min_size=1, max_size=3).map(tuple),
    ),
    max_size=10,
)


def one(sequence: Sequenced) -> tuple[Sequenced]:
    return (sequence,)


@given(ITEMS, st.integers(1, 20), st.sampled_from([None, 1, 3]), st.sampled_from([Each, Fold]))
def test_no_part_is_larger_than_it_must_be(
    items: list[Sequenced], max_tokens: int, max_items: int | None, counter: type[Each] | type[Fold]
) -> None:
    parts = list(in_parts(items, one, counter, max_tokens=max_tokens, max_items=max_items))
    assert [item for part in parts for item in part] == items
    for part in parts:
        assert len(part) == 1 or num_tokens(counter(), part) <= max_tokens
        assert max_items is None or len(part) <= max_items
    for part, following in pairwise(parts):
        assert len(part) == max_items or num_tokens(counter(), [*part, following[0]]) > max_tokens


def test_a_conversation_weighs_what_is_new_in_it() -> None:
    ids = tuple(range(40))
    turns = [Sequenced(ids[:at], ids[at : at + 5]) for at in (10, 20, 30)]
    assert [len(part) for part in in_parts(turns, one, Fold, max_tokens=34)] == [3]
    assert [len(part) for part in in_parts(turns, one, Fold, max_tokens=33)] == [2, 1]
    assert [len(part) for part in in_parts(turns, one, Each, max_tokens=38)] == [2, 1]
    assert [len(part) for part in in_parts(turns, one, Each, max_tokens=37)] == [1, 1, 1]
