"""An import path becomes a loss of your own, in place of `hybrid_loss`; losses.py says what it may ask for.

It decides neither the batch nor the passes.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from openclaw_rl.errors import ConfigError
from openclaw_rl.plugins import load_named
from openclaw_rl.train.losses import LOSS_NAMES, SETTING, is_by_name
from openclaw_rl.train.objective.hybrid import LossFunction, Metrics
from openclaw_rl.train.objective.rows import Rows
from openclaw_rl.train.objective.sample import SampleTensors, Target
from openclaw_rl.train.objective.settings import LossSettings


def load_loss(path: str) -> tuple[LossFunction, bool]:
    """`package.module:name` or `file.py:name`; and whether it asks for the teacher's log-probs of the response.

    `ConfigError` says what is wrong with it.
    """
    _, function = load_named(path, SETTING)
    if not callable(function):
        raise ConfigError(f"{path} of {SETTING} is a {type(function).__name__}, not a function")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path} of {SETTING} does not say what it asks for: {error}") from error
    named = [one.name for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    required = [one.name for one in parameters if one.name in named and one.default is one.empty]
    if len(named) < len(parameters) and not required:
        by_name = False  # it takes whatever comes
    else:
        by_name = is_by_name(path, named, required)
    wanted = [name for name in named if name in LOSS_NAMES] if by_name else []

    def loss(rows: Rows, sample: SampleTensors, target: Target, settings: LossSettings) -> tuple[Tensor, Metrics]:
        if not by_name:
            return _told(function(rows, sample, target, settings), sample)
        given = _Given(rows, sample, target, settings)
        return _told(function(**{name: getattr(given, name) for name in wanted}), sample)

    return loss, "teacher_logprobs" in wanted


@dataclass(frozen=True)
class _Given:
    """What `LOSS_NAMES` promises; computed when it is asked for."""

    rows: Rows
    sample: SampleTensors
    target: Target
    settings: LossSettings

    @cached_property
    def student_logprobs(self) -> Tensor:
        return self.rows.logprob(self.response_ids.unsqueeze(-1)).squeeze(-1)

    @property
    def old_logprobs(self) -> Tensor:
        return self.target.old

    @property
    def sampled_logprobs(self) -> Tensor:
        return self.target.old if self.sample.sampled is None else self.sample.sampled

    @property
    def teacher_logprobs(self) -> Tensor:
        """Without a teacher the student itself, gradient and all: every gap is 0 then, and moves nothing."""
        guidance = self.target.guidance
        return self.student_logprobs if guidance is None else guidance.teacher[:, 0]

    @property
    def base_logprobs(self) -> Tensor:
        if self.target.base is None:
            raise ConfigError(f"{SETTING} asks for base_logprobs: set training.kl_coef above 0")
        return self.target.base

    @property
    def response_ids(self) -> Tensor:
        return self.sample.response_ids

    @property
    def advantage_mask(self) -> Tensor:
        return self.sample.mask.to(self.sample.advantages.dtype)

    @property
    def advantages(self) -> Tensor:
        return self.sample.advantages

    @property
    def scalar_rewards(self) -> Tensor:
        """As the critic has it: what credit gave the last token that counts is the reward of the response."""
        is_last_R = self.sample.mask & (self.sample.mask.flip(0).cumsum(0).flip(0) == 1)
        return self.sample.advantages * is_last_R

    @property
    def clip_ratio(self) -> float:
        return self.settings.clip_low

    @property
    def clip_ratio_high(self) -> float:
        return self.settings.clip_high

    @property
    def binary_weight(self) -> float:
        return self.sample.w_rl

    @property
    def opd_weight(self) -> float:
        return self.sample.w_opd


def _told(said: Any, sample: SampleTensors) -> tuple[Tensor, Metrics]:
    """What a function returned, as a loss for each token and metrics without gradient."""
    loss, metrics = said if isinstance(said, tuple) else (said, {})
    if not isinstance(loss, Tensor) or not isinstance(metrics, Mapping):
        raise ConfigError(f"{SETTING} returned {type(said).__name__}; return a tensor, alone or with a dict of numbers")
    if loss.dim() == 0:  # a mean over the response is what each of its tokens has
        loss = loss.expand(len(sample.response_ids))
    return loss, {name: torch.as_tensor(value, device=loss.device) for name, value in metrics.items()}
