"""`openclaw-rl` on asyncio's own loop, which writes down every callback that keeps the processor for long.

Processor time of the loop's thread, not the time that passes: a busy machine changes nothing in it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
import traceback
from asyncio.events import Handle
from pathlib import Path
from typing import Any

import uvloop

from openclaw_rl.__main__ import main

MIN_S = 0.01


def measure(path: str) -> None:
    """From now on each long callback is a line of the file."""
    run = Handle._run
    busy: list[float] = []
    seen: list[str] = []
    threading.Thread(target=watch, args=(threading.get_ident(), busy, seen), daemon=True).start()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def measured(self: Handle) -> None:
        started = time.thread_time()
        busy[:] = [time.monotonic()]
        run(self)
        busy.clear()
        seconds = time.thread_time() - started
        if seconds > MIN_S:
            what = seen[-1] if seen else repr(self)[:200]
            os.write(file, json.dumps({"seconds": seconds, "what": what}).encode() + b"\n")
        seen.clear()

    Handle._run = measured  # type: ignore[method-assign]


def watch(thread: int, busy: list[float], seen: list[str]) -> None:
    """Looks now and then at what the loop is at, so that a long callback can be told by its lines."""
    while True:
        time.sleep(MIN_S / 2)
        if busy and time.monotonic() - busy[0] > MIN_S:
            stack = traceback.extract_stack(sys._current_frames()[thread])[-8:]
            seen.append(" < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(stack)))


def run_on_asyncio(program: Any) -> Any:
    return asyncio.run(program)


if __name__ == "__main__":
    measure(os.environ["STALLS_FILE"])
    uvloop.run = run_on_asyncio  # type: ignore[assignment]
    main()
