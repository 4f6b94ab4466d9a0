"""What goes over HTTP between `client` and `http`: JSON on the outside, the types of `types` inside. Validated here.

    POST /leases/1f0c9a77d2b4e680/exec {"key": "3", "command": "ls", "timeout_s": 60.0, "env": {}}
    200 {"value": {"exit_code": 0, "output": "notes.txt\\n", "is_cut": false}}
    202 {}                                                                    it still runs: ask again with the same key
    410 {"kind": "gone", "message": "lease 1f0c9a77d2b4e680 has ended: it had no heartbeat for 60 s"}

Numbers that JSON does not have travel as NaN, Infinity and -Infinity.
"""

from __future__ import annotations

import math
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from openclaw_rl.errors import EnvBusy, EnvError, EnvGone, OpenClawError, RequestError, TaskError
from openclaw_rl.types import Json, TaskRef, ToolCall

HOLD_S = 20.0
"""How long the server holds a request whose call still runs. A connection that is silent for longer is broken."""

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""The list of all tasks is the longest answer."""

_Value = TypeVar("_Value")
_Name = Annotated[str, Field(min_length=1, max_length=200)]
_DAY_S = 24 * 3600.0


class Body(BaseModel):
    """Nothing is coerced, nothing unknown let in; the dataclasses in it are checked likewise."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, ser_json_inf_nan="constants")


class NoBody(Body):
    """For calls that say everything with their address."""


class AllocateBody(Body):
    task: TaskRef
    request_id: _Name


class ResetBody(Body):
    key: _Name
    gateway: Annotated[str, Field(max_length=2000)]
    harness: Annotated[str, Field(max_length=200)]


class SolveBody(Body):
    key: _Name


class StepBody(Body):
    key: _Name
    call: ToolCall


class ExecBody(Body):
    key: _Name
    command: str
    timeout_s: Annotated[float, Field(gt=0, le=_DAY_S)]
    env: dict[str, str]


class Answer(Body, Generic[_Value]):
    """What a call came to."""

    value: _Value


RefusalKind = Literal["busy", "gone", "task", "env", "request"]

_KINDS: tuple[tuple[type[OpenClawError], RefusalKind, int], ...] = (
    (EnvBusy, "busy", 429),
    (EnvGone, "gone", 410),
    (TaskError, "task", 422),
    (OpenClawError, "env", 424),
)
"""The first that fits. Of errors of other kinds, such as a harness that is not installed, the words arrive."""


class Refusal(Body):
    """Why a call came to nothing."""

    kind: RefusalKind
    message: str
    retry_after_s: float | None = None

    @property
    def error(self) -> OpenClawError:
        """What the caller is to see."""
        match self.kind:
            case "busy":
                return EnvBusy(self.message, retry_after_s=self.retry_after_s or 1.0)
            case "gone":
                return EnvGone(self.message)
            case "task":
                return TaskError(self.message)
            case "env" | "request":
                return EnvError(self.message)


def refused(error: OpenClawError) -> tuple[int, dict[str, str], Refusal]:
    """An error as the status, the headers and the body of an answer."""
    if isinstance(error, RequestError):
        return error.status, {}, Refusal(kind="request", message=str(error))
    kind, status = next((kind, status) for family, kind, status in _KINDS if isinstance(error, family))
    if not isinstance(error, EnvBusy):
        return status, {}, Refusal(kind=kind, message=str(error))
    headers = {"Retry-After": str(math.ceil(error.retry_after_s))}
    return status, headers, Refusal(kind=kind, message=str(error), retry_after_s=error.retry_after_s)


Status = dict[str, Json]
"""What `GET /status` tells."""
