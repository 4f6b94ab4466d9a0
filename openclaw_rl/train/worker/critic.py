"""Hidden rows -> what to expect of the answer, token by token: the head that `training.critic` trains.

One linear row with a bias on the student's final hidden rows. It starts at zero and computes in float32. It reads the
rows without gradient: however it learns, it never moves the policy. Knows no loss, no optimiser and no file.

Axes: R response tokens, H hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor

from openclaw_rl.errors import TrainError


class Critic:
    """`parameters` are what the optimiser moves, as those of a student."""

    def __init__(self, weight_H: Tensor, bias: Tensor) -> None:
        self.parameters = [weight_H.requires_grad_(), bias.requires_grad_()]

    @classmethod
    def new(cls, hidden_size: int, *, device: torch.device) -> Self:
        """Expects nothing yet."""
        return cls(torch.zeros(hidden_size, device=device), torch.zeros(1, device=device))

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], hidden_size: int, *, device: torch.device) -> Self:
        """The inverse of `tensors`."""
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if shapes != {"weight": (hidden_size,), "bias": (1,)}:
            raise TrainError(f"the checkpoint's critic is {shapes}, which does not fit {hidden_size} hidden numbers")
        return cls(*(tensors[name].to(device, torch.float32) for name in ("weight", "bias")))

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps of it."""
        weight_H, bias = self.parameters
        return {"weight": weight_H.detach(), "bias": bias.detach()}

    def __call__(self, rows_RH: Tensor) -> Tensor:
        """[R], with gradient for the head alone."""
        weight_H, bias = self.parameters
        return rows_RH.detach().to(weight_H.dtype) @ weight_H + bias
