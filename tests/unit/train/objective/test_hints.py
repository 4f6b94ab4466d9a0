"""Which hint teaches: every mode, ties, masks, and samples with fewer candidates."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.train.objective.hints import overlap_sizes, select_hints
from openclaw_rl.train.objective.settings import HintSelection
from tests.unit.train.objective import plain

MODES: tuple[HintSelection, ...] = get_args(HintSelection)


@st.composite
def top_k_sets(draw: st.DrawFn) -> tuple[list[list[int]], list[list[list[int]]], list[bool]]:
    """Student [R][K], teachers [H][R][K] and a mask [R], in a vocabulary so small that overlaps and ties abound."""
    num_tokens, num_hints, width = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    one = st.permutations(range(6)).map(lambda ids: list(ids[:width]))
    rows = st.lists(one, min_size=num_tokens, max_size=num_tokens)
    teachers = draw(st.lists(rows, min_size=num_hints, max_size=num_hints))
    return draw(rows), teachers, draw(st.lists(st.booleans(), min_size=num_tokens, max_size=num_tokens))


@given(top_k_sets(), st.sampled_from(MODES))
def test_overlap_and_choice_are_the_definition(
    sets: tuple[list[list[int]], list[list[list[int]]], list[bool]], mode: HintSelection
) -> None:
    student, teachers, mask = sets
    expected = [[plain.overlap(s, t) for s, t in zip(student, rows, strict=True)] for rows in teachers]
    overlap_HR = overlap_sizes(torch.tensor(student), torch.tensor(teachers))
    assert overlap_HR.tolist() == expected
    assert select_hints(overlap_HR, torch.tensor(mask), mode).tolist() == plain.select(expected, mask, mode)


@given(top_k_sets(), st.sampled_from(MODES))
def test_filling_up_with_copies_would_change_nothing(
    sets: tuple[list[list[int]], list[list[list[int]]], list[bool]], mode: HintSelection
) -> None:
    """The published code repeats a sample's candidates until all samples have the same number."""
    student, teachers, mask = sets
    few = overlap_sizes(torch.tensor(student), torch.tensor(teachers))
    many = overlap_sizes(torch.tensor(student), torch.tensor(teachers * 2))
    assert select_hints(few, torch.tensor(mask), mode).tolist() == select_hints(many, torch.tensor(mask), mode).tolist()


OVERLAPS = torch.tensor([[1, 4, 0, 2], [3, 0, 0, 2], [3, 2, 0, 2]])


@pytest.mark.parametrize(
    ("mode", "mask", "chosen"),
    [
        ("shortest", [1, 1, 1, 1], [0, 0, 0, 0]),
        ("sequence_optimal", [1, 1, 1, 1], [0, 0, 0, 0]),  # 7, 5, 7: the first of the equal ones
        ("sequence_optimal", [1, 0, 1, 1], [1, 1, 1, 1]),  # 3, 5, 5
        ("sequence_optimal", [0, 0, 0, 0], [0, 0, 0, 0]),
        ("token_optimal", [1, 1, 1, 1], [1, 0, 0, 0]),
    ],
)
def test_ties_go_to_the_shortest(mode: HintSelection, mask: list[int], chosen: list[int]) -> None:
    assert select_hints(OVERLAPS, torch.tensor(mask, dtype=torch.bool), mode).tolist() == chosen
