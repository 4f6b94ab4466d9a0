"""The settings tree seen as dotted keys: which exist, what they hold, and which one a typo meant.

`LEAVES["gateway.port"]` is the field of a value, `SECTIONS["engine.scripted"]` the class of a branch, and
`SECTIONS[""]` the root.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from openclaw_rl.config.fields import Section
from openclaw_rl.config.tree import Config
from openclaw_rl.errors import ConfigError

KEY_ALIASES = {
    "rollout_config": "rollout",
    "rollout.session_timeout": "rollout.session_timeout_s",
}
"""Other spellings of a key, with the section already in ours: what documented settings files use."""


def _walk(section: type[Section], at: str) -> Iterator[tuple[str, type[Section] | FieldInfo]]:
    yield at, section
    for name, field in section.model_fields.items():
        key = join(at, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _walk(field.annotation, key)
        else:
            yield key, field


def join(at: str, name: str) -> str:
    """The key of `name` in the section at `at`."""
    return f"{at}.{name}" if at else name


_NODES = dict(_walk(Config, ""))
LEAVES: dict[str, FieldInfo] = {key: node for key, node in _NODES.items() if isinstance(node, FieldInfo)}
SECTIONS: dict[str, type[Section]] = {key: node for key, node in _NODES.items() if isinstance(node, type)}


def resolve(key: str, source: str) -> str:
    """`key` in our own spelling; ConfigError with the nearest key if there is none."""
    at = ""
    for name in key.split("."):
        at = join(at, name)
        at = KEY_ALIASES.get(at, at)
        if not name or at not in _NODES:
            raise ConfigError(f"unknown setting {key} ({source}); {suggest(key)}")
    return at


def suggest(key: str) -> str:
    """What a person who wrote `key` most likely wanted."""
    name = key.rpartition(".")[2]
    same_name = [known for known in _NODES if known and known.rpartition(".")[2] == name]
    # That the section exists is no news to whoever wrote a key of it.
    others = [known for known in _NODES if known in LEAVES or (known and not key.startswith(f"{known}."))]
    near = difflib.get_close_matches(key, others, n=1, cutoff=0.6)
    if found := same_name or near:
        return f"did you mean {found[0]}?"
    at = key.partition(".")[0]
    at = at if at in SECTIONS else ""
    return f"{at or 'the tree'} has: {', '.join(SECTIONS[at].model_fields)}"


def either(names: Sequence[str]) -> str:
    """As a person lists them: "a", "a or b", "a, b or c"."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


@dataclass(frozen=True, slots=True)
class Limit:
    """The values of a setting that this release takes, and why it takes no others."""

    takes: tuple[Any, ...]
    why: str

    @property
    def advice(self) -> str:
        """What a person does about it: "leave it at 1", "leave it unset, or at 1"."""
        named = [
            f"{value}".lower() if isinstance(value, bool) else f"{value}" for value in self.takes if value is not None
        ]
        if len(named) == len(self.takes):
            return f"leave it at {named[0]}" if len(named) == 1 else f"set it to {either(named)}"
        return f"leave it unset, or at {either(named)}" if named else "leave it unset"


def limit_of(key: str) -> Limit | None:
    """The limit that this release puts on a setting; None for most."""
    extra = LEAVES[key].json_schema_extra
    if not isinstance(extra, dict) or "takes" not in extra:
        return None
    takes = extra["takes"]
    assert isinstance(takes, list)
    return Limit(tuple(takes), str(extra["why"]))


def kinds(key: str) -> frozenset[type]:
    """The plain types that the setting can hold: {int, NoneType} for `PositiveInt | None`."""
    return frozenset(_plain_types(LEAVES[key].annotation))


def _plain_types(annotation: Any) -> Iterator[type]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _plain_types(get_args(annotation)[0])
    elif origin is Literal:
        yield from (type(value) for value in get_args(annotation))
    elif origin in (Union, UnionType):
        for part in get_args(annotation):
            yield from _plain_types(part)
    elif annotation is None:
        yield NoneType
    else:
        yield origin or annotation
