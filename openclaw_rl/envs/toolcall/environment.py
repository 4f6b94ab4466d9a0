"""The tool-call track: sources of tasks, and rooms in which they are attempted."""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from openclaw_rl.config import RolloutConfig
from openclaw_rl.envs.sandbox.box import BoxSpec, Sandbox
from openclaw_rl.envs.toolcall.families.family import make_set, shipped
from openclaw_rl.envs.toolcall.families.registry import FAMILIES
from openclaw_rl.envs.toolcall.gym import Gym, make_tasks
from openclaw_rl.envs.toolcall.options import GYM, SourceOptions, read_options
from openclaw_rl.envs.toolcall.rewards import Reward, make_reward
from openclaw_rl.envs.toolcall.room import ForPrograms, ToolRoom
from openclaw_rl.envs.toolcall.task_file import read_tasks
from openclaw_rl.envs.toolcall.tasks import ToolTask
from openclaw_rl.envs.toolcall.tools.calculator import CALCULATOR
from openclaw_rl.envs.toolcall.tools.tools_file import BROUGHT, ToolsFile, read_tools_file
from openclaw_rl.envs.toolcall.tools.workbench import make_workbench
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Task, TaskRef, TaskSource

_DISPENSABLE = frozenset({CALCULATOR.tool.name, *BROUGHT})
"""What programs that act by themselves have anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskSet:
    tasks: MutableMapping[str, ToolTask]
    reward: Reward


class ToolcallEnvironment:
    """`protocols.Environment`. The source without a name is all families at their first level."""

    name = "toolcall"

    def __init__(self, rollout: RolloutConfig, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._kind = rollout.task_type
        self._tools: ToolsFile | None = None if rollout.tools_config is None else read_tools_file(rollout.tools_config)
        self._sets: dict[str, _TaskSet] = {}
        self._making = asyncio.Lock()

    def sources(self) -> Sequence[TaskSource]:
        usual = SourceOptions(family="sums")
        levels = [(family, level) for family in FAMILIES.values() for level in range(1, family.num_levels + 1)]
        return [
            *(
                TaskSource(
                    name=f"{family.name}-{level}",
                    about=f"{family.about} Level {level} of {family.num_levels}.",
                    num_train=usual.num_train,
                    num_held_out=usual.num_held_out,
                )
                for family, level in levels
            ),
            TaskSource(
                name="",
                about="All families above, at their first levels.",
                num_train=usual.num_train * len(FAMILIES),
                num_held_out=usual.num_held_out * len(FAMILIES),
            ),
            TaskSource(
                name=f"{GYM}chain_sum",
                about="Any dataset of reasoning-gym, as gym:NAME.",
                num_train=usual.num_train,
                num_held_out=usual.num_held_out,
            ),
        ]

    async def tasks(self, source: str) -> Sequence[Task]:
        found = await self._set(source)
        return [
            Task(
                ref=TaskRef(environment=self.name, source=source, name=task.name),
                split=task.split,
                instruction=task.problem.question,
            )
            for task in found.tasks.values()
        ]

    async def room(self, task: TaskRef, *, gateway: str, programs: Mapping[str, Path]) -> ToolRoom:
        found = await self._set(task.source)
        if task.name not in found.tasks:
            near = get_close_matches(task.name, found.tasks, n=1)
            raise TaskError(f"{task.source or self.name} has no task {task.name!r}{f'; {near[0]}?' if near else ''}")
        attempted = found.tasks[task.name]
        workbench = make_workbench(attempted, self._sandbox, self._tools)
        if not programs:
            return ToolRoom(attempted, workbench, found.reward)
        needs = {*attempted.wants, *(own.tool.name for own in attempted.problem.tools)} - _DISPENSABLE
        if needs or attempted.problem.goal.is_a_call:
            raise TaskError(
                f"{task.name} is about calling {', '.join(sorted(needs)) or 'a function'}, which programs that act by "
                "themselves do not have; use the builtin harness"
            )
        spec = BoxSpec(read_only=programs, gateway=gateway, workdir="/work")
        return ToolRoom(attempted, workbench, found.reward, ForPrograms(sandbox=self._sandbox, spec=spec))

    async def _set(self, source: str) -> _TaskSet:
        if not source:
            sets = [await self._set(kind) for kind in ([self._kind] if self._kind else FAMILIES)]
            return _TaskSet(tasks=ChainMap(*(one.tasks for one in sets)), reward=sets[0].reward)
        async with self._making:
            if source not in self._sets:
                self._sets[source] = await self._made(await asyncio.to_thread(read_options, source))
            return self._sets[source]

    async def _made(self, options: SourceOptions) -> _TaskSet:
        if options.gym is not None:
            tasks = await make_tasks(
                Gym(self._sandbox),
                options.gym,
                config=options.config,
                seed=options.seed,
                num_train=options.num_train,
                num_held_out=options.num_held_out,
                tools=self._wanted(options),
                system=_system(options) or shipped("prompts/answer.txt"),
            )
        else:
            tasks = await asyncio.to_thread(self._read, options)
        return _TaskSet(tasks={task.name: task for task in tasks}, reward=make_reward(options.reward))

    def _read(self, options: SourceOptions) -> list[ToolTask]:
        if options.tasks is not None:
            system = _system(options) or shipped("prompts/answer.txt")
            return read_tasks(options.tasks, tools=self._wanted(options), system=system)
        family = FAMILIES.get(options.family or "")
        if family is None:
            raise TaskError(
                f"there is no source {options.family!r}; expected {', '.join(FAMILIES)}, one of them with its level "
                f"such as sums-2, {GYM}DATASET, or a .jsonl or .json file"
            )
        return make_set(
            family,
            level=options.level,
            seed=options.seed,
            num_train=options.num_train,
            num_held_out=options.num_held_out,
            shots=family.shots if options.shots is None else options.shots,
            system=_system(options),
        )

    def _wanted(self, options: SourceOptions) -> Sequence[str]:
        if options.tools is not None:
            return options.tools
        return BROUGHT if self._tools is None else self._tools.names


def _system(options: SourceOptions) -> str:
    if options.system is None:
        return ""
    try:
        return options.system.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"the system prompt {options.system} cannot be read: {error}") from None
