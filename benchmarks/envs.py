"""Rooms for agents at work: how soon they open, how many episodes a minute they carry, and what they leave behind.

    python benchmarks/envs.py [--json] [--quick] [--leases N] [--without-opponent]

`openclaw-rl env serve` runs as a child and is asked over HTTP, as a trainer on another machine asks it. An episode is a
real task of the shipped set `files`: a lease, a box with the task's files, three calls of the shell tool by a scripted
agent (look, do, look again), the grade in a fresh box, and the end of the lease. No model takes part. An episode that
is not solved ends the benchmark.

    start_p50_ms            a box from nothing to the answer of its first command (median), without a lease
    commands_per_s          `/bin/true` in one lasting shell, one after the other
    episodes_per_min_N      N episodes at a time
    mib_per_box             what the processes of one open box and its shell hold, shared pages counted once (PSS)
    leftovers               after all leases: processes, mounts, control groups and folders that were not there when
                            the first lease had ended, and those that outlive the server. Must be 0

The opponent is swe-rex's LocalDeployment (benchmarks/swe_rex_run.py), on the same tasks in the same run; it is
installed once into the cache directory. It runs commands as the user who started it, with nothing between them and the
machine, and grades in the same shell.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, fields
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.load import LoadError
from benchmarks.opponents import Installed, OutOfTheRace, end_of
from openclaw_rl.envs.leases.client import RemoteEnvServer
from openclaw_rl.envs.leases.leased import LeasedRoom
from openclaw_rl.envs.sandbox.box import BoxSpec
from openclaw_rl.envs.sandbox.making import make_sandbox
from openclaw_rl.envs.sandbox.warden.cgroup import PREFIX, homes_here
from openclaw_rl.envs.terminal.shipped.draft import write_task
from openclaw_rl.envs.terminal.shipped.sets import drafts
from openclaw_rl.types import TaskRef, ToolCall

PARALLEL = (1, 8, 32)
SET = "files"
COMMAND, COMMAND_S, SETTLE_S = "/bin/true", 60.0, 10

FIGURES = {
    "start_p50_ms": "a box until its first command is answered, ms (median)",
    "swe_rex_start_p50_ms": "  swe-rex",
    "commands_per_s": "commands a second in one shell",
    "swe_rex_commands_per_s": "  swe-rex",
    **{
        name: label
        for number in PARALLEL
        for name, label in (
            (f"episodes_per_min_{number}", f"graded episodes a minute, {number} at a time"),
            (f"swe_rex_episodes_per_min_{number}", "  swe-rex"),
        )
    },
    "mib_per_box": "MiB of an open box",
    "leases": "leases in all",
    "leftovers": "left behind (must 0)",
    "seconds": "length of the run, s",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """A task, and what the scripted agent does at it."""

    name: str
    commands: tuple[str, ...]

    @property
    def ref(self) -> TaskRef:
        return TaskRef(environment="terminal", source=SET, name=self.name)


def scripted_tasks() -> list[Scripted]:
    """Every shipped task of the set that is trained on: it looks, does it, and looks again."""
    made = ((name, draft) for name, split, draft in drafts(SET) if split == "train")
    return [Scripted(name=name, commands=("ls -la", draft.command, "ls -la")) for name, draft in made]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is there of rooms on this machine, by name."""

    processes: frozenset[str] = frozenset()
    mounts: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()

    def beyond(self, before: Left) -> list[str]:
        """What was not there before."""
        kinds = [(field.name, getattr(self, field.name) - getattr(before, field.name)) for field in fields(self)]
        return [f"{kind} {name}" for kind, new in kinds for name in sorted(new)]


def left_of(processes: Sequence[psutil.Process], folder: Path) -> Left:
    """`processes` are those that may be a server's; `folder` is where it keeps what rooms need."""
    groups = (os.path.join(home, name) for home in homes_here().all for name in os.listdir(home))
    return Left(
        processes=frozenset(str(one.pid) for one in processes if _lives(one)),
        mounts=frozenset(_mounts(Path("/proc/self/mountinfo"))),
        groups=frozenset(one for one in groups if os.path.basename(one).startswith(PREFIX)),
        folders=frozenset(str(one) for one in _scratch(folder)),
    )


def _lives(one: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(one.is_running() and one.status() != psutil.STATUS_ZOMBIE)
    return False


def _mounts(table: Path) -> list[str]:
    return [line.split()[4] for line in table.read_text().splitlines()]


def _scratch(folder: Path) -> list[Path]:
    """Where boxes and attempts keep what is theirs alone; images and sets of tasks are kept for good."""
    return [one for name in ("boxes", "terminal/attempts") for one in (folder / name).glob("*")]


class Served:
    """`openclaw-rl env serve` as a child."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, key: str, folder: Path) -> None:
        self._process = process
        self.url, self.key, self._folder = url, key, folder
        self._known: dict[int, psutil.Process] = {}

    def left(self) -> Left:
        """Processes of its that live, those included that have left it since they were last seen."""
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                self._known.setdefault(child.pid, child)
        return left_of(list(self._known.values()), self._folder)


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Served]:
    """A server that has room for all; `folder` is its cache."""
    command = [sys.executable, "-m", "openclaw_rl", "env", "serve", "--port", "0"]
    settings = [f"rollout.parallel_envs={max(PARALLEL)}", f"model.cache_dir={folder}"]
    process = await asyncio.create_subprocess_exec(
        *command, *settings, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        said = ""
        while not (found := re.search(r"rooms at (\S+),.*rollout\.env_key=(\S+)\n", said, re.DOTALL)):
            if not (line := (await process.stdout.readline()).decode()):
                raise LoadError(f"openclaw-rl env serve did not start: {said}")
            said += line
        yield Served(process, found[1], found[2], folder / "envs")
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        await process.wait()


async def episode(server: RemoteEnvServer, task: Scripted, name: str) -> None:
    """`LoadError` where it is not solved: what failed early would look quick."""
    room = LeasedRoom(server, task.ref, request_id=name, gateway="", harness="")
    try:
        await room.open()
        for number, command in enumerate(task.commands):
            call = ToolCall(id=f"c{number}", name="shell", arguments=json.dumps({"command": command}))
            await room.step(call)
        grade = await room.evaluate()
    finally:
        await room.close()
    if not grade.is_solved:
        raise LoadError(f"{task.name} was not solved: {grade.failure or grade.report}")


async def episodes(server: RemoteEnvServer, tasks: Sequence[Scripted], *, number: int, parallel: int) -> float:
    """So many in a minute."""
    places, began = asyncio.Semaphore(parallel), time.perf_counter()

    async def one(at: int, task: Scripted) -> None:
        async with places:
            await episode(server, task, f"{parallel}-{at}-{began}")

    async with asyncio.TaskGroup() as running:
        for at, task in enumerate(islice(cycle(tasks), number)):
            running.create_task(one(at, task))
    return 60 * number / (time.perf_counter() - began)


async def box_figures(folder: Path, *, starts: int, commands: int, boxes: int) -> dict[str, float]:
    """Of boxes without leases."""
    sandbox = make_sandbox(folder, kind="bubblewrap")
    if reason := await asyncio.to_thread(sandbox.lacks):
        raise LoadError(reason)
    spent: list[float] = []
    for _ in range(starts):
        began = time.perf_counter()
        box = await sandbox.start(BoxSpec())
        await box.shell(COMMAND, timeout_s=COMMAND_S)
        spent.append(1000 * (time.perf_counter() - began))
        await box.close()
    box = await sandbox.start(BoxSpec())
    await box.shell(COMMAND, timeout_s=COMMAND_S)
    began = time.perf_counter()
    for _ in range(commands):
        await box.shell(COMMAND, timeout_s=COMMAND_S)
    per_s = commands / (time.perf_counter() - began)
    await box.close()
    held_before = _pss_mib()
    opened = [await sandbox.start(BoxSpec()) for _ in range(boxes)]
    for box in opened:
        await box.shell(COMMAND, timeout_s=COMMAND_S)
    each = (_pss_mib() - held_before) / boxes
    for box in opened:
        await box.close()
    return {"start_p50_ms": median(spent), "commands_per_s": per_s, "mib_per_box": each}


def _pss_mib() -> float:
    """Of this process's descendants, a shared page counted once."""
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += child.memory_full_info().pss
    return total / 2**20


async def lease_figures(folder: Path, *, leases: int, numbers: Mapping[int, int]) -> tuple[dict[str, float], list[str]]:
    """Of episodes, `numbers` of them by how many at a time, and as many more as it takes; and what is left of all."""
    tasks, made = scripted_tasks(), 1
    nothing = left_of((), folder / "envs")
    found: dict[str, float] = {}
    async with served(folder) as child, RemoteEnvServer(child.url, child.key) as server:
        await episode(server, tasks[0], "first")  # which writes the set, and starts the process that makes boxes
        before = child.left()
        for parallel, number in numbers.items():
            found[f"episodes_per_min_{parallel}"] = await episodes(server, tasks, number=number, parallel=parallel)
            made += number
        while made < leases:
            number = min(max(PARALLEL), leases - made)
            await episodes(server, tasks, number=number, parallel=8)
            made += number
        left = await _settled(lambda: child.left().beyond(before))
    left += await _settled(lambda: child.left().beyond(nothing))
    return {**found, "leases": made, "leftovers": len(left)}, left


async def _settled(look: Callable[[], list[str]]) -> list[str]:
    """What is still there after a moment: a closed room is gone when its lease is, its porter may still be dying."""
    for _ in range(SETTLE_S):
        if not look():
            break
        await asyncio.sleep(1.0)
    return look()


class SweRex(Installed):
    """swe-rex in an environment of its own."""

    name = "swe-rex"
    requirement = "swe-rex==1.4.0"

    def install(self) -> None:
        self.pip("--only-binary=:all:", self.requirement)

    async def figures(self, order: Mapping[str, object], folder: Path) -> dict[str, float]:
        """By the names of `swe_rex_run.py`. `OutOfTheRace` where it cannot be installed, or fails."""
        await asyncio.to_thread(self.ensure_installed)
        file = folder / "order.json"
        file.write_text(json.dumps(order))
        program = Path(__file__).with_name("swe_rex_run.py")
        process = await asyncio.create_subprocess_exec(
            str(self.python), str(program), str(file), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        said, complaint = await process.communicate()
        if process.returncode:
            raise OutOfTheRace(f"failed: {end_of(complaint.decode(errors='replace'))}")
        told = json.loads(said.splitlines()[-1])
        for parallel, reason in told["failed"].items():
            print(f"swe-rex has no figure for {parallel} episodes at a time: {reason}")
        figures: dict[str, float] = told["figures"]
        return figures


def opponents_tasks(folder: Path) -> list[dict[str, Any]]:
    """The same tasks as folders, without a toml that nobody of theirs reads."""
    made = []
    for name, split, draft in drafts(SET):
        if split == "train":
            write_task(draft, folder / name, split=split, opening="shell", agent_s=60)
            files, expected = folder / name / "environment", folder / name / "tests" / "expected"
            commands = ["ls -la", draft.command, "ls -la"]
            made.append({"files": str(files), "expected": str(expected), "commands": commands})
    return made


async def run(chosen: argparse.Namespace) -> tuple[dict[str, float], list[str]]:
    starts, commands, boxes = (10, 100, 8) if chosen.quick else (40, 500, 16)
    numbers = dict(zip(PARALLEL, (10, 24, 32) if chosen.quick else (40, 80, 96), strict=True))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        found = await box_figures(folder / "sandbox", starts=starts, commands=commands, boxes=boxes)
        of_leases, left = await lease_figures(folder / "served", leases=chosen.leases, numbers=numbers)
        found |= of_leases
        if not chosen.without_opponent:
            their_numbers = {str(parallel): number for parallel, number in numbers.items()}
            tasks = await asyncio.to_thread(opponents_tasks, folder / "tasks")
            order = {"starts": starts, "commands": commands // 5, "episodes": their_numbers, "tasks": tasks}
            rival = SweRex()
            try:
                theirs = await rival.figures(order, folder)
                found |= {f"swe_rex_{name}": value for name, value in theirs.items()}
            except OutOfTheRace as reason:
                print(f"{rival.name} is not measured: it {reason}")
    return found, left


def main() -> int:
    made = argparse.ArgumentParser(description="Measure rooms for agents at work.")
    made.add_argument("--json", action="store_true", help="also print all figures as one JSON object, last")
    made.add_argument("--quick", action="store_true", help="fewer repetitions; rougher figures")
    made.add_argument("--leases", type=int, default=200, help="leases in all, at least")
    made.add_argument("--without-opponent", action="store_true", help="do not install and measure swe-rex")
    chosen, began = made.parse_args(), time.monotonic()
    try:
        found, left = asyncio.run(run(chosen))
    except LoadError as error:
        print(error, file=sys.stderr)
        return 1
    found["seconds"] = time.monotonic() - began
    print(f"on {platform.machine()}, {os.cpu_count()} cores")
    for name, label in FIGURES.items():
        if name in found:
            print(f"{name:32} {found[name]:>12,.1f}  {label}")
    for one in left:
        print(f"left behind: {one}")
    sys.stdout.flush()
    if chosen.json:
        print(json.dumps({name: round(value, 2) for name, value in found.items()}))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
