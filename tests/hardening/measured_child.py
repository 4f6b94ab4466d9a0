"""`openclaw-rl` on asyncio's own loop, which writes down every callback that keeps the processor for long.

Processor time of the loop's thread, not the time that passes: a busy machine changes nothing in it.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from asyncio.events import Handle
from typing import Any

import uvloop

from openclaw_rl.__main__ import main

MIN_S = 0.01


def measure(path: str) -> None:
    """From now on each long callback is a line of the file."""
    run = Handle._run
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def measured(self: Handle) -> None:
        started = time.thread_time()
        run(self)
        seconds = time.thread_time() - started
        if seconds > MIN_S:
            os.write(file, json.dumps({"seconds": seconds, "what": repr(self)[:300]}).encode() + b"\n")

    Handle._run = measured  # type: ignore[method-assign]


def run_on_asyncio(program: Any) -> Any:
    return asyncio.run(program)


if __name__ == "__main__":
    measure(os.environ["STALLS_FILE"])
    uvloop.run = run_on_asyncio  # type: ignore[assignment]
    main()
