"""Tools of one attempt, whatever answers their calls. Arguments are checked before they come here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from openclaw_rl.types import Json, Observation, Tool

Arguments = Mapping[str, Json]


class CallFault(Exception):
    """A call is at fault. The message is what the model reads: what is wrong, and what would be right."""


class Toolbox(Protocol):
    """Tools, and what answers their calls. `EnvError` where it failed; what the call did wrong is an observation."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    async def call(self, name: str, arguments: Arguments) -> Observation: ...

    async def close(self) -> None:
        """Nothing of it is left. May be called twice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTool:
    """A function of ours: quick, bounded, without effects. It raises `CallFault`."""

    tool: Tool
    function: Callable[[Arguments], str]


class OwnTools:
    """A `Toolbox` of functions of ours. They run where they are called."""

    def __init__(self, own: Sequence[OwnTool]) -> None:
        self.tools = tuple(each.tool for each in own)
        self._functions = {each.tool.name: each.function for each in own}

    async def call(self, name: str, arguments: Arguments) -> Observation:
        try:
            return Observation(content=self._functions[name](arguments))
        except CallFault as fault:
            return Observation(content=str(fault), is_error=True)

    async def close(self) -> None:
        """There is nothing to close."""


def parameters(properties: Mapping[str, Json], *, optional: Sequence[str] = ()) -> dict[str, Json]:
    """The JSON schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
