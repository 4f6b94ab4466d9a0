"""Settings for people: the resolved tree as YAML, a row for each key, and what this release cannot do yet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openclaw_rl.config.keys import LEAVES, is_later
from openclaw_rl.config.sources import LoadedConfig
from openclaw_rl.config.text import write_yaml
from openclaw_rl.config.tree import AVAILABLE_ENGINES, Config
from openclaw_rl.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    """One setting as `openclaw-rl config` shows it. `later`: accepted, and used by a later release."""

    key: str
    value: str
    source: str
    later: bool
    doc: str


def dump(config: Config) -> str:
    """The whole tree as YAML, secrets hidden."""
    return write_yaml(config.model_dump(mode="json"))


def explain(loaded: LoadedConfig) -> list[ConfigRow]:
    """Every setting in tree order, with its value, who set it and what it is for; secrets hidden."""
    tree = loaded.config.model_dump(mode="json")
    return [
        ConfigRow(
            key=key,
            value=_show(_at(tree, key)),
            source=loaded.sources[key],
            later=is_later(key) or (key == "engine.type" and loaded.config.engine.type not in AVAILABLE_ENGINES),
            doc=field.description or "",
        )
        for key, field in LEAVES.items()
    ]


def require_available(config: Config) -> None:
    """Refuse what the tree accepts but this release cannot start."""
    if config.engine.type not in AVAILABLE_ENGINES:
        raise ConfigError(
            f"engine.type = {config.engine.type} comes with a later release; "
            f"this one starts: {', '.join(AVAILABLE_ENGINES)}"
        )


def _at(tree: Mapping[str, Any], key: str) -> Any:
    value: Any = tree
    for name in key.split("."):
        value = value[name]
    return value


def _show(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
