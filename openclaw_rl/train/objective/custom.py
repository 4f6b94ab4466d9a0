"""An import path becomes a loss of your own, in place of `hybrid_loss` and with the same signature.

    def loss(rows: Rows, sample: SampleTensors, target: Target, settings: LossSettings) -> tuple[Tensor, Metrics]

`rows` gives the current policy's log-probs with gradient; `target` has what is fixed during the step: log-probs before
it, the teacher's for samples with w_opd > 0, the base model's where kl_coef > 0. The result is the loss of each
response token [R], unmasked and not averaged, and numbers to log. It decides neither the batch nor the passes.
"""

from __future__ import annotations

import inspect

from openclaw_rl.errors import ConfigError
from openclaw_rl.plugins import load_named
from openclaw_rl.train.objective.hybrid import LossFunction

_SETTING = "training.custom_loss"


def load_loss(path: str) -> LossFunction:
    """`package.module:name` or `file.py:name`; ConfigError says what is wrong with it."""
    _, function = load_named(path, _SETTING)
    if not callable(function):
        raise ConfigError(f"{path} of {_SETTING} is a {type(function).__name__}, not a function")
    try:
        inspect.signature(function).bind("rows", "sample", "target", "settings")
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path} of {_SETTING} must take (rows, sample, target, settings): {error}") from error
    loss: LossFunction = function
    return loss
