"""The parts that attempt tasks: environments and harnesses by name, rooms here or on other machines, the collector."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from openclaw_rl.config import Config
from openclaw_rl.envs.attempting import Attempter, Tell
from openclaw_rl.envs.collecting import EXAM_ROOMS, KeepPace, TaskCollector
from openclaw_rl.envs.leases.client import RemoteEnvServer
from openclaw_rl.envs.leases.pool import EnvPool
from openclaw_rl.envs.leases.rooms import LocalEnvServer
from openclaw_rl.envs.orders import CollectOrder, ExamOrder, Tried
from openclaw_rl.envs.pace import Pace, count_unlearned
from openclaw_rl.envs.registry import ENVIRONMENTS, EnvMeans, make_environment, make_harness
from openclaw_rl.envs.sandbox.making import make_sandbox
from openclaw_rl.errors import ConfigError
from openclaw_rl.gateway.access.desk import AttemptDesk
from openclaw_rl.protocols import Environment, EnvServer, Harness, LearningStore, TaskExam
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.types import Json
from openclaw_rl.wiring.foundation import Foundation
from openclaw_rl.wiring.serving import ServingParts


def make_means(config: Config) -> EnvMeans:
    """What environments and harnesses are made of; nothing is started, installed or fetched."""
    cache = config.model.cache_dir / "envs"
    return EnvMeans(rollout=config.rollout, sandbox=make_sandbox(cache / "boxes"), cache=cache)


def line_of_track(name: str, means: EnvMeans) -> str:
    """The line that an environment teaches; one that is named by an import path has a name of its own."""
    return f"env:{name if name in ENVIRONMENTS else make_environment(name, means).name}"


class Environments(Mapping[str, Environment]):
    """Environments by name, each made once; an import path names one of a person's own. Lists those that are ours."""

    def __init__(self, means: EnvMeans) -> None:
        self._means = means
        self._made: dict[str, Environment] = {}

    def __getitem__(self, name: str) -> Environment:
        if name not in self._made:
            if name not in ENVIRONMENTS and ":" not in name:
                raise KeyError(name)
            made = make_environment(name, self._means)
            self._made |= {name: made, made.name: made}
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ENVIRONMENTS)

    def __len__(self) -> int:
        return len(ENVIRONMENTS)


class _Harnesses:
    """Harnesses by name, each made once."""

    def __init__(self, means: EnvMeans) -> None:
        self._means = means
        self._made: dict[str, Harness] = {}

    def named(self, name: str) -> Harness:
        if name not in self._made:
            self._made[name] = make_harness(name, self._means)
        return self._made[name]

    def programs(self, name: str) -> Mapping[str, Path]:
        return self.named(name).programs()

    def ready(self, name: str) -> Harness:
        """`EnvError` where it is not installed on this machine."""
        self.programs(name)
        return self.named(name)


@asynccontextmanager
async def local_rooms(config: Config, means: EnvMeans) -> AsyncIterator[LocalEnvServer]:
    """Rooms on this machine; leaving closes those that are open."""
    capacity = config.rollout.parallel_envs + EXAM_ROOMS
    server = LocalEnvServer(Environments(means), _Harnesses(means).programs, capacity=capacity)
    try:
        yield server
    finally:
        await server.aclose()


@asynccontextmanager
async def open_rooms(config: Config, means: EnvMeans) -> AsyncIterator[EnvServer]:
    """Rooms on the machines of `rollout.env_servers`, or on this one."""
    rollout = config.rollout
    if not rollout.env_servers:
        async with local_rooms(config, means) as server:
            yield server
        return
    if rollout.env_key is None:
        raise ConfigError("rollout.env_servers needs rollout.env_key, the key that `openclaw-rl env serve` printed")
    async with AsyncExitStack() as cleanup:
        servers = [RemoteEnvServer(str(url), rollout.env_key.get_secret_value()) for url in rollout.env_servers]
        for one in servers:
            cleanup.push_async_callback(one.aclose)
        yield EnvPool(servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trying:
    """Collections and examinations of the running server: what its admin socket and its gate ask for."""

    collector: TaskCollector
    lessons: LearningStore
    releaser: Releaser
    means: EnvMeans

    async def collect(self, asked: Mapping[str, Json], tell: Tell) -> Mapping[str, Json]:
        order = CollectOrder.from_json(asked)
        tried = order.tried
        # What the gate asks later is what was trained, but for the names: held-out tasks have others.
        kept = Tried(environment=tried.environment, source=tried.source, harness=tried.harness)
        await self.lessons.set_flag(_flag(self._line(tried)), json.dumps(kept.to_json()))
        return await self.collector.collect(order, tell)

    async def examine(self, asked: Mapping[str, Json], tell: Tell) -> Mapping[str, Json]:
        """The attempts of each version, at the same tasks."""
        order = ExamOrder.from_json(asked)
        line = self._line(order.tried)
        async with AsyncExitStack() as held:
            labels = [await held.enter_async_context(self.releaser.loaded(line, one)) for one in order.versions]
            rows = await self.collector.examine(
                order.tried,
                labels,
                num_tasks=order.num_tasks,
                attempts=order.attempts,
                split=order.split,
                tell_steps=order.tell_steps,
                tell=tell,
            )
        return {"versions": {label: [one.to_json() for one in row] for label, row in zip(labels, rows, strict=True)}}

    def _line(self, tried: Tried) -> str:
        return line_of_track(tried.environment, self.means)


def held_out(collector: TaskCollector, lessons: LearningStore) -> TaskExam:
    """What the gate asks versions of an environment's line: held-out tasks of what it was trained on last."""

    async def exam(line: str, labels: Sequence[str], *, num_tasks: int) -> Sequence[Sequence[float]] | None:
        flag = await lessons.flag(_flag(line))
        if flag is None:
            return None
        rows = await collector.examine(Tried.from_json(json.loads(flag)), labels, num_tasks=num_tasks)
        return [[one.grade.share for one in row] for row in rows]

    return exam


def _flag(line: str) -> str:
    return f"tasks of {line}"


def make_pace(config: Config, lessons: LearningStore) -> Pace:
    """Of collections on a server that trains."""

    def most(line: str) -> int:
        return config.rollout.max_batches_ahead * config.training.for_line(line).batch_size

    return Pace(partial(count_unlearned, lessons), most=most)


@asynccontextmanager
async def collecting(
    foundation: Foundation,
    serving: ServingParts,
    lessons: LearningStore,
    listens_at: asyncio.Future[str],
    *,
    keep_pace: KeepPace,
) -> AsyncIterator[TaskCollector]:
    """Attempts at tasks, beside serving; leaving closes their rooms. Those of an earlier process end first."""
    config = foundation.config
    means = make_means(config)
    name = config.model.served_name or foundation.model.name
    desk = AttemptDesk(serving.gateway, lessons, serving.keys, model=name, listens_at=listens_at)
    await desk.recover()
    harnesses = _Harnesses(means)
    async with open_rooms(config, means) as server:
        yield TaskCollector(
            server,
            Attempter(server=server, desk=desk),
            # Programs are those of the rooms' machine: an agent that this one lacks may be at work elsewhere.
            harnesses.named if config.rollout.env_servers else harnesses.ready,
            lessons.group,
            keep_pace=keep_pace,
        )
