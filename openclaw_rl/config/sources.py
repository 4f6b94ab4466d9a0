"""Where settings come from: defaults < the preset < files < alias variables < OPENCLAW_RL__ variables < arguments.

Each value remembers who set it. A key that does not exist, in whatever source, is an error that names the nearest one
that does. What a setting means, and what it chooses besides (`presets.py`), is not known here.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails

from openclaw_rl.config.aliases import ALIASES, SYSTEM_ALIASES, Alias
from openclaw_rl.config.fields import FROM_FILE, HIDDEN, mask_passwords
from openclaw_rl.config.keys import LEAVES, SECTIONS, join, kinds, resolve
from openclaw_rl.config.presets import choose, preset_defaults, weights_apart
from openclaw_rl.config.text import parse_for, parse_value, read_file
from openclaw_rl.config.tree import Config
from openclaw_rl.errors import ConfigError

ENV_PREFIX = "OPENCLAW_RL__"
DEFAULT = "default"
COMMAND_LINE = "command line"
_FILE = "_file"
"""How a variable ends that names a file with the value in it."""

Settings = dict[str, Any]
"""Values by dotted key."""


_ADDRESSES = {"evaluation.judge_path": "evaluation.judge_url", "training.teacher_path": "training.teacher_url"}
"""Where a model answers over HTTP, its address is what there is of a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """The settings, and for every key who set it: "default", "preset X", "file a.yaml", "env X", "command line", or
    "chosen by KEY" where another setting made the choice."""

    config: Config
    sources: Mapping[str, str]


def load_config(
    files: Sequence[Path] = (), env: Mapping[str, str] | None = None, overrides: Sequence[str] = ()
) -> LoadedConfig:
    """Read all sources, the later ones stronger. `env` None is the process's own environment."""
    env = os.environ if env is None else env
    layers = (
        # The operating system's conventions move a default; what a person wrote down is stronger.
        _from_aliases(SYSTEM_ALIASES, env),
        *([layer] for layer in _from_files(files)),
        _from_aliases(ALIASES, env),
        _from_env(env),
        _from_overrides(overrides),
    )
    values: Settings = {}
    ranks: dict[str, int] = {}
    sources = dict.fromkeys(LEAVES, DEFAULT)

    def put(settings: Settings, source: str) -> None:
        values.update(settings)
        sources.update(dict.fromkeys(settings, source))

    for rank, layer in enumerate(layers):
        for source, settings in layer:
            for key, value in settings.items():
                _refuse_bool(key, value, source)
                ranks[key] = rank
            put(settings, source)
    for path_key, url_key in _ADDRESSES.items():
        if not str(values.get(path_key, "")).startswith(("http://", "https://")):
            continue
        address, source = values.pop(path_key), sources[path_key]
        if values.get(url_key) not in (None, address):
            raise ConfigError(f"{path_key} ({source}) and {url_key} are two addresses; keep one")
        sources[path_key] = DEFAULT
        ranks[url_key] = ranks.pop(path_key)
        put({url_key: address}, source)
    for target, value, key in choose(values, ranks):
        put({target: value}, f"chosen by {key}")
    put(weights_apart(values), "chosen by training.load_path")
    moved = {key: value for key, value in preset_defaults(values).items() if key not in values}
    put(moved, f"preset {values.get('training.preset', 'default')}")
    try:
        config = Config.model_validate(_nest(values))
    except ValidationError as error:
        raise ConfigError("\n".join(_describe(detail, sources) for detail in error.errors())) from None
    return LoadedConfig(config=config, sources=sources)


def _from_files(files: Sequence[Path]) -> Iterator[tuple[str, Settings]]:
    for path in files:
        source = f"file {path}"
        yield source, _flatten(read_file(path), "", source)


def _from_aliases(aliases: Sequence[Alias], env: Mapping[str, str]) -> Iterator[tuple[str, Settings]]:
    first: dict[str, tuple[str, Any]] = {}
    for alias in aliases:
        # Launch scripts export `X=${X:-}`: empty means that nobody set it.
        text = env.get(alias.variable, "")
        value = alias.value(text) if text else None
        if value is None:
            continue
        other, before = first.setdefault(alias.key, (alias.variable, value))
        if before != value:
            raise ConfigError(f"{other} and {alias.variable} set {alias.key} to different values; unset one of them")
        yield f"env {alias.variable} (alias)", {alias.key: value}


def _from_env(env: Mapping[str, str]) -> Iterator[tuple[str, Settings]]:
    for variable in sorted(env):
        source = f"env {variable}"
        if variable.startswith(ENV_PREFIX):
            path = variable.removeprefix(ENV_PREFIX).lower().replace("__", ".")
            base = path.removesuffix(_FILE)
            if base != path and base in LEAVES and path not in LEAVES:
                yield source, {base: _named_file(base, env[variable], source)}
            else:
                yield source, _from_text(path, env[variable], source)
        elif meant := _variable_meant(variable):
            raise ConfigError(f"unknown setting {variable} ({source}); did you mean {meant}?")


def _named_file(key: str, text: str, source: str) -> str:
    """The value that stands for what is in a file; secrets alone come so, and addresses, which may hold one."""
    if not (SecretStr in kinds(key) or key.endswith(("url", "urls"))):
        raise ConfigError(f"{source}: only secrets and addresses are read from files; set {key} itself")
    return f"{FROM_FILE}{text}"


def _variable_meant(variable: str) -> str | None:
    """The variable of ours that one with another prefix is a slip of the pen for; None if it is somebody else's."""
    if variable.startswith("OPENCLAW_TOPK_"):
        known = [alias.variable for alias in ALIASES]
        return None if variable in known else difflib.get_close_matches(variable, known, n=1, cutoff=0.0)[0]
    squeezed = re.sub("_+", "_", variable.lower())
    for key in LEAVES:
        if squeezed == f"openclaw_rl_{key.replace('.', '_')}":
            return ENV_PREFIX + key.upper().replace(".", "__")
    return None


def _from_overrides(overrides: Sequence[str]) -> Iterator[tuple[str, Settings]]:
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"{override!r} ({COMMAND_LINE}) is not a setting; write section.key=value")
        yield COMMAND_LINE, _from_text(key.strip(), text, COMMAND_LINE)


def _from_text(path: str, text: str, source: str) -> Settings:
    key = resolve(path, source)
    if key in LEAVES:
        return {key: parse_for(key, text)}
    return _flatten(parse_value(text), key, source)


def _flatten(given: Any, at: str, source: str) -> Settings:
    if at in LEAVES:
        return {at: given}
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        names = ", ".join(SECTIONS[at].model_fields)
        raise ConfigError(f"{at or 'the file'} ({source}) must be a mapping of: {names}; got {type(given).__name__}")
    out: Settings = {}
    for name, value in given.items():
        for key, leaf in _flatten(value, resolve(join(at, str(name)), source), source).items():
            if key in out:
                raise ConfigError(f"{key} ({source}) is given twice, under two spellings; keep one")
            out[key] = leaf
    return out


def _nest(values: Settings) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
        branch[name] = value
    return tree


def _refuse_bool(key: str, value: Any, source: str) -> None:
    # Pydantic would read `port: true` as port 1.
    if isinstance(value, bool) and kinds(key) & {int, float} and bool not in kinds(key):
        raise ConfigError(f"{key} = {str(value).lower()} ({source}): expected a number")


def _describe(detail: ErrorDetails, sources: Mapping[str, str]) -> str:
    path = [str(part) for part in detail["loc"]]
    key = next((key for end in range(len(path), 0, -1) if (key := ".".join(path[:end])) in LEAVES), None)
    if key is None:  # a whole section
        return f"{'.'.join(path)}: {detail['msg'].removeprefix('Value error, ')}"
    where = "".join(f"[{part}]" for part in path[key.count(".") + 1 :])
    shown = HIDDEN if SecretStr in kinds(key) else mask_passwords(repr(detail["input"]))
    reason = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "literal_error" and len(legal := get_args(LEAVES[key].annotation)) == 1:
        reason = f"{legal[0]} is the only value: {(LEAVES[key].description or '').rstrip('.')}"
    if detail["type"] == "extra_forbidden":
        reason = f"unknown; an entry of {key} has: {', '.join(get_args(LEAVES[key].annotation)[0].model_fields)}"
    return f"{key}{where} = {shown} ({sources[key]}): {reason}"
