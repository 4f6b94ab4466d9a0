"""How an attempt at a terminal task begins: what the agent is told, and which tools it has.

    shell         a shell that lasts, a tool that writes files and one that shows them
    one_command   one command as the answer, after examples: what a small model can begin with

A text's first paragraph, or all of it where it has no examples, is the system message. An example is a paragraph of two
lines, a task and its command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files

from openclaw_rl.envs.tools import tool
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Message, Tool

SUBMIT = Tool(
    name="submit",
    description="Your answer.",
    parameters={"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]},
)
"""What an agent says without a call is given to this tool by whoever runs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What comes before the task's own instruction. `is_one_answer`: the attempt ends with the first one."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    is_one_answer: bool = False


def fenced(command: str) -> str:
    return f"```bash\n{command}\n```"


def _shell(workdir: str) -> Start:
    system = _text("shell").replace("{workdir}", workdir)
    return Start(
        messages=(Message(role="system", content=system),), tools=(tool("shell"), tool("write_file"), tool("view"))
    )


def _one_command(workdir: str) -> Start:
    system, *examples = _text("one_command").split("\n\n")
    messages = [Message(role="system", content=system)]
    for example in examples:
        task, command = example.split("\n")
        messages += [Message(role="user", content=task), Message(role="assistant", content=fenced(command))]
    return Start(messages=tuple(messages), tools=(SUBMIT,), is_one_answer=True)


_STARTS: Mapping[str, Callable[[str], Start]] = {"": _shell, "shell": _shell, "one_command": _one_command}


def start(opening: str, workdir: str) -> Start:
    """`TaskError` for an opening that is none."""
    if opening not in _STARTS:
        names = ", ".join(name for name in _STARTS if name)
        raise TaskError(f"[metadata.openclaw_rl] opening is one of {names}; got {opening!r}")
    return _STARTS[opening](workdir)


def _text(name: str) -> str:
    return files("openclaw_rl.envs.terminal.openings").joinpath(f"{name}.txt").read_text("utf-8").strip()
