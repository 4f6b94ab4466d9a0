"""Steps of one line, planned and taken as the loops do, on samples made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from openclaw_rl.store import SqlStore
from openclaw_rl.types import Lesson, Sample, Step, Version
from tests.factories.orders import sample
from tests.factories.stored import put_samples
from tests.factories.weights import folder_ref

LINE = "local"


def made(name: str, index: int = 0, **changes: Any) -> Sample:
    return sample(index, session=name, id=f"{name}.{index}", **changes)


def planned(number: int, parent: int, *ids: str, replayed: tuple[str, ...] = ()) -> Step:
    return Step(
        line=LINE,
        number=number,
        state="planned",
        planned_at=1.0,
        seed=0,
        parent=parent,
        sample_ids=ids,
        replayed_ids=replayed,
    )


async def take(store: SqlStore, step: Step) -> None:
    """The step is done and its version live."""
    await store.lessons.plan_step(step)
    version = Version(
        line=step.line,
        number=step.number,
        parent=step.parent,
        state="candidate",
        created_at=1.0,
        weights=folder_ref(f"/v{step.number}/weights", "ab"),
    )
    assert await store.lessons.finish_step(replace(step, state="done"), version)
    await store.lessons.set_version_state(step.line, step.number, "live", gate={"kl": 0.1, "live_at": 1.0})


async def history(store: SqlStore) -> None:
    """Steps 1 to 3 learned from a, b with c, and d; step 3 replayed c."""
    await put_samples(store, [made(name, created_at=float(at)) for at, name in enumerate("abcd")])
    await take(store, planned(1, 0, "a.0"))
    await take(store, planned(2, 1, "b.0", "c.0"))
    await take(store, planned(3, 2, "d.0", replayed=("c.0",)))


def of(name: str) -> Lesson:
    return Lesson(line=LINE, turn=(name, 0))


async def states(store: SqlStore) -> list[str]:
    return [version.state for version in await store.lessons.versions(LINE)]


async def waiting(store: SqlStore) -> list[str]:
    return [one.id for one in await store.lessons.waiting_samples(LINE, 99)]


async def candidate(store: SqlStore, number: int, parent: int, *names: str) -> Version:
    """Made by a step that learned from these sessions, two samples each."""
    samples = [made(name, index) for name in names for index in (0, 1)]
    await put_samples(store, samples)
    step = planned(number, parent, *(one.id for one in samples))
    await store.lessons.plan_step(step)
    path = f"/v{number}/weights"
    version = Version(
        line=LINE, number=number, parent=parent, state="candidate", created_at=1.0, weights=folder_ref(path, "ab")
    )
    assert await store.lessons.finish_step(replace(step, state="done"), version)
    return version


async def doubted(store: SqlStore) -> list[str]:
    return await store.lessons.doubted_samples(LINE)
