"""A process that judges, and plans and ends steps, on a shared store, from a line on its standard input until it is
killed. What it did is in the rows.

python -m tests.faults.shared_child DATA_DIR URL
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from openclaw_rl.errors import StoreUnavailable
from openclaw_rl.store import PostgresStore
from openclaw_rl.types import Judgement, Verdict, claim_of
from tests.factories.planned import LINE, planned

LEASE_S, CLAIM_S = 2.0, 3.0


async def judge(store: PostgresStore, name: str) -> None:
    """A few turns at once, each for a moment in which it may be killed."""
    while True:
        held = await store.lessons.lease("judge", limit=3, ttl_s=LEASE_S)
        await asyncio.sleep(0.05)
        judgements = [
            Judgement(
                session=one.session,
                index=one.index,
                num_evidence=one.num_evidence,
                judge=name,
                prompt_version="1",
                judged_at=time.time(),
                verdict=Verdict(outcome="scored", score=1),
            )
            for one in held
        ]
        await store.lessons.put_judgements(list(zip(held, judgements, strict=True)))


async def train(store: PostgresStore, name: str) -> None:
    """Steps of one sample each."""
    lessons = store.lessons
    while True:
        async with lessons.claimed(claim_of(LINE)) as mine:
            if mine:
                steps = await lessons.planned_steps()
                waiting = await lessons.waiting_samples(LINE, 1)
                if not steps and waiting:
                    step = planned(await lessons.next_step_number(LINE), 0, waiting[0].id)
                    await lessons.plan_step(step)
                    steps = [step]
                await asyncio.sleep(0.05)
                for step in steps:
                    await lessons.finish_step(replace(step, state="done", finished_at=1.0, reason=name), None)
        await asyncio.sleep(0.01)


async def again(work: Callable[[PostgresStore, str], Awaitable[None]], store: PostgresStore, name: str) -> None:
    """A machine that is busy may lose a claim in the middle: then it begins anew."""
    while True:
        try:
            await work(store, name)
        except StoreUnavailable as error:
            print(error, file=sys.stderr)


async def main(directory: Path, url: str) -> None:
    store = await PostgresStore.open(directory, url, claim_s=CLAIM_S)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    async with store, asyncio.TaskGroup() as tasks:
        tasks.create_task(again(judge, store, directory.name))
        tasks.create_task(again(train, store, directory.name))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
