"""Text to values and back: files, single values from variables and arguments, and the YAML that we write.

YAML here is the core schema of YAML 1.2, a superset of JSON: `1e-6` is a number, `no` and `2026-01-01` are text.
PyYAML alone reads 1.1, where `1e-6` is text, `010` is eight and `off` is false. A key given twice is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from types import NoneType
from typing import Any

import yaml
from pydantic import SecretStr

from openclaw_rl.config.keys import kinds
from openclaw_rl.errors import ConfigError

_CORE_SCALARS = (
    ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        re.compile(r"^(?:[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan)$"),
        list("-+.0123456789"),
    ),
)


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys differ; PyYAML would let the last one win in silence."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        _refuse_repeated([str(key) for key in keys])
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.1 *or* our loader would take for something else than text."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # PyYAML writes U+0085 and its like plain and reads them back as line breaks; double quotes escape them.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_Dumper.add_representer(str, _represent_text)
_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in _CORE_SCALARS:
    _Loader.add_implicit_resolver(_tag, _pattern, _first)
    _Dumper.add_implicit_resolver(_tag, _pattern, _first)


def read_file(path: Path) -> Any:
    """The contents of a settings file: JSON by its name, else YAML."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            return json.loads(text, object_pairs_hook=_object)
        return yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the settings file {path}: {error}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"the settings file {path} is malformed: {error}") from error


def parse_value(text: str) -> Any:
    """One YAML value; what is no YAML is text."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, ValueError):
        return text


def parse_for(key: str, text: str) -> Any:
    """`text` as a value for `key`, from a variable or an argument.

    A setting that holds text takes it as it stands (a key `0123` or `true` is no number), a list also takes
    `a,b`, and everything else is YAML.
    """
    takes = kinds(key)
    if takes & {str, SecretStr, Path}:
        return None if text == "null" and NoneType in takes else text
    value = parse_value(text)
    if tuple in takes and not isinstance(value, (list, dict)):
        return [part.strip() for part in text.split(",") if part.strip()]
    return value


def write_yaml(tree: Any) -> str:
    """YAML that `read_file` reads back as it was."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_repeated([key for key, _ in pairs])
    return dict(pairs)


def _refuse_repeated(keys: Iterable[str]) -> None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise ValueError(f"{key} is given twice; keep one")
        seen.add(key)
