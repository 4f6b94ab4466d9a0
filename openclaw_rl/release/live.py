"""Which version answers whose requests. In memory; the rows are in the store, and a restart reads them again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

MAX_WAIT_S = 30.0
"""How long a line's requests wait for its version after a start, on an engine that runs."""


class LiveVersions:
    """Labels by line.

    After a start the requests of a line wait until its version is loaded again, `max_wait_s` from the first of them;
    from then on the base model answers that line until the version is there. No line waits for another.
    """

    def __init__(self, *, max_wait_s: float = MAX_WAIT_S) -> None:
        self._max_wait_s = max_wait_s
        self._labels: dict[str, str] = {}
        self._is_known = asyncio.Event()
        self._expected: dict[str, asyncio.Event] = {}
        self._deadlines: dict[str, float] = {}

    async def label(self, line: str) -> str | None:
        """The version of this line; None while it is the base model."""
        await self._is_known.wait()
        if (arrived := self._expected.get(line)) is not None:
            deadline = self._deadlines.setdefault(line, asyncio.get_running_loop().time() + self._max_wait_s)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await arrived.wait()
        return self._labels.get(line)

    def now(self, line: str) -> str | None:
        """The same without waiting for anything."""
        return self._labels.get(line)

    def set(self, line: str, label: str | None) -> None:
        """Makes this version answer from now on; running requests finish on theirs."""
        if label is None:
            self._labels.pop(line, None)
        else:
            self._labels[line] = label
        if (arrived := self._expected.pop(line, None)) is not None:
            arrived.set()

    def expect(self, lines: Iterable[str]) -> None:
        """Says for which lines the last run left a version live: requests of those wait until it is loaded."""
        self._expected = {line: asyncio.Event() for line in lines}
        self._is_known.set()

    def is_expected(self, line: str) -> bool:
        """Whether the line still waits for its version to be loaded."""
        return line in self._expected
