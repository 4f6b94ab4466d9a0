"""An environment whose rooms do what a command says, and which knows what ran in them and what is still open."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from openclaw_rl.errors import EnvError, TaskError
from openclaw_rl.protocols import Room
from openclaw_rl.types import Grade, Message, Observation, Opening, Ran, Task, TaskRef, TaskSource, Tool, ToolCall

TASKS = ("count", "sort", "find")

NO_PROGRAMS: Mapping[str, Path] = {}


def task_ref(name: str = "count", *, environment: str = "counting") -> TaskRef:
    return TaskRef(environment=environment, source="", name=name)


def call_of(script: str) -> ToolCall:
    return ToolCall(id="call-1", name="do", arguments=script)


class CountingEnvironment:
    """Commands of its rooms: `wait NAME` until `gate` is set, `sleep SECONDS`, `fail WHY` (the environment's fault),
    `defect` (a bug), `cancel` (a bug of another kind); everything else is said back.

    `marks`: a folder with a file for each open room, and a line in `ran` for each command, for other processes to see;
    `hold` waits until they put a file `release` there.
    """

    name = "counting"

    def __init__(self, *, marks: Path | None = None) -> None:
        self.gate = asyncio.Event()
        self.ran: Counter[str] = Counter()
        self.rooms: list[CountingRoom] = []
        self.most_open = 0
        self.marks = marks
        self.changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for what rooms and commands bring about."""
        async with asyncio.timeout(20.0):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    @property
    def open_rooms(self) -> list[CountingRoom]:
        return [room for room in self.rooms if room.is_open]

    def sources(self) -> Sequence[TaskSource]:
        return (TaskSource(name="", about="three words", num_train=2, num_held_out=1),)

    async def tasks(self, source: str) -> Sequence[Task]:
        if source:
            raise TaskError(f"there are no tasks {source!r}; this environment has its own alone")
        return [
            Task(ref=task_ref(name), split="held_out" if name == "find" else "train", instruction=f"{name} 日本")
            for name in TASKS
        ]

    async def room(self, task: TaskRef, *, gateway: str, programs: Mapping[str, Path]) -> Room:
        if task.name not in TASKS:
            raise TaskError(f"there is no task {task.name!r} here; there are {', '.join(TASKS)}")
        await asyncio.sleep(0)
        room = CountingRoom(self, task, f"{task.name} by {gateway} with {', '.join(programs) or 'nothing'}")
        self.rooms.append(room)
        return room


class CountingRoom:
    """Counts what it ran. `num_closes` is 1 in the end, however it ended."""

    def __init__(self, environment: CountingEnvironment, task: TaskRef, about: str) -> None:
        self.environment = environment
        self.task = task
        self.about = about
        self.is_open = False
        self.is_solved = False
        self.num_closes = 0
        self.num_evaluations = 0
        self.scripts: list[str] = []

    async def open(self) -> Opening:
        self.is_open = True
        self.environment.changed.set()
        self.environment.most_open = max(self.environment.most_open, len(self.environment.open_rooms))
        if (mark := self._mark) is not None:
            mark.touch()
        await asyncio.sleep(0)
        return Opening(messages=(Message(role="user", content=self.about),), tools=(Tool(name="do"),), timeout_s=5.0)

    async def solve(self) -> None:
        if self.task.name == "sort":
            raise TaskError("sort has no solution")
        self.is_solved = True

    async def step(self, call: ToolCall) -> Observation:
        return Observation(content=await self._do(call.arguments), reward=0.5)

    async def run(self, command: str, *, timeout_s: float, env: Mapping[str, str]) -> Ran:
        said = await self._do(command)
        return Ran(exit_code=0, output=f"{said} {timeout_s:g} {dict(env)}")

    async def evaluate(self) -> Grade:
        self.num_evaluations += 1
        await asyncio.sleep(0)
        share = 1.0 if self.is_solved else 0.0
        return Grade(reward=2 * share - 1, share=share, metrics={"evaluations": float(self.num_evaluations)})

    async def close(self) -> None:
        self.num_closes += 1
        await asyncio.sleep(0)
        self.is_open = False
        self.environment.changed.set()
        if (mark := self._mark) is not None:
            mark.unlink(missing_ok=True)

    async def _do(self, script: str) -> str:
        assert self.is_open, "a call reached a room that is not open"
        self.scripts.append(script)
        self.environment.ran[script] += 1
        self.environment.changed.set()
        if self.environment.marks is not None:
            with (self.environment.marks / "ran").open("a") as log:
                log.write(f"{script}\n")
        match script.split(maxsplit=1):
            case ["wait", *_]:
                await self.environment.gate.wait()
            case ["hold"]:
                assert self.environment.marks is not None
                while not (self.environment.marks / "release").exists():  # noqa: ASYNC110  another process puts it there
                    await asyncio.sleep(0.02)
            case ["sleep", seconds]:
                await asyncio.sleep(float(seconds))
            case ["fail", why]:
                raise EnvError(why)
            case ["defect"]:
                raise ZeroDivisionError("a defect of the room")
            case ["cancel"]:
                raise asyncio.CancelledError
            case _:
                await asyncio.sleep(0)
        return f"{script} #{self.environment.ran[script]}"

    @property
    def _mark(self) -> Path | None:
        marks = self.environment.marks
        return None if marks is None else marks / f"room-{self.environment.rooms.index(self)}"
