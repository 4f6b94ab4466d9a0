"""Rooms in memory: what each call and command comes to is a function of the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from openclaw_rl.envs.sandbox.box import Box
from openclaw_rl.types import Grade, Message, Observation, Opening, Ran, Tool, ToolCall

RUN = Tool(name="run", description="Runs a command.", parameters={"type": "object", "properties": {}})
SUBMIT = Tool(name="submit", description="Hands the answer in.", parameters={"type": "object", "properties": {}})


def opening(instruction: str, *tools: Tool, timeout_s: float = 60.0) -> Opening:
    return Opening(messages=(Message(role="user", content=instruction),), tools=tools or (RUN,), timeout_s=timeout_s)


class FakeRoom:
    """Answers calls by `step` and commands by `run`; keeps what it was asked in `calls` and `commands`."""

    def __init__(
        self,
        step: Callable[[ToolCall], Awaitable[Observation]] | None = None,
        run: Callable[[str], Awaitable[Ran]] | None = None,
    ) -> None:
        self._step = step
        self._run = run
        self.calls: list[ToolCall] = []
        self.commands: list[tuple[str, Mapping[str, str], float]] = []

    async def open(self) -> Opening:
        return opening("do it")

    async def solve(self) -> None:
        pass

    async def step(self, call: ToolCall) -> Observation:
        self.calls.append(call)
        return Observation(content="done") if self._step is None else await self._step(call)

    async def run(self, command: str, *, timeout_s: float, env: Mapping[str, str]) -> Ran:
        self.commands.append((command, env, timeout_s))
        return Ran(exit_code=0, output="") if self._run is None else await self._run(command)

    async def evaluate(self) -> Grade:
        return Grade(reward=0.0)

    async def close(self) -> None:
        pass


class BoxRoom(FakeRoom):
    """A bare box without a track around it: its commands run there."""

    def __init__(self, box: Box) -> None:
        super().__init__()
        self.box = box

    async def run(self, command: str, *, timeout_s: float, env: Mapping[str, str]) -> Ran:
        return await self.box.run(command, timeout_s=timeout_s, env=env)
