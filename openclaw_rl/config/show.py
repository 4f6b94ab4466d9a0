"""Settings for people: the resolved tree as YAML, a row for each key, and what a start is refused for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from openclaw_rl.config.aliases import ALIASES
from openclaw_rl.config.fields import mask_passwords
from openclaw_rl.config.keys import LEAVES, either, limit_of
from openclaw_rl.config.sources import LoadedConfig
from openclaw_rl.config.text import write_yaml
from openclaw_rl.config.tree import CLOUDS, FOREIGN_ENGINES, Config
from openclaw_rl.errors import ConfigError

_LEARNING = ("evaluation.", "training.", "release.", "rollout.")
_SERVING_TOO = ("training.num_gpus", "training.gpus_per_node", "training.nnodes")
"""How many GPUs and machines somebody means to use concerns a server that only serves as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    """One setting as `openclaw-rl config` shows it."""

    key: str
    value: str
    source: str
    doc: str


def dump(config: Config) -> str:
    """The whole tree as YAML, secrets hidden."""
    return write_yaml(config.model_dump(mode="json"))


def explain(loaded: LoadedConfig) -> list[ConfigRow]:
    """Every setting in tree order, with its value, who set it and what it is for; secrets hidden."""
    tree = loaded.config.model_dump(mode="json")
    return [
        ConfigRow(key=key, value=_show(_at(tree, key)), source=loaded.sources[key], doc=doc_of(key)) for key in LEAVES
    ]


def doc_of(key: str) -> str:
    """What a setting is for, and which values this release takes where it does not take all."""
    doc, limit = LEAVES[key].description or "", limit_of(key)
    return doc if limit is None else f"{doc} Limited: {limit.why}; {limit.advice}."


def require_available(config: Config, *, learn: bool = True) -> None:
    """ConfigError, a line for each setting, where a start asks for more than this release does.

    Without `learn` the settings of judging and training are not looked at, except how many GPUs and machines there are.
    """
    if refusals := list(_refusals(config, learn=learn)):
        raise ConfigError("\n".join(refusals))


def _refusals(config: Config, *, learn: bool) -> Iterator[str]:
    tree = config.model_dump(mode="json")
    for key in LEAVES:
        value, limit = _at(tree, key), limit_of(key)
        if (
            limit is not None
            and value not in limit.takes
            and (learn or key in _SERVING_TOO or not key.startswith(_LEARNING))
        ):
            yield f"{_named(key)} = {_show(value)}: {limit.why}; {limit.advice}"
    serving, training = config.engine.gpu_ids, config.training.gpu_ids
    if len(serving) > 1 and config.engine.replicas == 1 and config.engine.type not in FOREIGN_ENGINES:
        yield (
            f"engine.gpu_ids = {','.join(map(str, serving))}: an engine of this release serves on one GPU; name one, "
            f"such as {serving[0]}, or start an engine on each with engine.replicas={len(serving)}"
        )
    if learn and len(training) > 1:
        gpus = ",".join(map(str, training))
        yield f"training.gpu_ids = {gpus}: this release trains on one GPU; name one, such as {training[0]}"
    yield from _engine_refusals(config, learn=learn)
    weights = {"training.load_path": config.training.load_path}
    if learn:
        weights["training.teacher_load_path"] = config.training.teacher_load_path
    for key, path in weights.items():
        if path is not None and not (path / "config.json").is_file():
            yield (
                f"{_named(key)} = {path}: there is no config.json in it, and this release reads Hugging Face folders "
                "only, no torch-dist checkpoints; name such a folder, or unset it"
            )


def _engine_refusals(config: Config, *, learn: bool) -> Iterator[str]:
    engine, rank = config.engine, config.training.lora_rank
    yield from _cloud_refusals(config)
    if engine.type not in FOREIGN_ENGINES:
        if engine.url is not None:
            yield (
                f"engine.url = {mask_passwords(engine.url)}: engine.type={engine.type} is started here; set "
                f"engine.type to {either(FOREIGN_ENGINES)}, or remove it"
            )
    elif learn and config.training.use_lora and rank > engine.max_lora_rank:
        yield (
            f"training.lora_rank = {rank}: engine.type={engine.type} takes adapters up to rank {engine.max_lora_rank}; "
            "set engine.max_lora_rank higher (8, 16, 32, 64, 128, 256, 320 or 512), or train a lower one"
        )


def _cloud_refusals(config: Config) -> Iterator[str]:
    engine, training, cloud = config.engine.type, config.training.backend, config.training.cloud
    if engine != training and {engine, training} & set(CLOUDS):
        service = engine if engine in CLOUDS else training
        yield (
            f"engine.type = {engine} and training.backend = {training}: {service} serves what it trained itself; set "
            f"both to {service}, or neither"
        )
    elif training == "tinker" and config.training.tinker_api_key is None:
        yield (
            "training.backend = tinker: it needs a key; set TINKER_API_KEY to yours, from Tinker's console, or to any "
            "word that begins with tml- for a server of your own"
        )
    prices = (cloud.price_prefill, cloud.price_sample, cloud.price_train)
    if cloud.daily_budget is not None and None in prices:
        yield (
            f"training.cloud.daily_budget = {cloud.daily_budget:g}: without prices nobody knows what is spent; set "
            "training.cloud.price_prefill, price_sample and price_train, in dollars for a million tokens"
        )


def _named(key: str) -> str:
    """The key with the variables that stand for it: `training.nnodes (variable NNODES)`."""
    variables = [alias.variable for alias in ALIASES if alias.key == key]
    return f"{key} (variable {either(variables)})" if variables else key


def _at(tree: Mapping[str, Any], key: str) -> Any:
    value: Any = tree
    for name in key.split("."):
        value = value[name]
    return value


def _show(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
