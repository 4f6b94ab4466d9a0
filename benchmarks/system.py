"""The real system in a process of its own, watched from outside.

Over the scripted engine, unless the settings say otherwise. Knows how to start and kill it, what its processes have
used, and what is in its store afterwards.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError

import psutil

from benchmarks.load import LoadError, percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """CPU seconds that the three parties have used so far."""

    gateway: float
    engine: float
    generator: float

    def __sub__(self, before: Cpu) -> Cpu:
        return Cpu(
            gateway=self.gateway - before.gateway,
            engine=self.engine - before.engine,
            generator=self.generator - before.generator,
        )


class System:
    """`openclaw-rl up` in `directory`, on a free port, with durable acknowledgement as it is by default."""

    def __init__(self, directory: Path, *settings: str, command: str = "up") -> None:
        directory.mkdir()
        self.data_dir = directory / "data"
        self._output = directory / "output.txt"
        arguments = [sys.executable, "-m", "openclaw_rl", command, "--data-dir", str(self.data_dir), "--port", "0"]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [*arguments, "engine.type=scripted", *settings],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self.url = ""
        self._wait_until(self._is_ready)
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        self.address = (host, int(port))
        self.engine_socket = self.data_dir / "run" / "engine.sock"
        self.key = (self.data_dir / "key").read_text().strip()
        self._gateway = psutil.Process(self._process.pid)
        self.engines = self._gateway.children()
        """As they were at the start."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """kill -9, so that nothing can be written any more; an engine ends when its parent is gone."""
        self._process.kill()
        self._process.wait()
        psutil.wait_procs(self.engines, timeout=10)

    def freeze(self) -> None:
        """Stops the gateway where it is, so that nothing it does is measured with something else; `thaw` ends it."""
        self._gateway.suspend()

    def thaw(self) -> None:
        self._gateway.resume()

    def cpu(self) -> Cpu:
        return Cpu(
            gateway=sum(self._gateway.cpu_times()[:2]),
            engine=sum(sum(engine.cpu_times()[:2]) for engine in self.engines),
            generator=time.process_time(),
        )

    def gateway_mib(self) -> float:
        """Resident memory of the gateway's process."""
        return float(self._gateway.memory_info().rss) / 2**20

    def count(self, table: str) -> int:
        """How many rows of a table are on disk."""
        with closing(sqlite3.connect(f"file:{self.data_dir / 'store.sqlite3'}?mode=ro", uri=True)) as database:
            return int(database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])

    def stored_turns(self) -> set[str]:
        """The complete turns on disk. To be asked when the system is dead."""
        with sqlite3.connect(self.data_dir / "store.sqlite3") as database:
            return {f"{session}.{index}" for session, index in database.execute(_COMPLETE_TURNS)}

    def _is_ready(self) -> bool:
        try:
            self.url = json.loads((self.data_dir / "run" / "address.json").read_text())["url"]
            with urllib.request.urlopen(f"{self.url}/readyz") as response:
                return bool(response.status == 200)
        except (FileNotFoundError, json.JSONDecodeError, URLError):
            return False

    def _wait_until(self, condition: Callable[[], bool], *, timeout_s: float = 120.0) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            if self._process.poll() is not None or time.monotonic() > end:
                self._process.kill()
                raise LoadError(f"the system did not start:\n{self._output.read_text()}")
            time.sleep(0.02)


_COMPLETE_TURNS = 'SELECT session, "index" FROM turn WHERE complete'


def commit_cost(directory: Path, *, seconds: float) -> tuple[float, float, float]:
    """Commits a second, p50 and p99 in ms of a 4 KiB row in SQLite with WAL and `synchronous=FULL`, one by one."""
    database = sqlite3.connect(directory / "probe.sqlite3", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE probe (body BLOB)")
    spent: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        database.execute("INSERT INTO probe VALUES (?)", (os.urandom(4096),))
        spent.append(time.perf_counter() - began)
    database.close()
    return len(spent) / seconds, 1000 * percentile(spent, 50), 1000 * percentile(spent, 99)


def require_disk(directory: Path) -> None:
    """Refuses a directory in memory: fsync costs nothing there, and durable figures from it would be a lie."""
    mounts = {p.mountpoint: p.fstype for p in psutil.disk_partitions(all=True)}
    found = next(str(p) for p in (directory.resolve(), *directory.resolve().parents) if str(p) in mounts)
    if mounts[found] in ("tmpfs", "ramfs"):
        raise LoadError(f"{directory} is in memory ({mounts[found]}); name a directory on a disk with --dir")
