"""The tokens that distillation moves, for each of the four modes."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.train.objective.hints import subset
from openclaw_rl.train.objective.settings import SubsetMode
from tests.unit.train.objective import plain

MODES: tuple[SubsetMode, ...] = get_args(SubsetMode)
ids = st.permutations(range(6)).map(lambda drawn: list(drawn[:3]))


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=5), st.sampled_from(MODES))
def test_each_member_stands_there_once(rows: list[tuple[list[int], list[int]]], mode: SubsetMode) -> None:
    student, teacher = torch.tensor(rows).unbind(1)
    ids_RJ, valid_RJ = subset(student, teacher, mode)
    assert ids_RJ.shape == valid_RJ.shape == (len(rows), 6 if mode == "union" else 3)
    for (one, other), members, valid in zip(rows, ids_RJ, valid_RJ, strict=True):
        found = members[valid].tolist()
        assert sorted(found) == sorted(plain.subset(one, other, mode))


@pytest.mark.parametrize(
    ("mode", "members"),
    [("student", [[1, 2], [1, 2]]), ("teacher", [[2, 3], [4, 3]]), ("overlap", [[2], []]), ("union", None)],
)
def test_by_hand(mode: SubsetMode, members: list[list[int]] | None) -> None:
    ids_RJ, valid_RJ = subset(torch.tensor([[1, 2], [1, 2]]), torch.tensor([[2, 3], [4, 3]]), mode)
    found = [row[valid].tolist() for row, valid in zip(ids_RJ, valid_RJ, strict=True)]
    assert found == (members or [[1, 2, 3], [1, 2, 4, 3]])
