"""What a client says on its connection -> what our room answers. Knows no sockets.

    reset    opens the room of a task: of a split by its index, or the one of `train` that the seed gives
    step     list_tools, or call_tool; `finish`, a tool that is always there, ends the attempt and has it graded
    state    the attempt, and how many steps it has taken

The rewards of an attempt sum to its grade: what its steps have not given, the last observation does. What the agent
does wrong is told in the result of its call. An environment that fails ends the connection with SESSION_ERROR, so that
nobody takes it for a reward.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson
from pydantic import BaseModel, ValidationError

from openclaw_rl.envs.tasks.openenv.shapes import (
    CallResult,
    CallToolAction,
    CloseMessage,
    ErrorCode,
    ListToolsAction,
    OfferedTool,
    OfferedTools,
    ResetData,
    ResetMessage,
    StateData,
    StateMessage,
    StepMessage,
)
from openclaw_rl.errors import EnvBusy, EnvError, TaskError
from openclaw_rl.protocols import Environment, Room
from openclaw_rl.types import Grade, Json, Observation, Opening, Task, Tool, ToolCall

FINISH: Final = Tool(name="finish", description="Ends the attempt. Call it when the task is done: it is graded then.")

_MESSAGES: Mapping[str, type[BaseModel]] = {
    "reset": ResetMessage,
    "step": StepMessage,
    "state": StateMessage,
    "close": CloseMessage,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptAnswer:
    """`message` is None where there is nothing to say; `is_last`: the connection ends with it."""

    message: Mapping[str, Json] | None
    is_last: bool = False


class Refused(Exception):
    """A message that cannot be answered as asked."""

    def __init__(self, code: ErrorCode, message: str, **more: Json) -> None:
        super().__init__(message)
        self.answer: dict[str, Json] = {"type": "error", "data": {"message": message, "code": code.value, **more}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The tasks of the source that is served. `splits` has `train` and `held_out`, in the order of their indices."""

    splits: Mapping[str, tuple[Task, ...]]

    def find(self, wish: ResetData) -> Task:
        """Refused where there is no such task."""
        split = wish.split or "train"
        tasks = self.splits.get(split, ())
        if not tasks:
            raise Refused(ErrorCode.EXECUTION_ERROR, f"there is no task in split {split!r}")
        if wish.index is None:
            return tasks[(wish.seed or 0) % len(tasks)]
        if wish.index >= len(tasks):
            raise Refused(ErrorCode.EXECUTION_ERROR, f"split {split!r} has {len(tasks)} tasks, not number {wish.index}")
        return tasks[wish.index]


class RemoteAttempt:
    """The room behind one connection; `close` it when that goes."""

    def __init__(self, environment: Environment, catalogue: Catalogue, *, gateway: str) -> None:
        self._environment = environment
        self._catalogue = catalogue
        self._gateway = gateway
        self._room: Room | None = None
        self._opening: Opening | None = None
        self._state = StateData()
        self._given = 0.0
        self._is_done = False

    async def answer(self, raw: str) -> AttemptAnswer:
        try:
            return await self._answer(_read(raw))
        except Refused as refused:
            return AttemptAnswer(message=refused.answer)
        except TaskError as error:
            return AttemptAnswer(message=Refused(ErrorCode.EXECUTION_ERROR, str(error)).answer)
        except EnvBusy as error:
            return AttemptAnswer(message=Refused(ErrorCode.CAPACITY_REACHED, str(error)).answer, is_last=True)
        except EnvError as error:
            return AttemptAnswer(message=Refused(ErrorCode.SESSION_ERROR, str(error)).answer, is_last=True)

    async def close(self) -> None:
        room, self._room, self._opening = self._room, None, None
        if room is not None:
            await room.close()

    async def _answer(self, message: BaseModel) -> AttemptAnswer:
        match message:
            case ResetMessage(data=wish):
                return _observed(await self._reset(wish))
            case StepMessage(data=ListToolsAction()):
                offered = [_offered(tool) for tool in self._tools()]
                return _observed(OfferedTools(tools=offered).model_dump())
            case StepMessage(data=CallToolAction() as action):
                return await self._step(action)
            case StateMessage():
                return AttemptAnswer(message={"type": "state", "data": self._state.model_dump()})
            case _:
                return AttemptAnswer(message=None, is_last=True)

    async def _reset(self, wish: ResetData) -> dict[str, Json]:
        task = self._catalogue.find(wish)
        await self.close()
        self._state = StateData(episode_id=wish.episode_id or secrets.token_hex(8))
        self._given, self._is_done = 0.0, False
        self._room = await self._environment.room(task.ref, gateway=self._gateway, programs={})
        opening = await self._room.open()
        if any(tool.name == FINISH.name for tool in opening.tools):
            await self.close()
            raise TaskError(f"this task has a tool {FINISH.name!r} of its own: it cannot be served over OpenEnv")
        self._opening = opening
        told = "\n\n".join(message.content for message in opening.messages)
        return {"instruction": told, "metadata": {"task": task.ref.name, "timeout_s": opening.timeout_s}}

    def _tools(self) -> tuple[Tool, ...]:
        if self._opening is None:
            raise Refused(ErrorCode.EXECUTION_ERROR, "the tools are those of a task: send a reset first")
        return (*self._opening.tools, FINISH)

    async def _step(self, action: CallToolAction) -> AttemptAnswer:
        if self._room is None or self._opening is None:
            raise Refused(ErrorCode.EXECUTION_ERROR, "no task is open: send a reset first")
        if self._is_done:
            raise Refused(ErrorCode.EXECUTION_ERROR, "the attempt is over; a reset begins another")
        self._state.step_count += 1
        if action.tool_name == FINISH.name:
            seen = Observation(content="The attempt is over.", is_done=True)
        else:
            arguments = orjson.dumps(action.arguments).decode()
            call = ToolCall(id=f"call-{self._state.step_count}", name=action.tool_name, arguments=arguments)
            seen = await self._room.step(call)
        reward, metadata = seen.reward, {}
        if seen.is_done:
            grade = await self._room.evaluate()
            if grade.reward is None:
                raise EnvError(grade.failure)
            reward, metadata = grade.reward - self._given, _graded(grade)
            self._is_done = True
        self._given += reward or 0.0
        content = {"content": [{"type": "text", "text": seen.content}], "data": seen.content, "is_error": seen.is_error}
        result = CallResult(tool_name=action.tool_name, result=content, metadata=metadata)
        return _observed(result.model_dump(), reward=reward, is_done=self._is_done)


def _read(raw: str) -> BaseModel:
    try:
        message = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Refused(ErrorCode.INVALID_JSON, f"Invalid JSON: {error}") from None
    kind = message.get("type") if isinstance(message, dict) else None
    shape = _MESSAGES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        raise Refused(ErrorCode.UNKNOWN_TYPE, f"Unknown message type; known are {', '.join(_MESSAGES)}")
    try:
        return shape.model_validate(message)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        raise Refused(ErrorCode.VALIDATION_ERROR, "Invalid message", errors=errors) from None


def _observed(observation: dict[str, Json], *, reward: float | None = None, is_done: bool = False) -> AttemptAnswer:
    observation = {"metadata": {}, **observation}
    data = {"observation": observation, "reward": reward, "done": is_done}
    if observation["metadata"]:
        data["metadata"] = observation["metadata"]
    return AttemptAnswer(message={"type": "observation", "data": data})


def _offered(tool: Tool) -> OfferedTool:
    schema = dict(tool.parameters) or {"type": "object", "properties": {}}
    return OfferedTool(name=tool.name, description=tool.description, input_schema=schema)


def _graded(grade: Grade) -> dict[str, Json]:
    return {"share": grade.share, "metrics": dict(grade.metrics), "report": grade.report}
