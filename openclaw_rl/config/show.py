"""Settings for people: the resolved tree as YAML, a row for each key, and what a start is refused for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from openclaw_rl.config.aliases import ALIASES
from openclaw_rl.config.fields import HIDDEN, mask_passwords
from openclaw_rl.config.keys import LEAVES, either, limit_of
from openclaw_rl.config.machines import machine_refusals
from openclaw_rl.config.sources import LoadedConfig
from openclaw_rl.config.text import write_yaml
from openclaw_rl.config.tree import CLOUDS, FOREIGN_ENGINES, Config, EngineConfig
from openclaw_rl.errors import ConfigError

_LEARNING = ("evaluation.", "training.", "release.", "rollout.")


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
        if limit is not None and value not in limit.takes and (learn or not key.startswith(_LEARNING)):
            yield f"{_named(key)} = {_show(value)}: {limit.why}; {limit.advice}"
    yield from machine_refusals(config, learn=learn, named=_named)
    serving = config.engine.gpu_ids
    if len(serving) > 1 and config.engine.replicas == 1 and config.engine.type not in FOREIGN_ENGINES:
        yield (
            f"engine.gpu_ids = {','.join(map(str, serving))}: an engine of this release serves on one GPU; name one, "
            f"such as {serving[0]}, or start an engine on each with engine.replicas={len(serving)}"
        )
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
    is_foreign, is_attached = engine.type in FOREIGN_ENGINES, engine.url is not None or bool(engine.urls)
    yield from _of_servers(engine) if is_foreign else _of_others(engine)
    if not learn:
        return
    judges = config.evaluation.judge_gpu_ids
    if judges and config.evaluation.judge_path is None:
        yield "evaluation.judge_gpu_ids: they are for the engine on evaluation.judge_path; name that, or remove them"
    if len(judges) > 1 and (is_attached or not is_foreign):
        yield (
            f"evaluation.judge_gpu_ids = {','.join(map(str, judges))}: the judge's engine is the embedded one, which "
            f"computes on one GPU; name one, such as {judges[0]}, or set evaluation.judge_url to a server"
        )
    if is_foreign and config.training.use_lora and rank > engine.max_lora_rank:
        yield (
            f"training.lora_rank = {rank}: engine.type={engine.type} takes adapters up to rank {engine.max_lora_rank}; "
            "set engine.max_lora_rank higher (8, 16, 32, 64, 128, 256, 320 or 512), or train a lower one"
        )


def _of_others(engine: EngineConfig) -> Iterator[str]:
    """What only a server of others follows, where the engine is none."""
    plain = EngineConfig()
    names = ("url", "port", "api_key", "adapter_dir")
    for name in names if engine.type in CLOUDS else (*names, "served_model"):  # a service has names of its own
        if (value := getattr(engine, name)) != getattr(plain, name):
            shown = HIDDEN if name == "api_key" else mask_passwords(str(value))
            yield (
                f"engine.{name} = {shown}: engine.type={engine.type} is started here and has no use for it; set "
                f"engine.type to {either(FOREIGN_ENGINES)}, or remove it"
            )


def _of_servers(engine: EngineConfig) -> Iterator[str]:
    """What names the place of a server, and names none."""
    is_attached = engine.url is not None or bool(engine.urls)
    if engine.port and is_attached:
        yield (
            f"engine.port = {engine.port}: it is for a server that is started here, and engine.url or engine.urls name "
            "what runs already; give one of both"
        )
    if engine.port and engine.replicas > 1:
        yield (
            f"engine.port = {engine.port}: engine.replicas={engine.replicas} servers need a port each; remove it, and "
            "each takes a free one"
        )
    for name in ("api_key", "served_model"):
        if not is_attached and getattr(engine, name) is not None:
            yield f"engine.{name}: it is for a server that runs already; name that with engine.url, or remove it"


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
    elif training == "fireworks" and config.training.fireworks_api_key is None:
        yield (
            "training.backend = fireworks: it needs a key; set FIREWORKS_API_KEY to one of yours that may train, from "
            "Fireworks' console"
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
