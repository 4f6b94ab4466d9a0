"""A tools JSON -> the functions and servers that it names.

    [{"type": "function", "function": {"name": "age", "description": …, "parameters": …}, "python": "tools.py:age"},
     {"name": "price", "parameters": …, "command": ["./price.sh"]},
     {"name": "calculator"}]

or, with servers as other programs have them, `{"tools": […], "mcpServers": {"files": {"command": …, "args": […]}}}`.
Beside what a function is, an entry says how it is called: `python`, an import path; `command`, which gets the arguments
as JSON on stdin; or neither for the tools that we bring, `calculator` and `python`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, ValidationError, field_validator, model_validator

from openclaw_rl.errors import ConfigError
from openclaw_rl.types import Json

BROUGHT = ("calculator", "python")
"""Tools that we bring. An entry, or a task, names them and no more."""

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]


class _Entry(BaseModel):
    """Unknown keys are refused: each says something that would have no effect."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FunctionEntry(_Entry):
    """A function. `network`: its box reaches the network."""

    name: _Name
    description: str = ""
    parameters: Mapping[str, Json] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    python: Annotated[str, Field(pattern=r"^[^:]+:[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    timeout_s: PositiveFloat = 30.0
    network: bool = False

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, raw: Json) -> Json:
        """The form in which chat requests name functions holds the same, one level deeper."""
        if isinstance(raw, dict) and isinstance(raw.get("function"), dict):
            return {**raw["function"], **{key: value for key, value in raw.items() if key not in ("function", "type")}}
        return raw

    @property
    def is_callable(self) -> bool:
        """False for one that only names a tool which we bring."""
        return self.python is not None or self.command is not None

    @model_validator(mode="after")
    def _says_how_it_is_called(self) -> Self:
        if (self.python and self.command) or not (self.is_callable or self.name in BROUGHT):
            raise ValueError(
                f"{self.name} must say how it is called: either python, such as tools.py:{self.name}, or command, "
                "which gets the arguments as JSON on stdin"
            )
        return self


class ServerEntry(_Entry):
    """An MCP server: a command, which runs in a box, or a URL."""

    type: Literal["stdio", "http", "streamable-http"] | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict)
    url: str | None = None
    headers: Mapping[str, str] = Field(default_factory=dict)
    timeout_s: PositiveFloat = 60.0
    network: bool = False
    disabled: bool = False

    @field_validator("args", "env", "headers")
    @classmethod
    def _without_placeholders(cls, value: Json) -> Json:
        if "${" in str(value):
            raise ValueError("${…} is not filled in here; write the value itself")
        return value

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("a server has either a command or a url")
        return self


class _ToolsFile(_Entry):
    tools: tuple[FunctionEntry, ...] = ()
    mcpServers: Mapping[_Name, ServerEntry] = Field(default_factory=dict)  # noqa: N815  the field's own name


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsFile:
    """What a tools JSON names. Its `folder` is shown to functions and servers."""

    folder: Path
    functions: Mapping[str, FunctionEntry]
    servers: Mapping[str, ServerEntry]

    @property
    def names(self) -> tuple[str, ...]:
        """What tasks may want of it."""
        return (*self.functions, *self.servers)


def read_tools_file(path: Path) -> ToolsFile:
    """`ConfigError` says what is wrong with it."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        read = _ToolsFile.model_validate({"tools": raw} if isinstance(raw, list) else raw)
    except OSError as error:
        raise ConfigError(f"rollout.tools_config {path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise ConfigError(f"rollout.tools_config {path}: {_first(error)}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"rollout.tools_config {path} is not JSON: {error}") from None
    functions = {entry.name: entry for entry in read.tools}
    if len(functions) < len(read.tools) or functions.keys() & read.mcpServers.keys():
        raise ConfigError(f"rollout.tools_config {path}: two entries have the same name; rename one")
    servers = {name: entry for name, entry in read.mcpServers.items() if not entry.disabled}
    return ToolsFile(folder=path.absolute().parent, functions=functions, servers=servers)


def _first(error: ValidationError) -> str:
    """Where the first fault is, and what it is."""
    fault = error.errors()[0]
    return f"{'.'.join(map(str, fault['loc'])) or 'the file'}: {fault['msg'].removeprefix('Value error, ')}"
