"""The life of leases under random interleavings: nothing runs twice, no place is taken twice, no room stays open."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.envs.leases.rooms import LocalEnvServer
from openclaw_rl.errors import EnvBusy, EnvError, EnvGone, TaskError
from tests.fakes.environments import NO_PROGRAMS, TASKS, CountingEnvironment, call_of, task_ref

CAPACITY, PER_TASK, TTL_S = 3, 2, 10.0

Act = Literal["allocate", "reset", "step", "exec", "evaluate", "beat", "close", "vanish", "later", "release", "breathe"]

STEPS = st.tuples(
    st.sampled_from(Act.__args__),  # type: ignore[attr-defined]
    st.integers(0, 4),  # which request; each task has two or more of them
    st.integers(0, 3),  # which key
    st.sampled_from(("say", "wait", "fail")),
)


class Story:
    """One run: what was asked for, and by whom it was heard."""

    def __init__(self) -> None:
        self.now = 0.0
        self.environment = CountingEnvironment()
        self.server = LocalEnvServer(
            {"counting": self.environment},
            lambda _: NO_PROGRAMS,
            capacity=CAPACITY,
            capacity_per_task=PER_TASK,
            ttl_s=TTL_S,
            clock=lambda: self.now,
        )
        self.leases: dict[int, str] = {}
        self.heard: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        self.callers: list[asyncio.Task[None]] = []

    async def act(self, act: Act, request: int, key: int, verb: str) -> None:
        lease = self.leases.get(request, "nobody's")
        k = f"k{key}"
        script = f"{verb} {lease}/{act}/{k}"
        match act:
            case "allocate":
                await self._allocate(request)
            case "reset":
                self._ask(("reset", lease, k), lambda: self.server.reset(lease, key=k, gateway="g", harness=""))
            case "step":
                self._ask(("step", lease, k), lambda: self.server.step(lease, call_of(script), key=k))
            case "exec":
                self._ask(("exec", lease, k), lambda: self.server.exec(lease, script, key=k, timeout_s=9.0, env={}))
            case "evaluate":
                self._ask(("evaluate",), lambda: self.server.evaluate(lease))
            case "beat":
                self._ask(("beat",), lambda: self.server.heartbeat(lease))
            case "close":
                self._ask(("close",), lambda: self.server.close(lease))
            case "vanish":
                if self.callers:
                    self.callers[request % len(self.callers)].cancel()
            case "later":
                self.now += TTL_S * (key + 1) / 3
            case "release":
                self.environment.gate.set()
                await asyncio.sleep(0)
                self.environment.gate.clear()
            case "breathe":
                for _ in range(key + request):
                    await asyncio.sleep(0)

    async def _allocate(self, request: int) -> None:
        task = task_ref(TASKS[request % 2])
        try:
            lease = await self.server.allocate(task, request_id=f"r{request}")
        except EnvBusy:
            return
        except EnvGone:
            assert request in self.leases, "only what was leased can have ended"
            return
        assert self.leases.setdefault(request, lease.id) == lease.id, "a request has one lease in its life"

    def _ask(self, what: tuple[str, ...], call: Callable[[], Awaitable[object]]) -> None:
        async def hear() -> None:
            try:
                answer = repr(await call())
            except (EnvBusy, EnvGone, TaskError):
                return  # the first says nothing of the call, the others may come later than an answer
            except EnvError as error:
                answer = str(error)
                if "was used for another call" in answer or "has no room" in answer or "is not kept" in answer:
                    return
            self.heard[what].append(answer)

        self.callers.append(asyncio.create_task(hear()))

    async def check(self) -> None:
        open_rooms = self.environment.open_rooms
        assert len(open_rooms) <= CAPACITY
        assert all(number <= PER_TASK for number in Counter(room.task for room in open_rooms).values())
        status = await self.server.status()
        assert status["leases"] + status["closing"] <= CAPACITY

    async def end(self) -> None:
        await self.server.aclose()
        for caller in self.callers:
            caller.cancel()
        if self.callers:
            await asyncio.wait(self.callers)
        assert all(caller.cancelled() or caller.exception() is None for caller in self.callers)
        assert not self.environment.open_rooms
        assert all(room.num_closes == 1 for room in self.environment.rooms), "every room is closed once"
        assert all(number == 1 for number in self.environment.ran.values()), "a command ran twice"
        for what, answers in self.heard.items():
            assert len(what) == 1 or len(set(answers)) == 1, f"{what} was answered in two ways: {answers}"
        assert asyncio.all_tasks() == {asyncio.current_task()}, "the server left something running"


@settings(max_examples=250)
@given(st.lists(STEPS, max_size=60))
def test_no_interleaving_runs_a_command_twice_or_leaves_a_room(steps: list[tuple[Act, int, int, str]]) -> None:
    async def run() -> None:
        story = Story()
        # Rooms to begin with: otherwise most stories end before anything runs.
        for request in range(2):
            await story.act("allocate", request, 0, "say")
            await story.act("reset", request, 9, "say")
        for step in steps:
            await story.act(*step)
            await asyncio.sleep(0)
            await story.check()
        await story.end()

    asyncio.run(run())
