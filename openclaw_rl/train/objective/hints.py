"""The top-k sets of student and teachers become the choice of a hint, and of the tokens that distillation moves.

Candidates are ordered by the length of their hints, the shortest first; the first of several equally good ones wins.
H is a sample's own number of candidates: samples with fewer are not filled up. A subset of the vocabulary has a fixed
width; `valid` tells its members from empty places.

Axes: H hint candidates, R response tokens, K top-k width, J width of the subset: K, or 2K for `union`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from openclaw_rl.train.objective.settings import HintSelection, SubsetMode


def overlap_sizes(student_RK: Tensor, teacher_HRK: Tensor) -> Tensor:
    """How many tokens are in both sets, [H, R]."""
    return contained(student_RK.expand_as(teacher_HRK), teacher_HRK).sum(-1)


def contained(ids_RK: Tensor, others_RK: Tensor) -> Tensor:
    """Which of a row's ids are among the others of the same row."""
    return (ids_RK.unsqueeze(-1) == others_RK.unsqueeze(-2)).any(-1)


def select_hints(overlap_HR: Tensor, mask_R: Tensor, mode: HintSelection) -> Tensor:
    """The chosen candidate of every token, [R]: `sequence_optimal` chooses one for all, `token_optimal` each its own.

    Masked tokens have no say. With nothing to go by, as in an empty response, it is the shortest.
    """
    match mode:
        case "shortest":
            return torch.zeros_like(overlap_HR[0])
        case "sequence_optimal":
            return (overlap_HR * mask_R).sum(-1).argmax(0).expand_as(mask_R)
        case "token_optimal":
            return overlap_HR.argmax(0)


def subset(student_RK: Tensor, teacher_RK: Tensor, mode: SubsetMode) -> tuple[Tensor, Tensor]:
    """Ids and validity, [R, J]. An overlap can be empty; in a union what both have counts once, as the student's."""
    match mode:
        case "student":
            return whole(student_RK)
        case "teacher":
            return whole(teacher_RK)
        case "overlap":
            return student_RK, contained(student_RK, teacher_RK)
        case "union":
            is_new_RK = ~contained(teacher_RK, student_RK)
            ids_RJ = torch.cat((student_RK, teacher_RK), dim=-1)
            return ids_RJ, torch.cat((torch.ones_like(is_new_RK), is_new_RK), dim=-1)


def whole(ids_RJ: Tensor) -> tuple[Tensor, Tensor]:
    """These ids, each of them a member."""
    return ids_RJ, torch.ones_like(ids_RJ, dtype=torch.bool)
