"""Memory of a box where no control group counts it: process 1 looks, a few times a second, and kills who has too much.

A limit of a single process does not know what several have together, nor what they share. It is no wall as a group is:
whoever is quick has more for a moment.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

INTERVAL_S = 0.1
_PAGE = os.sysconf("SC_PAGE_SIZE")


class MemoryWatch:
    """Over all processes of this process's namespace but the first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._next = 0.0

    def look(self) -> None:
        """Nothing, if it has looked a moment ago."""
        if time.monotonic() < self._next:
            return
        others = [int(name) for name in os.listdir("/proc") if name.isdecimal() and name != "1"]
        if sum(map(_resident, others)) > self._most:  # counts what is shared once for each; the other way is slow
            held = {process: _held(process) for process in others}
            for process in sorted(held, key=lambda one: held[one], reverse=True):
                if sum(held.values()) <= self._most:
                    break
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                del held[process]
        self._next = time.monotonic() + INTERVAL_S


def _resident(process: int) -> int:
    with suppress(OSError), open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * _PAGE
    return 0


def _held(process: int) -> int:
    """Its share of what it shares, and all that is its own."""
    with suppress(OSError), open(f"/proc/{process}/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return _resident(process)
