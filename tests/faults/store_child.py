"""A process that writes the store, to be killed or starved: `python -m tests.faults.store_child SCENARIO DIR [RUN]`.

`stream` writes until it dies and says on standard output which turn is on disk, as soon as it knows:

    RUN.WORKER INDEX

The other scenarios break the disk under a running store, mend it, and say what each put was answered.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from openclaw_rl.errors import StoreError, StoreUnavailable
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Turn
from tests.factories.turns import make_conversation, make_session
from tests.faults.failing_disk import SYNCS, WRITES, descriptor_of, fail, heal

NUM_WORKERS = 4
TURNS_PER_SESSION = 12


def session_turns(session: str) -> list[Turn]:
    """What a worker writes into a session; the test makes the same to compare."""
    return make_conversation(TURNS_PER_SESSION, session=session, words=60)


async def stream(directory: Path, run: str) -> None:
    async with await SqliteStore.open(directory, checkpoint_bytes=100_000) as store:

        async def work(worker: int) -> None:
            for round_ in range(1000):
                session = f"{run}.{worker}.{round_}"
                await store.put_session(make_session(session))
                for turn in session_turns(session):
                    await store.put_turn(turn)
                    os.write(1, f"{session} {turn.index}\n".encode())
                    store.mark_delivered(session, turn.index)

        await asyncio.gather(*map(work, range(NUM_WORKERS)))


async def _answer(put: Awaitable[None]) -> str:
    try:
        await put
    except StoreError as error:
        return f"{type(error).__name__}: {error}"
    return "stored"


async def _break_and_mend(directory: Path, break_: Callable[[Path], Callable[[], None]]) -> None:
    """Store two turns, break the disk, try twice, mend it, and go on: prints one answer per put."""
    async with await SqliteStore.open(directory) as store:
        before, early, failed, again, after, last = session_turns("s")[:6]
        await store.put_session(make_session("s"))
        print("before", await _answer(store.put_turn(before)))
        print("early", await _answer(store.put_turn(early)))
        mend = break_(directory / "store.sqlite3")
        print("failed", await _answer(store.put_turn(failed)))
        print("again", await _answer(store.put_turn(again)))
        mend()
        print("after", await _answer(store.put_turn(after)))
        # The client that was told nothing tries again and gets another answer: it is the same turn.
        retried = make_conversation(3, session="s", words=50)[2]
        print("retried", await _answer(store.put_turn(retried)))
        print("last", await _answer(store.put_turn(last)))


def _limit_file_size(_: Path) -> Callable[[], None]:
    """No file may be written beyond its first byte: the call fails with EFBIG (Python ignores the signal)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _fail_on_log(calls: tuple[str, str], error: int) -> Callable[[Path], Callable[[], None]]:
    def break_(database: Path) -> Callable[[], None]:
        descriptor = descriptor_of(database.with_name(database.name + "-wal"))
        fail(calls, descriptor, error)
        return lambda: heal(descriptor)

    return break_


async def fail_in_checkpoint(directory: Path) -> None:
    """The log is fine, the database below it is not: what was acknowledged stays, the next put finds out."""
    async with await SqliteStore.open(directory, checkpoint_bytes=1) as store:
        turns = session_turns("s")
        await store.put_session(make_session("s"))
        await store.turn_owner("s", 0)  # returns after the checkpoint that the session's commit made due
        descriptor = descriptor_of(directory / "store.sqlite3")
        fail(SYNCS, descriptor, errno.EIO)
        print("before", await _answer(store.put_turn(turns[0])))
        print("failed", await _answer(store.put_turn(turns[1])))
        with suppress(StoreUnavailable):
            await store.turn_owner("s", 0)  # returns after the checkpoint that is still due, which fails too
        heal(descriptor)
        print("after", await _answer(store.put_turn(turns[2])))


SCENARIOS: dict[str, Callable[[Path], Awaitable[None]]] = {
    "file_too_large": lambda directory: _break_and_mend(directory, _limit_file_size),
    "no_space": lambda directory: _break_and_mend(directory, _fail_on_log(WRITES, errno.ENOSPC)),
    "write_error": lambda directory: _break_and_mend(directory, _fail_on_log(WRITES, errno.EIO)),
    "fsync_error": lambda directory: _break_and_mend(directory, _fail_on_log(SYNCS, errno.EIO)),
    "checkpoint_error": fail_in_checkpoint,
}


async def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    scenario, directory = sys.argv[1], Path(sys.argv[2])
    if scenario == "stream":
        await stream(directory, sys.argv[3])
    else:
        await SCENARIOS[scenario](directory)


if __name__ == "__main__":
    asyncio.run(main())
