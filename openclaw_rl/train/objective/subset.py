"""The top-k sets of student and teacher become the tokens that distillation moves at each position.

A subset has a fixed width; `valid` tells its members from empty places. Axes: R response tokens, K top-k width, J width
of the subset: K, or 2K for `union`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from openclaw_rl.train.objective.hints import contained
from openclaw_rl.train.objective.settings import SubsetMode


def subset(student_RK: Tensor, teacher_RK: Tensor, mode: SubsetMode) -> tuple[Tensor, Tensor]:
    """Ids and validity, [R, J]. An overlap can be empty; in a union what both have counts once, as the student's."""
    match mode:
        case "student":
            return student_RK, torch.ones_like(student_RK, dtype=torch.bool)
        case "teacher":
            return teacher_RK, torch.ones_like(teacher_RK, dtype=torch.bool)
        case "overlap":
            return student_RK, contained(student_RK, teacher_RK)
        case "union":
            is_new_RK = ~contained(teacher_RK, student_RK)
            ids_RJ = torch.cat((student_RK, teacher_RK), dim=-1)
            return ids_RJ, torch.cat((torch.ones_like(is_new_RK), is_new_RK), dim=-1)
