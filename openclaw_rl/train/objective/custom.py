"""An import path becomes a loss of your own, in place of `hybrid_loss` and with the same signature.

    def loss(rows: Rows, sample: SampleTensors, target: Target, settings: LossSettings) -> tuple[Tensor, Metrics]

`rows` gives the current policy's log-probs with gradient; `target` has what is fixed during the step: log-probs before
it, the teacher's for samples with w_opd > 0, the base model's where kl_coef > 0. The result is the loss of each
response token [R], unmasked and not averaged, and numbers to log. It decides neither the batch nor the passes.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

from openclaw_rl.errors import ConfigError
from openclaw_rl.train.objective.hybrid import LossFunction


def load_loss(path: str) -> LossFunction:
    """`package.module:name` or `file.py:name`; ConfigError says what is wrong with it."""
    place, _, name = path.rpartition(":")
    if not place or not name:
        raise ConfigError(f"a loss is named package.module:name or file.py:name, got {path!r}")
    try:
        module = _module(place)
    except (ImportError, OSError, SyntaxError) as error:
        raise ConfigError(f"the loss {path!r} cannot be imported: {error}") from error
    function: LossFunction | None = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"the loss {path!r} is not there: {place} has no function {name}")
    try:
        inspect.signature(function).bind("rows", "sample", "target", "settings")
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the loss {path!r} must take (rows, sample, target, settings): {error}") from error
    return function


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    spec = importlib.util.spec_from_file_location(Path(place).stem, place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
