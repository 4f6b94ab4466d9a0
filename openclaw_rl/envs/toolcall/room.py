"""One attempt at one tool-call task.

An agent that calls tools is given them by the opening. A program that acts by itself works in a box and writes its
answer into a file; it can do so where the task needs no tool but a calculator or Python, which it has anyway.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from openclaw_rl.envs.sandbox.box import Box, BoxSpec, Sandbox
from openclaw_rl.envs.toolcall.rewards import Achieved, Reward
from openclaw_rl.envs.toolcall.tasks import SUBMIT, Deeds, ToolTask
from openclaw_rl.envs.toolcall.tools.toolbox import CallFault
from openclaw_rl.envs.toolcall.tools.workbench import Workbench
from openclaw_rl.errors import EnvError, TaskError
from openclaw_rl.types import Grade, Message, Observation, Opening, Ran, ToolCall

ANSWER_FILE = "/work/answer.txt"
_TO_PROGRAMS = f"\n\nWrite the final answer, and nothing else, into the file {ANSWER_FILE}."
_MAX_ANSWER_BYTES = 64 * 1024
_MAX_OBSERVATION_CHARS = 8_000
_MAX_FAULTS_IN_A_ROW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ForPrograms:
    """Where programs that act by themselves work."""

    sandbox: Sandbox
    spec: BoxSpec


class ToolRoom:
    """`protocols.Room` over a workbench. `programs`: who acts brings tools of its own."""

    def __init__(
        self, task: ToolTask, workbench: Workbench, reward: Reward, programs: ForPrograms | None = None
    ) -> None:
        self._task = task
        self._workbench = workbench
        self._reward = reward
        self._programs = programs
        self._box: Box | None = None
        self._deeds = Deeds()
        self._faults_in_a_row = 0
        self._is_over = False
        self._turn = asyncio.Lock()

    async def open(self) -> Opening:
        question = self._task.problem.question
        if self._programs is not None:
            self._box = await self._programs.sandbox.start(self._programs.spec)
            return Opening(messages=(Message(role="user", content=question + _TO_PROGRAMS),), workdir="/work")
        await self._workbench.open()
        return Opening(
            messages=(
                *([Message(role="system", content=self._task.system)] if self._task.system else []),
                *self._task.shots,
                Message(role="user", content=question),
            ),
            tools=self._workbench.tools,
        )

    async def solve(self) -> None:
        solution = self._task.problem.solution
        if not solution:
            raise TaskError(f"the author of {self._task.name} told no solution")
        for call in solution:
            if self._box is not None and call.name == SUBMIT.name:
                await self._box.write(ANSWER_FILE, json.loads(call.arguments)["answer"].encode())
            elif self._box is None:
                await self.step(call)

    async def step(self, call: ToolCall) -> Observation:
        async with self._turn:
            if self._is_over:
                return Observation(content="The task is over.", is_error=True, is_done=True)
            try:
                observation = await self._made(call)
            except CallFault as fault:
                observation = self._at_fault(str(fault))
            self._is_over = observation.is_done
            return replace(observation, content=_readable(observation.content))

    async def _made(self, call: ToolCall) -> Observation:
        called, observation = await self._workbench.call(call)
        self._faults_in_a_row = 0
        is_a_call = self._task.problem.goal.is_a_call
        if called.name == SUBMIT.name and not is_a_call:
            self._deeds = replace(self._deeds, answer=str(called.arguments["answer"]))
            return replace(observation, is_done=True)
        self._deeds = replace(self._deeds, calls=(*self._deeds.calls, called))
        return replace(observation, is_done=is_a_call)

    def _at_fault(self, what: str) -> Observation:
        self._deeds = replace(self._deeds, num_faults=self._deeds.num_faults + 1)
        self._faults_in_a_row += 1
        return Observation(content=what, is_error=True, is_done=self._faults_in_a_row >= _MAX_FAULTS_IN_A_ROW)

    async def run(self, command: str, *, timeout_s: float, env: Mapping[str, str]) -> Ran:
        if self._box is None:
            raise EnvError("this room has tools and no box; programs are told of when the room is made")
        return await self._box.run(command, timeout_s=timeout_s, env=env)

    async def evaluate(self) -> Grade:
        deeds = self._deeds if self._box is None else replace(self._deeds, answer=await self._written(self._box))
        found = await self._task.problem.goal.read(deeds)
        achieved = Achieved(share=found.share, deeds=deeds)
        return Grade(
            reward=self._reward(achieved),
            share=found.share,
            metrics={
                "calls": float(len(deeds.calls)),
                "useful_calls": float(achieved.num_useful_calls),
                "faulty_calls": float(deeds.num_faults),
            },
            report=found.report,
        )

    async def close(self) -> None:
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._workbench.close)
            if self._box is not None:
                closing.push_async_callback(self._box.close)

    async def _written(self, box: Box) -> str | None:
        try:
            written = await box.read(ANSWER_FILE, max_bytes=_MAX_ANSWER_BYTES)
        except TaskError:  # larger than any answer: the program's doing
            return None
        return None if written is None else written.decode(errors="replace")


def _readable(text: str) -> str:
    """As much as a model should read, of characters that can be sent on."""
    sent = text.encode(errors="replace").decode()
    half = _MAX_OBSERVATION_CHARS // 2
    if len(sent) <= _MAX_OBSERVATION_CHARS:
        return sent
    return f"{sent[:half]}\n… {len(sent) - 2 * half} characters left out …\n{sent[-half:]}"
