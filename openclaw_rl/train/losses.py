"""`training.custom_loss` names a function: what it may ask for, and whether it asks for nothing else.

A loss of your own gets by name what its parameters ask for:

    def loss(student_logprobs, teacher_logprobs, advantage_mask, clip_ratio=0.2): ...

It returns the loss of each response token [R], unmasked and not averaged, or one number for the whole response; alone,
or with a dictionary of numbers to log. Reads the function's source and never imports it: this runs in the control
process, where torch does not.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Collection
from importlib.machinery import PathFinder
from pathlib import Path

from openclaw_rl.errors import ConfigError
from openclaw_rl.plugins import FORM

SETTING = "training.custom_loss"

LOSS_NAMES = {
    "student_logprobs": "[R] of the response under the weights being trained, with gradient",
    "old_logprobs": "[R] the same before the step",
    "sampled_logprobs": "[R] those of the engine that answered; old_logprobs where they are unknown",
    "teacher_logprobs": "[R] of the hinted teacher; student_logprobs themselves where there is no hint",
    "base_logprobs": "[R] of the base model behind the plain prompt; needs training.kl_coef > 0",
    "response_ids": "[R] the tokens",
    "advantage_mask": "[R] 1.0 where a token counts, else 0.0",
    "advantages": "[R] what credit gave each token",
    "scalar_rewards": "[R] 0 but at the last token that counts, which has the reward of the response",
    "clip_ratio": "training.ppo_clip_ratio",
    "clip_ratio_high": "training.ppo_clip_ratio_high",
    "binary_weight": "the sample's weight of rewards, training.w_rl",
    "opd_weight": "the sample's weight of hints, training.w_opd; 0 without a hint",
    "rows": "objective.rows.Rows: any log-prob of the student's",
    "sample": "objective.sample.SampleTensors",
    "target": "objective.sample.Target: what is fixed during the step",
    "settings": "objective.settings.LossSettings",
}
"""Every name that a loss may have for a parameter. R are the tokens of one response."""

POSITIONAL = ("rows", "sample", "target", "settings")
"""What a function gets in this order whose own names for its four parameters are none of the above."""


def is_by_name(path: str, names: Collection[str], required: Collection[str]) -> bool:
    """Whether a function gets what it asks for by name, or all of `POSITIONAL` in order.

    `ConfigError` if it asks for something that there is not.
    """
    unknown = [name for name in required if name not in LOSS_NAMES]
    if not unknown:
        return True
    if len(required) <= len(POSITIONAL) <= len(names) and not set(names) & set(LOSS_NAMES):
        return False
    raise ConfigError(
        f"{path} of {SETTING} asks for {', '.join(unknown)}, which a loss does not get. It may ask for "
        f"{', '.join(LOSS_NAMES)}; give other parameters a default"
    )


def check_loss(path: str) -> None:
    """`ConfigError` if the source shows that the function cannot be used. What the source hides the trainer finds."""
    where, _, name = path.rpartition(":")
    file = _source(where)
    if file is None:
        return
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as error:
        raise ConfigError(f"{where} of {SETTING} cannot be read: {error}") from error
    for found in tree.body:
        if isinstance(found, ast.FunctionDef) and found.name == name:
            _check(path, found.args)
            return
    if name not in _words(tree):
        raise ConfigError(f"{where} of {SETTING} has no {name!r}; it is written {FORM}")


def _check(path: str, given: ast.arguments) -> None:
    if given.vararg or given.kwarg:
        return
    by_order = [one.arg for one in (*given.posonlyargs, *given.args)]
    by_key = [one.arg for one in given.kwonlyargs]
    required = by_order[: len(by_order) - len(given.defaults)]
    required += [one for one, default in zip(by_key, given.kw_defaults, strict=True) if default is None]
    is_by_name(path, [*by_order, *by_key], required)


def _words(tree: ast.Module) -> set[str]:
    """Every name that the source writes: by an import or an assignment it may give one of them to a function."""
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}


def _source(where: str) -> Path | None:
    """The file, found without an import; None for a module that is no Python source."""
    if where.endswith(".py"):
        return Path(where)
    package, *inside = where.split(".")
    try:
        spec = importlib.util.find_spec(package)
        for num_parts in range(len(inside)):
            folders = spec.submodule_search_locations if spec else None
            name = ".".join([package, *inside[: num_parts + 1]])
            spec = PathFinder.find_spec(name, folders) if folders is not None else None
    except ValueError:  # "", or a module that has no spec
        spec = None
    if spec is None:
        raise ConfigError(f"there is no module {where!r}, which {SETTING} names; it is written {FORM}")
    return Path(spec.origin) if spec.origin is not None and spec.origin.endswith(".py") else None
