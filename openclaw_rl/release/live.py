"""Which version answers whose requests. In memory; the rows are in the store, and a restart reads them again."""

from __future__ import annotations

import asyncio


class LiveVersions:
    """Labels by line. Who asks before the versions of the last run are loaded again waits for them."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._restored = asyncio.Event()

    async def label(self, line: str) -> str | None:
        """The version of this line; None while it is the base model."""
        await self._restored.wait()
        return self._labels.get(line)

    def set(self, line: str, label: str | None) -> None:
        """From now on this version answers; requests that run end on theirs."""
        if label is None:
            self._labels.pop(line, None)
        else:
            self._labels[line] = label

    def restored(self) -> None:
        """What the last run left live is loaded."""
        self._restored.set()
