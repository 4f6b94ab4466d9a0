"""Folding loses nothing: every sequence can be read off the tree, and no token is in it twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.train.passes.sequences import Sequenced
from openclaw_rl.train.tree.fold import Fold, Tree

FEW = st.integers(0, 2)
SEQUENCES = st.lists(
    st.builds(
        Sequenced,
        st.lists(FEW, min_size=1, max_size=8).map(tuple),
        st.lists(FEW, min_size=1, max_size=6).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


def read(sequence: Sequenced) -> tuple[int, ...]:
    return sequence.prompt_ids + sequence.response_ids[:-1]


def seen(tree: Tree, row: int) -> list[int]:
    """What a token sees, itself last, by what paths say."""
    path = next(path for path in tree.paths if path.start <= row < path.stop)
    rows = list(range(path.start, row + 1))
    while path.parent is not None:
        parent = tree.paths[path.parent]
        rows = [*range(parent.start, parent.start + path.offset), *rows]
        path = parent
    return rows


@given(SEQUENCES)
def test_each_token_once_and_each_sequence_whole(sequences: Sequence[Sequenced]) -> None:
    fold = Fold()
    added = [fold.add(sequence) for sequence in sequences]
    tree = fold.tree()
    beginnings = {read(one)[:size] for one in sequences for size in range(1, len(one) + 1)}
    assert len(tree) == sum(added) == len(beginnings)
    for sequence, rows in zip(sequences, tree.rows, strict=True):
        assert len(rows) == len(sequence.response_ids)
        for at, row in enumerate(rows.tolist(), start=len(sequence.prompt_ids) - 1):
            assert tuple(tree.ids[seen(tree, row)]) == read(sequence)[: at + 1]
            assert tree.positions[row] == at


@given(SEQUENCES)
def test_what_leaves_at_the_same_token_lies_in_one_piece(sequences: Sequence[Sequenced]) -> None:
    tree = Fold(sequences).tree()
    end = 0
    for index, path in enumerate(tree.paths):
        children = [one for one in tree.paths if one.parent == index]
        end = path.stop
        for before, child in zip([None, *children], children, strict=False):
            assert child.start == end
            assert 0 < child.offset <= len(path)
            assert before is None or before.offset <= child.offset
            end = child.end
        assert path.end == end
    assert sorted(at for path in tree.paths for at in range(path.start, path.stop)) == list(range(len(tree)))


def test_a_conversation_is_one_path_and_hints_leave_it_in_threes() -> None:
    ids = tuple(range(100, 160))
    turns = [Sequenced(ids[:at], ids[at : at + 10]) for at in (20, 35, 50)]
    assert len(Fold(turns).tree().paths) == 1
    hinted = [Sequenced((*turn.prompt_ids, hint, hint), turn.response_ids) for turn in turns[:2] for hint in (1, 2, 3)]
    tree = Fold([*turns, *hinted]).tree()
    assert [path.offset for path in tree.paths] == [0, 20, 20, 20, 35, 35, 35]
    assert len(tree) == 59 + 6 * (2 + 9)
    assert np.array_equal(tree.rows[0], np.arange(19, 29)), "the first answer is predicted on the way"


def test_the_longest_way_is_the_path() -> None:
    short, long = Sequenced((5, 6), (7, 8)), Sequenced((5, 6), (9, 8, 8, 8))
    tree = Fold([short, long]).tree()
    assert [(path.start, path.stop) for path in tree.paths] == [(0, 5), (5, 6)]
    assert tree.ids.tolist() == [5, 6, 9, 8, 8, 7]


def test_a_conversation_that_is_left_a_thousand_times() -> None:
    ids = tuple(range(100, 1400))
    tree = Fold(Sequenced((*ids[:at], 5), (6, 7)) for at in range(1, 1201)).tree()
    assert len(tree.paths) == 1200
