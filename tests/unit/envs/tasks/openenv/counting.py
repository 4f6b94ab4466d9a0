"""An environment without a box: add up to a number. It counts its rooms, can be slow, and can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from openclaw_rl.errors import EnvError, TaskError
from openclaw_rl.types import Grade, Message, Observation, Opening, Ran, Task, TaskRef, TaskSource, Tool, ToolCall

GOALS = {"train": (3, 4, 5), "held_out": (7,)}


class CountingEnvironment:
    """`rooms`: those that are open. `add` gives a quarter for each step, and ends the attempt beyond the goal."""

    name = "counting"

    def __init__(self, *, tool: str = "add") -> None:
        self.tool = tool
        self.rooms: set[CountingRoom] = set()
        self.num_opened = 0
        self.is_waiting = asyncio.Event()
        self.is_empty = asyncio.Event()

    def sources(self) -> Sequence[TaskSource]:
        return (TaskSource(name="", about="small numbers", num_train=3, num_held_out=1),)

    async def tasks(self, source: str) -> Sequence[Task]:
        return [
            Task(ref=TaskRef(environment=self.name, source=source, name=f"to-{goal}"), split=split, instruction="Count")
            for split in ("train", "held_out")
            for goal in GOALS[split]
        ]

    async def room(self, task: TaskRef, *, gateway: str, programs: Mapping[str, Path]) -> CountingRoom:
        if task.name == "to-4":
            raise TaskError("four is not attempted here")
        return CountingRoom(self, int(task.name.removeprefix("to-")))


class CountingRoom:
    def __init__(self, environment: CountingEnvironment, goal: int) -> None:
        self._environment = environment
        self._goal = goal
        self._total = 0

    async def open(self) -> Opening:
        self._environment.rooms.add(self)
        self._environment.is_empty.clear()
        self._environment.num_opened += 1
        integer = {"type": "object", "properties": {"by": {"type": "integer"}}, "required": ["by"]}
        return Opening(
            messages=(
                Message(role="system", content="You can count."),
                Message(role="user", content=f"Count to {self._goal}."),
            ),
            tools=(
                Tool(name=self._environment.tool, description="Adds.", parameters=integer),
                Tool(name="break"),
                Tool(name="sleep"),
            ),
        )

    async def solve(self) -> None:
        self._total = self._goal

    async def step(self, call: ToolCall) -> Observation:
        if call.name == "break":
            raise EnvError("the abacus broke")
        if call.name == "sleep":
            self._environment.is_waiting.set()
            await asyncio.sleep(orjson.loads(call.arguments).get("s", 600))
        if call.name != "add":
            return Observation(content=f"no tool {call.name}", is_error=True)
        self._total += orjson.loads(call.arguments)["by"]
        return Observation(content=f"{self._total}", is_done=self._total > self._goal, reward=0.25)

    async def run(self, command: str, *, timeout_s: float, env: Mapping[str, str]) -> Ran:
        raise TaskError("there is no box")

    async def evaluate(self) -> Grade:
        if self._total == 5:
            return Grade(failure="the referee is asleep")
        reward = self._total / self._goal if self._total <= self._goal else -1.0
        return Grade(reward=reward, share=max(reward, 0.0), metrics={"total": float(self._total)}, report="counted")

    async def close(self) -> None:
        await asyncio.sleep(0)  # closing takes a moment, in which it may be cancelled
        self._environment.rooms.discard(self)
        if not self._environment.rooms:
            self._environment.is_empty.set()
