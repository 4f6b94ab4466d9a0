"""Bytes of a file -> what its format says, to the letter; and the parts that formats have in common."""

from __future__ import annotations

from typing import TypeVar

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError, field_validator

from openclaw_rl.errors import OpenClawError
from openclaw_rl.types import Json, Tool
from openclaw_rl.types.checks import require

_Shape = TypeVar("_Shape")


class TrajectoryError(OpenClawError):
    """A file is not what its format says; the message names the file and the place in it."""


class TextPart(BaseModel):
    """A part of a message that has several."""

    type: str
    text: str = ""

    @field_validator("type")
    @classmethod
    def _is_text(cls, value: str) -> str:
        require(value == "text", f"a part of type {value!r} is not kept: sessions hold text alone")
        return value


class _OfferedParts(BaseModel):
    name: str
    description: str | None = None
    parameters: dict[str, Json] | None = None


class OfferedFunction(BaseModel):
    """A tool as OpenAI's chat dialect writes it."""

    function: _OfferedParts

    def to_tool(self) -> Tool:
        function = self.function
        return Tool(name=function.name, description=function.description or "", parameters=function.parameters or {})


def text_of_parts(content: str | list[TextPart] | None) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content or ())


def dumped(shape: TypeAdapter[_Shape], value: _Shape) -> Json:
    """The JSON of notes, every field under its own name."""
    return shape.dump_python(value, mode="json")


def parsed(shape: TypeAdapter[_Shape], raw: bytes, *, file: str) -> _Shape:
    """A file that has this shape to the letter; TrajectoryError names a place where it has not."""
    try:
        orjson.loads(raw)  # refuses what pydantic would read: NaN, numbers without end
        return shape.validate_json(raw, strict=True)
    except orjson.JSONDecodeError as error:
        raise TrajectoryError(f"{file} is no JSON: {error}") from error
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        wrong = max(errors, key=lambda one: len(one["loc"]))  # of a value that may be one of two things, the nearer one
        raise TrajectoryError(f"{file}: {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}") from error
