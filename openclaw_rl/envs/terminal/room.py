"""One attempt at a task in a shell: what the agent is told, its tools, and the reward of what it leaves.

    the task's own reward a, from 0 to 1, such as the share of tests that pass      2a − 1
    any other number                                                               that number

A task of several steps has the tool `next_step` beside the others: it grades what is there and tells the next step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from openclaw_rl.envs.tasks.harbor.attempt import HarborAttempt
from openclaw_rl.envs.tasks.harbor.rewards import REWARD
from openclaw_rl.envs.tasks.harbor.verifying import Verified
from openclaw_rl.envs.terminal.openings import SUBMIT, start
from openclaw_rl.envs.tools import told, use_tool, wrong
from openclaw_rl.errors import EnvError, TaskError
from openclaw_rl.types import Grade, Json, Message, Observation, Opening, Ran, Tool, ToolCall

COMMAND_S = 120.0

_NEXT_STEP = Tool(
    name="next_step",
    description="Call this when the present step is done: it is graded, and you are told the next one.",
    parameters={"type": "object", "properties": {}, "required": []},
)
_FENCED = re.compile(r"```[a-z]*\n(.*?)\n?```", re.DOTALL)


class TerminalRoom:
    """`protocols.Room` over one attempt."""

    def __init__(
        self, attempt: HarborAttempt, *, opening: str, gateway: str, programs: Mapping[str, Path], max_steps: int
    ) -> None:
        self._attempt = attempt
        self._start = start(opening, attempt.image.workdir)
        self._gateway = gateway
        self._programs = programs
        self._max_steps = max_steps
        self._num_steps = 0

    async def open(self) -> Opening:
        await self._attempt.start(gateway=self._gateway, programs=self._programs)
        self._num_steps = 0
        step = self._attempt.step
        return Opening(
            messages=(*self._start.messages, Message(role="user", content=step.instruction.strip())),
            tools=self._start.tools if self._attempt.is_at_last else (*self._start.tools, _NEXT_STEP),
            workdir=self._attempt.image.workdir,
            timeout_s=self._attempt.timeout_s,
        )

    async def solve(self) -> None:
        await self._attempt.solve()

    async def step(self, call: ToolCall) -> Observation:
        if self._num_steps >= self._max_steps:
            return Observation(content=f"[no more than {self._max_steps} calls]", is_error=True, is_done=True)
        self._num_steps += 1
        offered = [one.name for one in self._start.tools]
        if call.name == _NEXT_STEP.name:
            return await self._next_step()
        if call.name == SUBMIT.name and SUBMIT.name in offered:
            return await self._answered(call.arguments)
        attempt = self._attempt
        return await use_tool(attempt.box, call, offered, workdir=attempt.image.workdir, command_s=COMMAND_S)

    async def run(self, command: str, *, timeout_s: float, env: Mapping[str, str]) -> Ran:
        if not self._attempt.is_at_last:
            raise TaskError(
                "a task of several steps tells each in its turn, which the builtin harness alone understands"
            )
        return await self._attempt.box.run(command, timeout_s=timeout_s, env=env)

    async def evaluate(self) -> Grade:
        try:
            return graded(await self._attempt.verdict())
        except (EnvError, TaskError) as error:
            return Grade(failure=str(error))

    async def close(self) -> None:
        await self._attempt.close()

    async def _next_step(self) -> Observation:
        if self._attempt.is_at_last:
            return wrong("this is the last step; say so when it is done")
        if not await self._attempt.advance():
            return Observation(content="The step was not done well enough to go on.", is_done=True)
        return Observation(content=self._attempt.step.instruction.strip())

    async def _answered(self, arguments: str) -> Observation:
        command = command_in(arguments)
        if not command:
            return Observation(content="the answer is one command", is_error=True, is_done=True)
        seen = told(await self._attempt.box.shell(command, timeout_s=COMMAND_S), COMMAND_S)
        return Observation(content=seen.content, is_error=seen.is_error, is_done=True)


def command_in(arguments: str) -> str:
    """The command of a submitted answer: what is fenced in it, or the answer where it is one line; else empty."""
    try:
        raw: Json = json.loads(arguments)
    except ValueError:
        return ""
    answer = raw.get("answer") if isinstance(raw, dict) else None
    if not isinstance(answer, str) or "\0" in answer:
        return ""
    found = _FENCED.search(answer)
    command = found[1].strip() if found else answer.strip()
    return command if found or "\n" not in command else ""


def graded(verdict: Verified) -> Grade:
    """Harbor's rewards as a grade."""
    own = verdict.rewards[REWARD]
    is_share = 0.0 <= own <= 1.0
    return Grade(
        reward=2.0 * own - 1.0 if is_share else own,
        share=min(max(own, 0.0), 1.0),
        metrics=dict(verdict.rewards),
        report=verdict.output,
    )
