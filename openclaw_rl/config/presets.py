"""Values that other values choose: presets, and settings that make no sense without another one.

A preset takes the place of class defaults. A choice follows from what somebody set: `evaluation.judge_model=gpt-4` is a
wish for an endpoint judge. Whatever a person sets outright is stronger, unless the choice comes from a stronger source:
`PRM_TEACHER_HF` in the environment beats `teacher: base` in a file. Why the presets differ is in docs/algorithms.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from openclaw_rl.config.keys import LEAVES
from openclaw_rl.errors import ConfigError

_BOOL = TypeAdapter(bool)

_AS_FOR_PEOPLE: Mapping[str, Any] = {"task_batch_size": None, "task_learning_rate": None, "task_epochs": None}

_PUBLISHED: Mapping[str, Any] = {
    **_AS_FOR_PEOPLE,
    "advantage": "raw",
    "binary_weight": 1.0,
    "unhinted_opd": True,
    "distillation": "topk",
    "demonstrations": "off",
    "hint_placement": "last_user",
    "truncated": "score",
    "claims": "learn",
    "accepted_rewrites": False,
    "importance_clip": None,
    "max_staleness": None,
    "replay_max_age": 0,
    "anchors": 0,
    "exercises": 0,
    "logprob_temperature": 0.6,
    "batch_size": 16,
    "max_wait_s": None,
    "learning_rate": 1e-5,
    "num_epochs": 1,
    "adam_betas": (0.9, 0.98),
    "weight_decay": 0.1,
    "batching": "plain",
    "micro_batch_tokens": 4096,
    "use_gradient_checkpointing": True,
    "save_every": 100,
}
_OURS_WITHOUT_ADAPTER: Mapping[str, Any] = {**_AS_FOR_PEOPLE, "learning_rate": 1e-5, "num_epochs": 1}
_CLOUDS = ("tinker", "fireworks")
"""Backends that serve what they train."""
_PUBLISHED_ADAPTER: Mapping[str, Any] = {"lora_rank": 64, "lora_alpha": 64.0, "num_epochs": 2}


def preset_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults that the preset among these values, by dotted key, moves; unknown names are the tree's business."""
    has_adapter = _is_on(values.get("training.use_lora", True), otherwise=True)
    if values.get("training.preset") == "reference":
        chosen = {**_PUBLISHED, **_PUBLISHED_ADAPTER} if has_adapter else _PUBLISHED
    else:
        chosen = {} if has_adapter else _OURS_WITHOUT_ADAPTER
    defaults = {f"training.{name}": value for name, value in chosen.items()}
    if (backend := values.get("training.backend")) in _CLOUDS:  # log-probs of a service are those at temperature 1
        defaults |= {"engine.type": backend, "training.logprob_temperature": 1.0}
    return defaults


@dataclass(frozen=True, slots=True)
class Choice:
    """Whoever sets `key` also chooses `value` for `target`; None stands for the value of `key` itself."""

    key: str
    target: str
    value: Any = None
    also: tuple[str, ...] = ()
    """Values that serve as well, where somebody names one."""


CHOICES = (
    Choice("evaluation.judge_function", "evaluation.judge", ("function",)),
    Choice("evaluation.judge_path", "evaluation.judge", ("auto",), also=("model",)),
    Choice("evaluation.judge_model", "evaluation.judge", ("auto",), also=("endpoint",)),
    Choice("evaluation.judge_url", "evaluation.judge", ("auto",), also=("endpoint",)),
    Choice("training.hint_extraction_model", "evaluation.judge", ("auto",), also=("endpoint",)),
    Choice("training.gae_lambda", "training.advantage", "session_gae"),
    Choice("training.gae_gamma", "training.advantage", "session_gae"),
    Choice("training.value_clip_ratio", "training.value_clip", True),
    Choice("training.value_clip", "training.critic", True),
    Choice("training.value_coef", "training.critic", True),
    Choice("training.batch_size", "training.task_batch_size"),
    Choice("training.learning_rate", "training.task_learning_rate"),
    Choice("training.num_epochs", "training.task_epochs"),
    Choice("training.teacher_load_path", "training.teacher_path"),
    Choice("training.teacher_path", "training.teacher", "path"),
    Choice("training.teacher_url", "training.teacher", "path"),
    Choice("tracking.wandb_api_key", "tracking.wandb_mode", "online"),
)
"""In this order: a target may choose in its turn."""


_STRICT = ("training.advantage", "training.value_clip", "training.critic")
"""Targets that nobody sets against a choice on purpose. The others, such as the judge, a stronger source overrides."""

_LOOSE = (*("tracking.wandb_mode", "training.task_batch_size", "training.task_learning_rate", "training.task_epochs"),)
"""Targets that the same source may set against a choice: a key of W&B serves its offline mode too."""


def choose(values: Mapping[str, Any], ranks: Mapping[str, int]) -> Iterator[tuple[str, Any, str]]:
    """Each (target, value, key that chose it). `ranks` says how strong the source of each value is.

    ConfigError where two settings of one source choose differently, or a switch is set against what depends on it.
    """
    values, ranks = dict(values), dict(ranks)
    chosen_by: dict[str, str] = {}
    for choice in CHOICES:
        key, target = choice.key, choice.target
        rank, rival = ranks.get(key, -1), ranks.get(target, -1)
        if rank < 0 or not _is_set(values[key]):
            continue
        value = values[key] if choice.value is None else choice.value
        before = chosen_by.get(target)
        is_checkpoint = before == "evaluation.judge_function" and key == "evaluation.judge_path"
        serves = any(_holds(values.get(target), (other,)) for other in choice.also)
        if is_checkpoint or serves or _holds(values.get(target), value):
            continue
        if rank < rival or (rank == rival and before is None):  # named outright
            if target in _STRICT or (rank == rival and target not in _LOOSE):
                _refuse_contradiction(chosen_by.get(key, key), values, target)
            continue
        if rank == rival:
            raise ConfigError(
                f"{before} and {key} choose different values of {target}: "
                f"{_shown(values[target])} and {_shown(value)}; set {target} to one of them"
            )
        values[target], ranks[target], chosen_by[target] = value, rank, key
        yield target, value, key


def _refuse_contradiction(key: str, values: Mapping[str, Any], target: str) -> None:
    """A value at its default is no wish: a whole tree that was written to a file can be read again."""
    if _shown(values[key]) != _shown(LEAVES[key].default):
        raise ConfigError(
            f"{key} = {_shown(values[key])} needs another {target} than {_shown(values[target])}: leave one of them out"
        )


def weights_apart(values: Mapping[str, Any]) -> dict[str, Any]:
    """`training.load_path` has the weights that are served and trained, and the checkpoint beside it the tokenizer."""
    if (weights := values.get("training.load_path")) is None:
        return {}
    moved = {"model.checkpoint_path": weights}
    checkpoint = values.get("model.checkpoint_path")
    if values.get("model.tokenizer_path") is None and checkpoint not in (None, weights):
        moved["model.tokenizer_path"] = checkpoint
    return moved


def _holds(given: Any, value: Any) -> bool:
    if not isinstance(value, tuple) or given is None:
        return bool(given == value)
    names = [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)
    return set(value) <= set(names)


def _is_set(value: Any) -> bool:
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    return value is not None and (is_number or _is_on(value, otherwise=True))


def _is_on(written: Any, *, otherwise: bool) -> bool:
    """The switch as the tree will read it: sources write false in several ways. What is no switch is `otherwise`."""
    try:
        return _BOOL.validate_python(written)
    except ValidationError:
        return otherwise


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple | list) else str(value)
