"""A box's share of the machine, as control groups of its own: all its memory, and the number of its processes.

They are made below the groups that we are in, or beside us where a group that is delegated to us holds processes
already. A machine that lets us make none is no error: then limits are those of a single process (`program.py`), and
process 1 looks what all have together (`memory.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

PREFIX = "openclaw-rl-box-"
_ROOT = "/sys/fs/cgroup"
_PATIENCE = 100
"""Only where a box lost its attendant is anybody still dying in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Homes:
    """Folders in which groups of boxes can be made. The same one twice where it counts both (version 2)."""

    memory: str = ""
    processes: str = ""

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(home for home in (self.memory, self.processes) if home))


def homes_here() -> Homes:
    """Where this process may make groups."""
    memory = processes = ""
    for line in _lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers:
            mounted = os.path.join(_ROOT, controllers.removeprefix("name="), path.lstrip("/"))
            if controllers == "memory" and _is_usable(mounted):
                memory = mounted
            elif controllers == "pids" and _is_usable(mounted):
                processes = mounted
        elif home := _delegated(path):
            memory, processes = memory or home, processes or home
    return Homes(memory=memory, processes=processes)


class Cgroup:
    """The groups of one box."""

    def __init__(self, homes: Homes, name: str) -> None:
        self._homes = homes
        self._name = f"{PREFIX}{name}"

    def make(self, *, memory_mb: int, processes: int) -> None:
        """Blocking, and over in a moment. `OSError` where the machine does not let us after all."""
        for home in self._homes.all:
            with suppress(FileExistsError):
                os.mkdir(os.path.join(home, self._name))
        if home := self._homes.memory:
            limit = str(memory_mb << 20)
            if not self._set(home, "memory.max", limit):
                self._set(home, "memory.limit_in_bytes", limit)
                self._set(home, "memory.memsw.limit_in_bytes", limit)
            else:
                self._set(home, "memory.swap.max", "0")
                self._set(home, "memory.oom.group", "0")
        if home := self._homes.processes:
            self._set(home, "pids.max", str(processes))

    def take(self, process: int) -> None:
        """Its children follow."""
        for home in self._homes.all:
            _write(os.path.join(home, self._name, "cgroup.procs"), str(process))

    def remove(self) -> None:
        """When nobody is left in it, or is about to be."""
        for home in self._homes.all:
            for _ in range(_PATIENCE):
                try:
                    os.rmdir(os.path.join(home, self._name))
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)
                else:
                    break

    def _set(self, home: str, name: str, value: str) -> bool:
        path = os.path.join(home, self._name, name)
        if not os.path.exists(path):
            return False
        _write(path, value)
        return True


def sweep(homes: Homes) -> None:
    """Removes groups of boxes whose warden is gone; their names begin with its process id."""
    for home in homes.all:
        for entry in _folders(home):
            if entry.startswith(PREFIX):
                warden = entry.removeprefix(PREFIX).partition("-")[0]
                if not os.path.exists(f"/proc/{warden}"):
                    with suppress(OSError):  # somebody is still dying in it; the next sweep takes it
                        os.rmdir(os.path.join(home, entry))


def _delegated(path: str) -> str:
    """The nearest folder above us (version 2) that is ours to make groups in and counts memory and processes there."""
    at = os.path.normpath(os.path.join(_ROOT, path.lstrip("/")))
    while at.startswith(_ROOT):
        counted = set(" ".join(_lines(os.path.join(at, "cgroup.subtree_control"))).split())
        if {"memory", "pids"} <= counted and _is_usable(at) and os.access(os.path.join(at, "cgroup.procs"), os.W_OK):
            return at
        at = os.path.dirname(at)
    return ""


def _is_usable(folder: str) -> bool:
    """By trying: a read-only file system says yes to `access` for root."""
    probe = os.path.join(folder, f"{PREFIX}{os.getpid()}-probe")
    try:
        os.mkdir(probe)
        os.rmdir(probe)
    except OSError:
        return False
    return True


def _folders(home: str) -> Iterable[str]:
    try:
        return [entry.name for entry in os.scandir(home) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _lines(path: str) -> Iterator[str]:
    with suppress(OSError), open(path) as file:
        yield from file.read().splitlines()


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
