"""The durable log for the one process that writes a SQLite file: `protocols.WholeStore`.

One thread touches SQLite. What was deleted is erased here, for only SQLite's file is ours to overwrite.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from openclaw_rl.errors import StoreUnavailable
from openclaw_rl.store.sql import lessons
from openclaw_rl.store.sql.writer import CLOSED, MAX_QUEUED_BYTES, SqlStore
from openclaw_rl.store.sqlite.database import Database
from openclaw_rl.store.sqlite.directory import database_path
from openclaw_rl.store.sqlite.scrub import Scrubbing
from openclaw_rl.types import TRACES_LEFT

READER_S, PATIENCE_S = 0.1, 2.0
"""When to look again whether a reader has ended whose snapshot still holds what was deleted, and for how long."""


class SqliteStore(SqlStore):
    """`protocols.WholeStore` on SQLite."""

    _database: Database

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        commit_window_s: float = 0.0,
        checkpoint_bytes: int = 2**20,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> Self:
        """Lock the directory, recover what a killed process left, and bring the tables up to date."""
        path = database_path(directory)
        thread = ThreadPoolExecutor(1, "store")
        try:
            database = await asyncio.get_running_loop().run_in_executor(
                thread, lambda: Database(path, checkpoint_bytes=checkpoint_bytes)
            )
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(database, thread, commit_window_s=commit_window_s, max_queued_bytes=max_queued_bytes)

    async def erase(self) -> bool:
        """Leave nothing of what was deleted on the disk, between the commits of those who talk; False if somebody reads
        for long just now. `TRACES_LEFT` is gone then, unless more was deleted meanwhile.
        """
        traces = await self.lessons.flag(TRACES_LEFT)
        scrubbing, blocked_s = Scrubbing(), 0.0
        while not (done := await self._erase_part(scrubbing)):
            if done is None:
                blocked_s += READER_S
                if blocked_s > PATIENCE_S:
                    return False
                await asyncio.sleep(READER_S)
        await self._run(lambda: self._database.transact(lambda connection: lessons.all_erased(connection, traces)))
        return True

    async def _erase_part(self, scrubbing: Scrubbing) -> bool | None:
        if self._closing:
            raise StoreUnavailable(CLOSED)
        async with self._learning:
            await self._let_others()
            return await self._timed(lambda: self._database.erase(scrubbing))

    async def _committed(self) -> None:
        if self._database.checkpoint_due:
            await self._run(self._database.checkpoint)
