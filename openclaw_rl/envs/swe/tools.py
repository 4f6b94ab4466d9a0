"""A call of a tool -> what came of it in the box. Whatever the agent does wrong is an observation.

shell(command)   write_file(path, content)   view(path, start, num_lines)   edit(path, old, new)
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from openclaw_rl.envs.sandbox.box import Box
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Observation, Ran, Tool, ToolCall

_MAX_SHOWN = 12_000
_MAX_FILE = 4 << 20
_WRITE_S = 60.0


def _no_zero(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a zero byte")
    return text


_Line = Annotated[str, AfterValidator(_no_zero)]
"""What becomes an argument of a program."""


class _Call(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Shell(_Call):
    """Runs a command in a shell that keeps its directory and variables between calls."""

    command: _Line = Field(description="What bash runs.")


class _WriteFile(_Call):
    """Writes a whole file, with the folders that it needs. What was there is replaced."""

    path: _Line = Field(description="The file, absolute or below the repository.")
    content: str = Field(description="All that the file holds afterwards.")


class _View(_Call):
    """Shows lines of a text file with their numbers."""

    path: _Line = Field(description="The file, absolute or below the repository.")
    start: int = Field(1, description="The first line to show; lines are counted from 1.", ge=1)
    num_lines: int = Field(200, description="How many lines to show.", ge=1)


class _Edit(_Call):
    """Replaces a passage of a file, which must occur there exactly once."""

    path: _Line = Field(description="The file, absolute or below the repository.")
    old: str = Field(description="The passage as it is in the file, with its indentation.", min_length=1)
    new: str = Field(description="What stands there instead.")


_CALLS: Mapping[str, type[_Call]] = {"shell": _Shell, "write_file": _WriteFile, "view": _View, "edit": _Edit}


def _tool(name: str, call: type[_Call]) -> Tool:
    schema = call.model_json_schema()
    properties = {key: {k: v for k, v in each.items() if k != "title"} for key, each in schema["properties"].items()}
    parameters = {"type": "object", "properties": properties, "required": schema["required"]}
    return Tool(name=name, description=call.__doc__ or "", parameters=parameters)


TOOLS: tuple[Tool, ...] = tuple(_tool(name, call) for name, call in _CALLS.items())


async def use_tool(box: Box, call: ToolCall, *, workdir: str, command_s: float) -> Observation:
    """`EnvError` where the box failed."""
    if call.name not in _CALLS:
        return _wrong(f"there is no tool {call.name!r}; the tools are {', '.join(_CALLS)}")
    try:
        asked = _CALLS[call.name].model_validate_json(call.arguments)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return _wrong(f"{call.name}: {'.'.join(map(str, first['loc'])) or 'arguments'}: {first['msg']}")
    match asked:
        case _Shell():
            return _told(await box.shell(asked.command, timeout_s=command_s), command_s)
        case _WriteFile():
            return await _write(box, _place(workdir, asked.path), asked.content)
        case _View():
            return await _view(box, _place(workdir, asked.path), asked.start, asked.num_lines)
        case _Edit():
            return await _edit(box, _place(workdir, asked.path), asked.old, asked.new)
        case _:
            raise AssertionError(asked)


def _told(ran: Ran, command_s: float) -> Observation:
    output = _cut(ran.output, is_cut=ran.is_cut)
    if ran.exit_code is None:
        return Observation(content=f"{output}\n[stopped after {command_s:g} s; the shell is a new one]", is_error=True)
    if ran.exit_code != 0:  # no fault of the call: tests that fail say so too
        return Observation(content=f"{output}\n[exit code {ran.exit_code}]")
    return Observation(content=output or "[no output]")


async def _write(box: Box, path: str, content: str) -> Observation:
    """Through a shell of the box: it writes what the agent may write, and a file keeps its mode."""
    quoted, folder = shlex.quote(path), shlex.quote(str(PurePosixPath(path).parent))
    ran = await box.run(f"mkdir -p -- {folder} && cat >{quoted}", timeout_s=_WRITE_S, stdin=content.encode())
    return Observation(content=f"wrote {path}") if ran.exit_code == 0 else _wrong(ran.output or f"cannot write {path}")


async def _view(box: Box, path: str, start: int, num_lines: int) -> Observation:
    text = await _text(box, path)
    if isinstance(text, Observation):
        return text
    lines = text.split("\n")[: -1 if text.endswith("\n") else None]
    shown = lines[start - 1 : start - 1 + num_lines]
    if not shown:
        return _wrong(f"{path} has {len(lines)} lines")
    numbered = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(shown, start=start))
    rest = len(lines) - start + 1 - len(shown)
    return Observation(content=_cut(numbered) + (f"\n[{rest} more lines]" if rest else ""))


async def _edit(box: Box, path: str, old: str, new: str) -> Observation:
    text = await _text(box, path)
    if isinstance(text, Observation):
        return text
    if (num := text.count(old)) != 1:
        return _wrong(f"the passage occurs {num} times in {path}; it must occur once" + _about_line_ends(text, old))
    return await _write(box, path, text.replace(old, new))


def _about_line_ends(text: str, old: str) -> str:
    return ". Its lines end in \\r\\n" if old.replace("\n", "\r\n") in text and "\n" in old else ""


async def _text(box: Box, path: str) -> str | Observation:
    try:
        content = await box.read(path, max_bytes=_MAX_FILE)
    except TaskError as error:
        return _wrong(str(error))
    if content is None:
        return _wrong(f"there is no file {path}")
    try:
        return content.decode()
    except UnicodeDecodeError:
        return _wrong(f"{path} is no text in UTF-8")


def _place(workdir: str, path: str) -> str:
    return str(PurePosixPath(workdir) / path)


def _wrong(content: str) -> Observation:
    return Observation(content=content, is_error=True)


def _cut(text: str, *, is_cut: bool = False) -> str:
    """Its beginning and its end, where it is too long to read."""
    if len(text) <= _MAX_SHOWN:
        return text + ("\n[there was more]" if is_cut else "")
    half = _MAX_SHOWN // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
