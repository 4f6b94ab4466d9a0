"""A tool-call task: what is asked, with which tools, what counts as done, and how its author does it.

answered   "What is 12 + 45?"                 submit(answer="57")              the final text is compared
called     "Weather in Oslo for 3 days?"      get_weather(city="Oslo", days=3) the call itself is the answer
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from openclaw_rl.envs.toolcall.answers import Check
from openclaw_rl.envs.toolcall.tools.toolbox import Arguments, OwnTool, parameters
from openclaw_rl.types import Json, Message, Split, Tool, ToolCall

SUBMIT = Tool(
    name="submit",
    description="Give the final answer. This ends the task.",
    parameters=parameters({"answer": {"type": ["string", "number"], "description": "The answer and nothing else"}}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call that reached its tool."""

    name: str
    arguments: Arguments
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What an attempt left behind: the answer it gave, if any, and the calls that reached their tools."""

    answer: str | None = None
    calls: tuple[Called, ...] = ()
    num_faults: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """How much of a goal is reached, and for people what is missing. It never says what would have been right."""

    share: float
    report: str


class Goal(Protocol):
    """What counts as done. `is_a_call`: the first call that reaches its tool ends the attempt."""

    @property
    def is_a_call(self) -> bool: ...

    async def read(self, left: Left) -> Finding: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGoal:
    """The final answer is the reference."""

    reference: str
    check: Check
    is_a_call: bool = field(default=False, init=False)

    async def read(self, left: Left) -> Finding:
        if left.answer is None:
            return Finding(share=0.0, report="No answer was given.")
        if self.check.accepts(left.answer, self.reference):
            return Finding(share=1.0, report="The answer is right.")
        return Finding(share=0.0, report=f"The answer given, {left.answer[:200]!r}, is not right.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallGoal:
    """One call with these arguments. Others may be left out, or have their default."""

    name: str
    arguments: Arguments
    defaults: Arguments = field(default_factory=dict)
    is_a_call: bool = field(default=True, init=False)

    async def read(self, left: Left) -> Finding:
        if not left.calls:
            return Finding(share=0.0, report="No function was called.")
        call = left.calls[-1]
        if call.name != self.name:
            return Finding(share=0.0, report=f"{call.name} is not the function that does what was asked.")
        if wrong := self._wrong(call.arguments):
            return Finding(share=0.0, report=f"{call.name} was called, but {', '.join(wrong)} is not what was asked.")
        return Finding(share=1.0, report="The right function was called with the right arguments.")

    def _wrong(self, given: Arguments) -> list[str]:
        missing = [f"{name} (left out)" for name in self.arguments if name not in given]
        other = [
            f"{name}={json.dumps(value, ensure_ascii=False)[:100]}"
            for name, value in given.items()
            if not _is_same({**self.defaults, **self.arguments}.get(name), value)
        ]
        return missing + other


def _is_same(expected: Json, got: Json) -> bool:
    """Equal up to what words do not decide: case, blanks and punctuation of strings, 5 and 5.0."""
    if isinstance(expected, str) and isinstance(got, str):
        return _letters(expected) == _letters(got)
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(map(_is_same, expected, got))
    return isinstance(expected, bool) == isinstance(got, bool) and bool(expected == got)


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is asked, and what counts as done. `tools` belong to this problem alone.

    `solution` are the calls that solve it, the last of them `submit` where an answer is asked for; empty where its
    author told none.
    """

    question: str
    goal: Goal
    solution: tuple[ToolCall, ...] = ()
    tools: tuple[OwnTool, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTask:
    """A problem as it is posed. `wants` names tools beside its own: `python`, `calculator`, those of the tools JSON.

    `shots` are solved examples that come before the question.
    """

    name: str
    split: Split
    problem: Problem
    system: str
    wants: tuple[str, ...] = ()
    shots: tuple[Message, ...] = ()


def calls_of(*calls: tuple[str, Mapping[str, Json]]) -> tuple[ToolCall, ...]:
    """Calls as an agent would write them."""
    return tuple(
        ToolCall(id=f"call{number}", name=name, arguments=json.dumps(arguments, ensure_ascii=False))
        for number, (name, arguments) in enumerate(calls)
    )


def demonstrate(examples: Sequence[Problem]) -> tuple[Message, ...]:
    """Solved problems as a conversation: question, calls, their results, and the answer as text."""
    shown: list[Message] = []
    for number, example in enumerate(examples):
        functions = {own.tool.name: own.function for own in example.tools}
        shown.append(Message(role="user", content=example.question))
        for call in example.solution:
            arguments = json.loads(call.arguments)
            if call.name == SUBMIT.name:
                shown.append(Message(role="assistant", content=arguments["answer"]))
                continue
            own = ToolCall(id=f"shot{number}{call.id}", name=call.name, arguments=call.arguments)
            shown.append(Message(role="assistant", tool_calls=(own,)))
            result = functions[call.name](arguments)
            shown.append(Message(role="tool", content=result, tool_call_id=own.id, name=own.name))
    return tuple(shown)
