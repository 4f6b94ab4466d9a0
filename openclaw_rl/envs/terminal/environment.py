"""Sources of terminal tasks -> tasks, and rooms in which they are attempted.

A source is the name of a set that we ship (none: `commands`), or a folder with Harbor task directories.
`rollout.task_type` leaves the tasks of one kind: those whose category or tags name it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from openclaw_rl.config import RolloutConfig
from openclaw_rl.envs.sandbox.box import Sandbox
from openclaw_rl.envs.tasks.harbor.attempt import HarborAttempt
from openclaw_rl.envs.tasks.harbor.datasets import find_task, find_tasks
from openclaw_rl.envs.tasks.harbor.directory import hashed_split, read_task, split_of
from openclaw_rl.envs.tasks.harbor.images import Images
from openclaw_rl.envs.terminal.room import TerminalRoom
from openclaw_rl.envs.terminal.shipped.sets import SETS, written
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Task, TaskRef, TaskSource

DEFAULT_SET = "commands"


class TerminalEnvironment:
    """`protocols.Environment`."""

    name = "terminal"

    def __init__(self, *, rollout: RolloutConfig, sandbox: Sandbox, cache: Path) -> None:
        self._rollout = rollout
        self._sandbox = sandbox
        self._cache = cache / "terminal"
        self._images = Images(sandbox, cache)

    def sources(self) -> Sequence[TaskSource]:
        return [
            TaskSource(
                name=name,
                about=one.about,
                num_train=one.total["train"],
                num_held_out=one.total["held_out"],
                is_default=name == DEFAULT_SET,
            )
            for name, one in SETS.items()
        ]

    async def tasks(self, source: str) -> Sequence[Task]:
        return await asyncio.to_thread(self._tasks, source)

    def _tasks(self, source: str) -> list[Task]:
        kind = self._rollout.task_type
        found = []
        for name, folder in find_tasks(self._folder(source)).items():
            ref = TaskRef(environment=self.name, source=source, name=name)
            try:
                task = read_task(folder)
            except TaskError as error:  # listed, so that whoever attempts it is told
                found.append(Task(ref=ref, split=hashed_split(name), instruction=f"(broken: {error})"))
                continue
            if kind is None or kind in task.kinds:
                found.append(Task(ref=ref, split=split_of(task), instruction=task.steps[0].instruction))
        if not found:
            raise TaskError(f"no task is of the kind {kind!r} (rollout.task_type); kinds are categories and tags")
        return found

    def _folder(self, source: str) -> Path:
        """Blocking the first time that a set of ours is asked for."""
        name = source or DEFAULT_SET
        if name in SETS:
            return written(name, self._cache)
        folder = Path(name).expanduser()
        if not folder.exists():
            raise TaskError(f"there is no folder {name}, nor a set of that name; the sets are {', '.join(SETS)}")
        return folder

    async def room(self, task: TaskRef, *, gateway: str, programs: Mapping[str, Path]) -> TerminalRoom:
        folder = await asyncio.to_thread(lambda: find_task(self._folder(task.source), task.name))
        found = await asyncio.to_thread(read_task, folder)
        attempt = HarborAttempt(found, sandbox=self._sandbox, images=self._images, scratch=self._cache / "attempts")
        await attempt.prepare()
        return TerminalRoom(
            attempt,
            opening=found.config.own.opening,
            gateway=gateway,
            programs=programs,
            max_steps=self._rollout.max_steps,
        )
