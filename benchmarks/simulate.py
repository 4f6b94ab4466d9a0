"""Ten thousand people and a thousand engines, simulated: what is full first, how long people wait, what a day costs.

    python benchmarks/simulate.py [--json] [--users N] [--engines N] [--trainers N] [--gateways N] [--check]

A discrete-event simulation of one busy hour. Every person asks at times of their own; each request goes through a
gateway, to the engine that has the person's conversation, waits there for a place and for the person's adapter, and is
answered; now and then its person corrects it, and then judge, trainer and gate follow. `MEASURED` has all constants,
each with where it was measured; `ASSUMED` has what nobody measured: what people do, and what machines cost. Both are
printed beside the result.

`--check` holds the model against two points that are none of its constants: the answers a second of 8 and of 32 people
at once on one engine, as `benchmarks/scale.py --part users` measured them, from what it measured with one person and of
one adapter. It knows no product code: what is simulated is what the pages say.

What it leaves out: networks, failures, the lengths of conversations (a prompt is read from the cache, as far as it was
there), and people who stop because it is slow.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import random
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

SECONDS_A_DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A number, and where it comes from."""

    value: float
    unit: str
    source: str


def _of(value: float, unit: str, source: str) -> Constant:
    return Constant(value=value, unit=unit, source=source)


MEASURED: dict[str, Constant] = {
    "gateway_s": _of(1 / 701, "s a request", "gateway.py rps_64, 2 cores, every turn on disk"),
    "gateways_on_one_store": _of(1, "gateways", "one process writes a SQLite store"),
    "judge_s": _of(1 / 740, "s a verdict", "judge.py, rules and n-gram heads, 2 cores"),
    "step_first_s": _of(0.00292, "s a decode step", "decode.py, H200, 4B shape, 12k tokens of KV, batch 1"),
    "step_each_s": _of((0.00603 - 0.00292) / 7, "s more for each further answer", "the same, batch 8"),
    "mixed": _of(1.17, "times, adapters mixed", "decode.py, four different adapters in a batch of eight"),
    "prefill_s": _of(0.04, "s a prompt that goes on", "turns.py, H200: a prompt is launched in 30 to 45 ms"),
    "train_s": _of(0.95, "s a step", "train_step.py, H200, one turn behind 11,000 tokens"),
    "checkpoint_s": _of(0.8, "s a step", "trainer.py, H200, 4B shape"),
    "gate_s": _of(5.6, "s a candidate on an engine", "gate.py, H200: from candidate to live"),
    "bring_s_per_mib": _of(0.2047 / 18.7, "s a MiB of adapter", "scale.py --part users, 2 busy cores"),
}
ASSUMED: dict[str, Constant] = {
    "turns_a_day": _of(60, "requests of one person", "assumed"),
    "busy": _of(3.0, "times the mean in the busy hour", "assumed"),
    "answer_tokens": _of(250, "tokens of an answer", "assumed"),
    "corrected": _of(0.08, "of answers are corrected", "assumed"),
    "taught_at_once": _of(1.5, "corrections in one step", "assumed: max_wait_s joins few of one person"),
    "adapter_mib": _of(126, "MiB of an adapter", "4B shape, rank 32, bfloat16, by its sizes"),
    "places": _of(32, "answers at once on an engine", "engine.max_active of configs/layouts/eight-gpus.yaml"),
    "room": _of(48, "adapters in an engine's memory", "engine.max_adapters, the same file"),
    "gpu_hour": _of(3.0, "dollars a GPU and hour", "assumed"),
    "cpu_hour": _of(0.1, "dollars a gateway and hour", "assumed"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Who is there."""

    users: int = 10_000
    engines: int = 1_000
    trainers: int = 100
    gateways: int = 1
    seconds: float = 3600.0
    seed: int = 7


@dataclass(slots=True)
class Station:
    """Servers of one kind with one line before them."""

    name: str
    num: int
    busy_s: float = 0.0
    free_at: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free_at = [0.0] * self.num

    def serve(self, now: float, seconds: float) -> float:
        """When somebody who comes now is done. Calls must come in the order of their times."""
        start = max(now, heapq.heappop(self.free_at))
        heapq.heappush(self.free_at, start + seconds)
        self.busy_s += seconds
        return start + seconds

    def load(self, seconds: float) -> float:
        return self.busy_s / (self.num * seconds)


@dataclass(slots=True)
class SimulatedEngine:
    """Places, adapters in memory, and the disk that brings them, one at a time. A decode step is longer the more
    answers are written at once: each answer goes at the pace of the batch that it begins in."""

    places: int
    room: int
    bring_s: float
    pace: Callable[[int], float]
    prefill_s: float
    ends: list[float] = field(default_factory=list)
    adapters: OrderedDict[int, None] = field(default_factory=OrderedDict)
    disk_free_at: float = 0.0
    busy_s: float = 0.0
    num_brought: int = 0

    def answer(self, now: float, user: int, num_tokens: float) -> tuple[float, float]:
        """When the first token comes, and the last."""
        ready = now
        if user in self.adapters:
            self.adapters.move_to_end(user)
        else:
            ready = self.disk_free_at = max(now, self.disk_free_at) + self.bring_s
            self.num_brought += 1
            self.adapters[user] = None
            if len(self.adapters) > self.room:
                self.adapters.popitem(last=False)
        while self.ends and self.ends[0] <= ready:
            heapq.heappop(self.ends)
        while len(self.ends) >= self.places:
            ready = max(ready, heapq.heappop(self.ends))
        size = len(self.ends) + 1
        first = ready + self.prefill_s + self.pace(size)
        last = first + (num_tokens - 1) * self.pace(size)
        heapq.heappush(self.ends, last)
        self.busy_s += (last - ready) / self.places
        return first, last


def decode_pace(first_s: float, each_s: float, mixed: float) -> Callable[[int], float]:
    """Seconds of a decode step with so many answers in it."""

    def pace(size: int) -> float:
        return (first_s + (size - 1) * each_s) * (mixed if size > 1 else 1.0)

    return pace


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Loads are shares of what each kind of machine can do in the busy hour; `room_for` says how many people fill the
    fullest of them."""

    loads: dict[str, float]
    first: str
    room_for: float
    ttft_p50_s: float
    ttft_p99_s: float
    lesson_p50_s: float
    lesson_p99_s: float
    num_requests: int
    num_lessons: int
    brought_share: float
    dollars_a_user_and_day: float

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def simulate(size: Size) -> Result:
    """One busy hour. Every event is a heap entry (time, order, what comes next)."""
    drawn = random.Random(size.seed)
    value = {name: one.value for name, one in {**MEASURED, **ASSUMED}.items()}
    pace = decode_pace(value["step_first_s"], value["step_each_s"], value["mixed"])
    gateways, judges = Station("gateway and store", size.gateways), Station("judge", size.gateways)
    trainers = Station("trainer", size.trainers)
    engines = [
        SimulatedEngine(
            places=round(value["places"]),
            room=round(value["room"]),
            bring_s=value["bring_s_per_mib"] * value["adapter_mib"],
            pace=pace,
            prefill_s=value["prefill_s"],
        )
        for _ in range(size.engines)
    ]
    events: list[tuple[float, int, Callable[[float], None]]] = []
    order = itertools.count()
    ttft, lessons = list[float](), list[float]()
    gate_busy_s = [0.0]

    def at(time: float, what: Callable[[float], None]) -> None:
        heapq.heappush(events, (time, next(order), what))

    def request(user: int) -> Callable[[float], None]:
        def come(now: float) -> None:
            accepted = gateways.serve(now, value["gateway_s"])
            at(accepted, lambda then: answer(user, now, then))

        return come

    def answer(user: int, asked: float, now: float) -> None:
        num_tokens = max(1.0, drawn.expovariate(1 / value["answer_tokens"]))
        first, last = engines[user % size.engines].answer(now, user, num_tokens)
        ttft.append(first - asked)
        if drawn.random() < value["corrected"]:
            at(last, correct)

    def correct(now: float) -> None:
        at(judges.serve(now, value["judge_s"]), lambda then: train(now, then))

    def train(corrected: float, now: float) -> None:
        seconds = (value["train_s"] + value["checkpoint_s"]) / value["taught_at_once"]
        gate_busy_s[0] += value["gate_s"] / value["taught_at_once"]
        at(trainers.serve(now, seconds), lambda then: lessons.append(then + value["gate_s"] - corrected))

    per_s = value["turns_a_day"] * value["busy"] / SECONDS_A_DAY
    for user in range(size.users):
        due = drawn.expovariate(per_s)
        while due < size.seconds:
            at(due, request(user))
            due += drawn.expovariate(per_s)
    num_requests = len(events)
    while events:
        now, _, what = heapq.heappop(events)
        what(now)
    loads = {
        gateways.name: gateways.load(size.seconds),
        judges.name: judges.load(size.seconds),
        trainers.name: trainers.load(size.seconds),
        "engines": (sum(one.busy_s for one in engines) + gate_busy_s[0] / value["places"])
        / (size.engines * size.seconds),
        "engines' disks": sum(one.num_brought for one in engines) * engines[0].bring_s / (size.engines * size.seconds),
    }
    first = max(loads, key=lambda name: loads[name])
    dollars = 24 * ((size.engines + size.trainers) * value["gpu_hour"] + size.gateways * value["cpu_hour"])
    return Result(
        loads={name: round(load, 5) for name, load in loads.items()},
        first=first,
        room_for=round(size.users / loads[first]),
        ttft_p50_s=round(median(ttft), 4),
        ttft_p99_s=round(_percentile(ttft, 99), 4),
        lesson_p50_s=round(median(lessons), 2),
        lesson_p99_s=round(_percentile(lessons, 99), 2),
        num_requests=num_requests,
        num_lessons=len(lessons),
        brought_share=round(sum(one.num_brought for one in engines) / num_requests, 4),
        dollars_a_user_and_day=round(dollars / size.users, 4),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A point that was measured, and what the model says of it."""

    name: str
    measured: float
    modelled: float

    @property
    def ratio(self) -> float:
        return self.modelled / self.measured


def check(point: dict[str, float]) -> list[Checked]:
    """Holds the engine's model against `scale.py --part users`.

    From the run's own `answers_per_s_1`, without the adapter that it brought, comes how long an answer takes; from
    `bring_ms` the disk; and from decoding on that CPU how a step grows with the batch (77 tokens/s with eight answers
    where one has 15.4: `decode.py`).
    """
    found: list[Checked] = []
    alone_s = 1 / point["answers_per_s_1"] - point["brought_1"] * point["bring_ms"] / 1000
    num_tokens = 8.0
    step_s = alone_s / (num_tokens + 1)  # a short prompt is read about as fast as a token is written
    grows_s = step_s * (8 * 15.4 / 77 - 1) / 7
    for num in (8, 32):
        engine = SimulatedEngine(
            places=8,
            room=16,
            bring_s=point["bring_ms"] / 1000,
            pace=decode_pace(step_s, grows_s, 1.0),
            prefill_s=step_s,
        )
        end = 0.0
        there = num - round(point[f"brought_{num}"])
        engine.adapters = OrderedDict.fromkeys(range(there))
        for user in range(num):
            _, last = engine.answer(0.0, user, num_tokens)
            end = max(end, last)
        found.append(Checked(name=f"answers_per_s_{num}", measured=point[f"answers_per_s_{num}"], modelled=num / end))
    return found


MEASURED_POINT: dict[str, float] = {
    "bring_ms": 204.7,
    "answers_per_s_1": 2.092,
    "brought_1": 1,
    "answers_per_s_8": 2.285,
    "brought_8": 7,
    "answers_per_s_32": 6.496,
    "brought_32": 16,
}
"""Of one run of `benchmarks/scale.py --part users` on two cores at a load of 10 (2026-11-20): other work took most of
them, and runs differ by a factor of two."""


def _percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(len(ordered) * percent / 100))]


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulate many people on many engines.")
    parser.add_argument("--users", type=int, default=Size().users)
    parser.add_argument("--engines", type=int, default=Size().engines)
    parser.add_argument("--trainers", type=int, default=Size().trainers)
    parser.add_argument("--gateways", type=int, default=Size().gateways)
    parser.add_argument("--json", action="store_true", help="one JSON object, last")
    parser.add_argument("--check", action="store_true", help="hold the model against two measured points")
    chosen = parser.parse_args()
    if chosen.check:
        for point in check(MEASURED_POINT):
            told = f"measured {point.measured:8.3f}  model {point.modelled:8.3f}  ratio {point.ratio:5.2f}"
            print(f"{point.name:20} {told}")
        return 0
    size = Size(users=chosen.users, engines=chosen.engines, trainers=chosen.trainers, gateways=chosen.gateways)
    for title, table in (("measured", MEASURED), ("assumed", ASSUMED)):
        for name, one in table.items():
            print(f"{title:9} {name:22} {one.value:>10.5g}  {one.unit}  ({one.source})")
    result = simulate(size)
    who = f"{size.users} people, {size.engines} engines, {size.trainers} trainers, {size.gateways} gateways"
    print(f"\n{who}, busy hour")
    for name, found in result.to_json().items():
        print(f"{name:24} {found}")
    if chosen.json:
        print(json.dumps({"constants": {n: c.value for n, c in {**MEASURED, **ASSUMED}.items()}, **result.to_json()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
