"""What goes over an OpenEnv connection, and its observations as text for an agent. Knows no sockets.

    {"type": "step", "data": {"type": "call_tool", "tool_name": "add", "arguments": {"a": 1}}}
    {"type": "observation", "data": {"observation": {…}, "reward": 0.5, "done": false}}
    {"type": "error", "data": {"message": "…", "code": "VALIDATION_ERROR", …}}

On the socket an action's fields stand in `data` themselves. https://github.com/meta-pytorch/OpenEnv
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from openclaw_rl.types import Json, Tool

MAX_MESSAGE_BYTES = 100 * 2**20
"""What OpenEnv's own client reads at most: observations may hold screenshots."""

MAX_SHOWN_CHARS = 64 * 1024
"""What an agent is shown of one observation; a model's window holds less."""


class ErrorCode(StrEnum):
    """Why a message was not answered as asked."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    FACTORY_ERROR = "FACTORY_ERROR"
    SESSION_ERROR = "SESSION_ERROR"


class _FromClient(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ResetData(_FromClient):
    """Which task: one of a split by its index, or the one that a seed gives."""

    seed: int | None = Field(default=None, ge=0)
    episode_id: str | None = Field(default=None, max_length=255)
    split: str | None = None
    index: int | None = Field(default=None, ge=0)


class ListToolsAction(_FromClient):
    type: Literal["list_tools"]
    metadata: dict[str, Json] = Field(default_factory=dict)


class CallToolAction(_FromClient):
    type: Literal["call_tool"] = "call_tool"
    tool_name: str
    arguments: dict[str, Json] = Field(default_factory=dict)
    metadata: dict[str, Json] = Field(default_factory=dict)


class ResetMessage(_FromClient):
    type: Literal["reset"]
    data: ResetData = ResetData()


class StepMessage(_FromClient):
    type: Literal["step"]
    data: ListToolsAction | CallToolAction


class StateMessage(_FromClient):
    type: Literal["state"]


class CloseMessage(_FromClient):
    type: Literal["close"]


class StepResult(BaseModel):
    """The data of an observation."""

    observation: dict[str, Json]
    reward: FiniteFloat | None = None
    done: bool = False


class StateData(BaseModel):
    episode_id: str | None = None
    step_count: int = 0


class OfferedTool(BaseModel):
    """A tool as OpenEnv lists it."""

    name: str = Field(min_length=1)
    description: str = ""
    input_schema: dict[str, Json] = Field(default_factory=dict)

    def to_tool(self) -> Tool:
        return Tool(name=self.name, description=self.description, parameters=self.input_schema)


class ToolFailure(BaseModel):
    error_type: str
    message: str


class OfferedTools(BaseModel):
    tools: list[OfferedTool]


class CallResult(BaseModel):
    """The observation of a call of a tool. `result` holds what the tool itself says, also of its own errors."""

    tool_name: str
    result: Json = None
    error: ToolFailure | None = None
    metadata: dict[str, Json] = Field(default_factory=dict)


class CallObservation(CallResult):
    """With the two fields that travel beside the observation: what `/schema` shows."""

    reward: float | None = None
    done: bool = False


class ServerRefusal(BaseModel):
    """The data of an error."""

    message: str
    code: str
    errors: list[Json] = Field(default_factory=list)

    def __str__(self) -> str:
        if not self.errors:
            return self.message
        places = (f"{'.'.join(map(str, one.get('loc', ())))}: {one.get('msg', '')}" for one in self.errors)
        return f"{self.message}: {'; '.join(places)}"


class _Observed(BaseModel):
    type: Literal["observation"]
    data: StepResult


class _Refused(BaseModel):
    type: Literal["error"]
    data: ServerRefusal


class ServerMessage(BaseModel):
    """What a server may answer to a reset or a step."""

    told: Annotated[_Observed | _Refused, Field(discriminator="type")]


class Schemas(BaseModel):
    """The JSON schemas of `/schema`, as far as a client needs them."""

    action: dict[str, Json]

    @property
    def calls_tools(self) -> bool:
        """Whether actions are calls of tools that the server lists. The base class of all takes them too."""
        match self.action:
            case {"properties": {"type": {"const": "call_tool"}, "tool_name": _}}:
                return True
            case {"title": "Action", "properties": {"metadata": _, **others}}:
                return not others
            case _:
                return False

    @property
    def step_parameters(self) -> dict[str, Json]:
        """The action's schema without `metadata`, which is no part of what an agent decides."""
        match self.action:
            case {"properties": {"metadata": _, **others}}:
                return {**self.action, "properties": others}
            case _:
                return self.action


class Metadata(BaseModel):
    """What an environment says of itself."""

    name: str
    description: str = ""


class SplitOffer(BaseModel):
    name: str = Field(min_length=1)
    type: str


class NumTasks(BaseModel):
    num_tasks: int = Field(ge=0)


def text_of(observation: Mapping[str, Json]) -> str:
    """What an agent reads: the only text where there is just one, else JSON of all that is not empty.

    >>> text_of({"prompt": "Guess a word.", "metadata": {"seed": 1}, "hint": None})
    'Guess a word.'
    """
    empty: tuple[Json, ...] = (None, "", [], {})
    told = {name: value for name, value in observation.items() if name != "metadata" and value not in empty}
    match list(told.values()):
        case []:
            return ""
        case [str(text)]:
            return shown(text)
        case _:
            return shown(_json(told))


def text_of_result(result: Json) -> tuple[str, bool]:
    """What a tool says, and whether it calls that an error: MCP's content where it has that form, else JSON."""
    if not isinstance(result, dict) or not isinstance(result.get("content"), list):
        return shown(result if isinstance(result, str) else _json(result)), False
    parts = [part["text"] if _is_text(part) else _json(part) for part in result["content"]]
    return shown("\n".join(parts)), bool(result.get("is_error", result.get("isError", False)))


def shown(text: str) -> str:
    """The text, cut where it is longer than an agent is shown, and saying so."""
    if len(text) <= MAX_SHOWN_CHARS:
        return text
    return f"{text[:MAX_SHOWN_CHARS]}\n[{len(text) - MAX_SHOWN_CHARS} more characters]"


def _is_text(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _json(value: Json) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
