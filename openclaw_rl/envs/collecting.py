"""Tasks -> groups of attempts at them, many at once: to learn from (`collect`), or to compare versions (`examine`).

    collect     tasks to train on; a group is several attempts at one task. Credit and training follow by themselves, as
                groups complete.
    examine     held-out tasks, the same for every version; nobody learns from these attempts.

Examinations have a few rooms of their own: a gate does not wait for a collection.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import chain, repeat
from random import Random

from openclaw_rl.envs.attempting import Attempter, Tell
from openclaw_rl.envs.orders import Attempted, CollectOrder, Tried
from openclaw_rl.errors import EnvError, OpenClawError, TaskError
from openclaw_rl.protocols import EnvServer, Harness
from openclaw_rl.types import Episode, Json, Outcome, Split, Task

StoredGroup = Callable[[str], Awaitable[Sequence[tuple[Episode, Outcome | None, Sequence[str]]]]]
"""The attempts of a group that are stored."""

HOPELESS_GROUPS = 3
"""So many groups in a row of which every environment failed end a collection: the next would fail alike."""

EXAM_ROOMS = 4

KeepPace = Callable[[str], Awaitable[None]]
"""Returns when another group of a line may begin."""


async def at_once(line: str) -> None:
    """The pace where nobody learns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Attempts at one task, to be compared with each other. `numbers`: those that are still to be made."""

    name: str
    task: Task
    numbers: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempting:
    """How attempts are made: by whom, with which version, told to whom. `rooms`: as many at once; `programs`: what the
    harness was asked for by."""

    rooms: asyncio.Semaphore
    harness: Harness
    programs: str
    tell: Tell
    tell_steps: bool
    learn: bool
    version: str = ""


class TaskCollector:
    """Makes attempts, and compares them with what is stored of earlier calls."""

    def __init__(
        self,
        server: EnvServer,
        attempter: Attempter,
        harness: Callable[[str], Harness],
        stored: StoredGroup,
        *,
        keep_pace: KeepPace = at_once,
    ) -> None:
        self._server = server
        self._attempter = attempter
        self._harness = harness
        self._stored = stored
        self._keep_pace = keep_pace
        self._exam_rooms = asyncio.Semaphore(EXAM_ROOMS)

    async def collect(self, order: CollectOrder, tell: Tell) -> Mapping[str, Json]:
        """What came of it, in numbers. Cancelled, it ends what is under way and leaves nothing open."""
        tasks = await self._tasks(order.tried, "train")
        how = _Attempting(
            rooms=asyncio.Semaphore(order.parallel),
            harness=self._harness(order.tried.harness),
            programs=order.tried.harness,
            tell=tell,
            tell_steps=order.tell_steps,
            learn=True,
        )
        groups = [await self._rest(group) for group in _groups(order, tasks)]
        missing = [group for group in groups if group.numbers]
        counts = Counter({"groups_before": len(groups) - len(missing)})
        tell({"begun": {"groups": len(missing), "group_size": order.group_size, "tasks": len(tasks)}})
        waiting, hopeless, line = iter(missing), _Hopeless(), f"env:{order.tried.environment}"

        async def work() -> None:
            for group in waiting:
                await self._keep_pace(line)
                made = await self._attempt_group(group, order.group_size, how)
                _count(counts, made)
                tell({"group": {"name": group.name, "task": group.task.ref.name, **dict(counts)}})
                hopeless.heard(made)

        async with _first_error(), asyncio.TaskGroup() as workers:
            for _ in range(min(order.workers, len(missing))):
                workers.create_task(work())
        return dict(counts)

    async def _attempt_group(self, group: Group, size: int, how: _Attempting) -> Sequence[Attempted | TaskError]:
        async with asyncio.TaskGroup() as attempts:
            running = [
                attempts.create_task(self._attempt(group.task, group.name, number, size, how))
                for number in group.numbers
            ]
        return [one.result() for one in running]

    async def examine(
        self,
        tried: Tried,
        labels: Sequence[str],
        *,
        num_tasks: int,
        attempts: int = 1,
        split: Split = "held_out",
        tell_steps: bool = False,
        tell: Tell = lambda _: None,
    ) -> list[list[Attempted]]:
        """For each version its attempts at the same tasks, in the same order; an attempt whose environment failed is
        missing in every row. `EnvError` where nothing is left."""
        tasks = _spread(await self._tasks(tried, split), num_tasks)
        harness, exam = self._harness(tried.harness), f"exam-{secrets.token_hex(4)}"
        places = [(task, number) for task in tasks for number in range(attempts)]
        async with _first_error(), asyncio.TaskGroup() as running:
            rows = [
                [
                    running.create_task(
                        self._attempt(
                            task,
                            f"{exam}/{label}/{task.ref.name}/{number}",
                            0,
                            1,
                            _Attempting(
                                rooms=self._exam_rooms,
                                harness=harness,
                                programs=tried.harness,
                                tell=tell,
                                tell_steps=tell_steps,
                                learn=False,
                                version=label,
                            ),
                        )
                    )
                    for task, number in places
                ]
                for label in labels
            ]
        made = [[one.result() for one in row] for row in rows]
        whole = [at for at in range(len(places)) if all(_is_graded(row[at]) for row in made)]
        if not whole:
            raise EnvError(f"no attempt at {len(places)} tasks could be graded: {_first_reason(chain(*made))}")
        return [[one for at in whole if isinstance(one := row[at], Attempted)] for row in made]

    async def _attempt(self, task: Task, group: str, number: int, size: int, how: _Attempting) -> Attempted | TaskError:
        episode = Episode(
            id=f"e-{secrets.token_hex(12)}",
            environment=task.ref.environment,
            task=task.ref.name,
            group=group,
            attempt=number,
            group_size=size,
        )
        steps = how.tell if how.tell_steps else None
        async with how.rooms:
            try:
                made = await self._attempter.attempt(
                    task.ref,
                    episode,
                    how.harness,
                    programs=how.programs,
                    learn=how.learn,
                    version=how.version,
                    tell=steps,
                )
            except TaskError as error:
                how.tell({"broken": {"task": episode.task, "reason": str(error)}})
                return error
        how.tell({"attempt": made.to_json()})
        return made

    async def _tasks(self, tried: Tried, split: Split) -> list[Task]:
        found = await self._server.tasks(tried.environment, tried.source)
        if unknown := set(tried.names) - {task.ref.name for task in found}:
            raise TaskError(f"there is no task {min(unknown)!r} in {tried.source or tried.environment}")
        chosen = [task for task in found if task.split == split and (not tried.names or task.ref.name in tried.names)]
        if not chosen:
            kind = "to train on" if split == "train" else "that is held out"
            raise TaskError(f"there is no task {kind} in {tried.source or tried.environment}")
        return chosen

    async def _rest(self, group: Group) -> Group:
        """Without the attempts that an earlier call began: they have ended, be it as failures."""
        begun = {episode.attempt for episode, _, _ in await self._stored(group.name)}
        return replace(group, numbers=[number for number in group.numbers if number not in begun])


@asynccontextmanager
async def _first_error() -> AsyncIterator[None]:
    """Tasks that failed together fail as the first of them did."""
    try:
        yield
    except BaseExceptionGroup as group:
        ours = group.subgroup(OpenClawError)
        if ours is None:
            raise
        first: BaseException = ours
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


class _Hopeless:
    """Ends a collection in which nothing can be graded any more."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def heard(self, made: Sequence[Attempted | TaskError]) -> None:
        self._in_a_row = 0 if any(map(_is_graded, made)) else self._in_a_row + 1
        if self._in_a_row == HOPELESS_GROUPS:
            raise EnvError(f"{HOPELESS_GROUPS} groups in a row could not be graded: {_first_reason(made)}")


def _groups(order: CollectOrder, tasks: Sequence[Task]) -> Iterator[Group]:
    """Each task once, in an order that the seed shuffles, then each a second time, and so on."""
    shuffled = list(tasks)
    Random(order.seed).shuffle(shuffled)
    rounds = (zip(shuffled, repeat(number), strict=False) for number in range(order.num_groups // len(tasks) + 1))
    for (task, number), _ in zip(chain.from_iterable(rounds), range(order.num_groups), strict=False):
        yield Group(name=f"{order.run}/{task.ref.name}/{number}", task=task, numbers=range(order.group_size))


def _spread(tasks: Sequence[Task], num: int) -> Sequence[Task]:
    """So many of them, always the same: sets list one kind of task after the other, and all kinds are to be asked."""
    if num >= len(tasks):
        return tasks
    chosen = sorted(Random(len(tasks)).sample(range(len(tasks)), num))
    return [tasks[at] for at in chosen]


def _is_graded(made: Attempted | TaskError) -> bool:
    return isinstance(made, Attempted) and made.grade.reward is not None


def _first_reason(made: Iterable[Attempted | TaskError]) -> str:
    return next(str(one) if isinstance(one, TaskError) else one.grade.failure for one in made if not _is_graded(one))


def _count(counts: Counter[str], made: Sequence[Attempted | TaskError]) -> None:
    graded = [one for one in made if isinstance(one, Attempted) and one.grade.reward is not None]
    rewards = {one.grade.reward for one in graded}
    counts["groups"] += 1
    counts["attempts"] += len(made)
    counts["failed"] += len(made) - len(graded)
    counts["solved"] += sum(one.grade.is_solved for one in graded)
    counts["same_outcome"] += len(graded) > 1 and len(rewards) == 1
