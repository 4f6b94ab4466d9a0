"""Calls of tools that work in a box -> observations. What the agent does wrong is one, too.

shell(command)   write_file(path, content)   view(path, start, num_lines)   edit(path, old, new)

They know no task: tracks choose which of them they offer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from openclaw_rl.envs.sandbox.box import Box
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Observation, Ran, Tool, ToolCall

MAX_SHOWN_CHARS = 12_000
_MAX_FILE_BYTES = 4 << 20
_WRITE_S = 60.0


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("a zero byte cannot be in it")
    return text


_Argument = Annotated[str, AfterValidator(_without_nul)]


class _BoxCall(BaseModel):
    model_config = ConfigDict(strict=True)


class ShellCall(_BoxCall):
    """Runs a command in a shell that keeps its directory and its variables between calls."""

    command: _Argument = Field(description="What bash runs.")


class WriteFileCall(_BoxCall):
    """Writes a whole file, and the folders on the way to it."""

    path: _Argument = Field(description="The file, absolute or below the working directory.", min_length=1)
    content: str = Field(description="Everything that is in the file afterwards.")


class ViewCall(_BoxCall):
    """Shows lines of a text file with their numbers."""

    path: _Argument = Field(description="The file, absolute or below the working directory.", min_length=1)
    start: int = Field(default=1, ge=1, description="The first line to show; lines are counted from 1.")
    num_lines: int = Field(default=200, ge=1, description="How many lines to show.")


class EditCall(_BoxCall):
    """Replaces a passage of a file, which must occur there exactly once."""

    path: _Argument = Field(description="The file, absolute or below the working directory.", min_length=1)
    old: str = Field(description="The passage as it is in the file, with its indentation.", min_length=1)
    new: str = Field(description="What stands there instead.")


CALLS: dict[str, type[_BoxCall]] = {"shell": ShellCall, "write_file": WriteFileCall, "view": ViewCall, "edit": EditCall}


def tool(name: str) -> Tool:
    """As it is offered to the model."""
    schema = CALLS[name].model_json_schema()
    properties = {key: {k: v for k, v in one.items() if k != "title"} for key, one in schema["properties"].items()}
    return Tool(
        name=name,
        description=schema["description"],
        parameters={"type": "object", "properties": properties, "required": schema["required"]},
    )


async def use_tool(box: Box, call: ToolCall, offered: Sequence[str], *, workdir: str, command_s: float) -> Observation:
    """`EnvError` where the box failed. `workdir`: where relative paths begin; `command_s`: what a command may take."""
    if call.name not in offered:
        return wrong(f"there is no tool {call.name!r}; call {' or '.join(offered)}")
    try:
        asked = CALLS[call.name].model_validate_json(call.arguments)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the arguments"
        return wrong(f"{call.name}: {place}: {first['msg'].removeprefix('Value error, ')}")
    match asked:
        case ShellCall():
            return told(await box.shell(asked.command, timeout_s=command_s), command_s)
        case WriteFileCall():
            return await _write(box, str(PurePosixPath(workdir, asked.path)), asked.content)
        case ViewCall():
            return await _view(box, str(PurePosixPath(workdir, asked.path)), asked)
        case EditCall():
            return await _edit(box, str(PurePosixPath(workdir, asked.path)), asked)
        case _:
            raise AssertionError(asked)


def told(ran: Ran, command_s: float) -> Observation:
    """What a command printed, and how it ended where that was not well."""
    output = _shortened(ran.output) + "\n[there was more]" * ran.is_cut
    if ran.exit_code is None:
        return Observation(content=f"{output}\n[stopped after {command_s:g} s; the shell is a new one]", is_error=True)
    if ran.exit_code != 0:  # no fault of the call: tests that fail, and a search without a find, say so too
        return Observation(content=f"{output}\n[exit code {ran.exit_code}]".lstrip("\n"))
    return Observation(content=output or "[no output]")


def wrong(content: str) -> Observation:
    return Observation(content=content, is_error=True)


async def _write(box: Box, path: str, content: str) -> Observation:
    # Through a program of the box, which writes what the agent itself may write, and answers what it may not.
    command = 'mkdir -p -- "$(dirname -- "$OUT")" && cat > "$OUT"'
    ran = await box.run(command, timeout_s=_WRITE_S, env={"OUT": path}, stdin=content.encode(errors="replace"))
    if ran.exit_code != 0:
        return wrong(f"{path} was not written: {_shortened(ran.output).strip()}")
    return Observation(content=f"wrote {path}")


async def _view(box: Box, path: str, asked: ViewCall) -> Observation:
    text = await _text(box, path)
    if isinstance(text, Observation):
        return text
    lines = text.removesuffix("\n").split("\n") if text else []
    shown = lines[asked.start - 1 : asked.start - 1 + asked.num_lines]
    if not shown:
        return wrong(f"{path} has {len(lines)} lines") if lines else Observation(content="[an empty file]")
    numbered = _shortened("\n".join(f"{number:6}\t{line}" for number, line in enumerate(shown, start=asked.start)))
    left = len(lines) - (asked.start - 1) - len(shown)
    rest = f"\n[{left} more lines, from {asked.start + len(shown)}]" if left else ""
    return Observation(content=numbered + rest)


async def _edit(box: Box, path: str, asked: EditCall) -> Observation:
    text = await _text(box, path)
    if isinstance(text, Observation):
        return text
    if (num := text.count(asked.old)) != 1:
        ends = asked.old.replace("\n", "\r\n")
        why = ". Its lines end in \\r\\n" if ends != asked.old and ends in text else ""
        return wrong(f"the passage occurs {num} times in {path}; it must occur once{why}")
    return await _write(box, path, text.replace(asked.old, asked.new))


async def _text(box: Box, path: str) -> str | Observation:
    """A file's text; what is wrong with it where there is none."""
    try:
        content = await box.read(path, max_bytes=_MAX_FILE_BYTES)
    except TaskError as error:
        return wrong(str(error))
    if content is None:
        return wrong(f"there is no file {path}")
    try:
        return content.decode()
    except UnicodeDecodeError:
        return wrong(f"{path} is no text in UTF-8")


def _shortened(text: str) -> str:
    """Its beginning and its end where it is too long to read."""
    if len(text) <= MAX_SHOWN_CHARS:
        return text.rstrip("\n")
    half = MAX_SHOWN_CHARS // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}".rstrip("\n")
