"""What was published -> a new worker that serves the same versions.

A worker forgets everything when it dies; the ledger is what the control process remembers. It lives in memory and knows
only what a worker has confirmed. Which versions survive a restart of the control process is decided elsewhere.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace

from openclaw_rl.errors import EngineError, EngineLost, EngineRefused
from openclaw_rl.protocols import Engine
from openclaw_rl.types import BASE_VERSION, Publication

_log = logging.getLogger(__name__)

_MAX_DEATHS = 3
"""A version over whose loading this many workers in a row died is dropped: the next worker shall live."""


class Ledger:
    """The versions that workers have confirmed, and which of them were live, in order."""

    def __init__(self) -> None:
        self._published: dict[str, Publication] = {}
        self._live: list[str] = []
        """Each version that was live and is not retired, once, by its last time; the last one is live now. A version
        that was only loaded (to be compared, say) is not among them, so that it never becomes live by accident."""
        self._deaths: Counter[str] = Counter()

    @property
    def published(self) -> tuple[Publication, ...]:
        """What a worker must load, in this order, to be as those before it."""
        return tuple(self._published.values())

    @property
    def live(self) -> tuple[str, ...]:
        """What was live and is not retired; the last one is live now."""
        return tuple(self._live)

    def publish(self, publication: Publication) -> None:
        """A worker has loaded this version, or made a loaded one live."""
        version = publication.version
        self._published.setdefault(version, replace(publication, live=False))
        if publication.live:
            self._live = [*(label for label in self._live if label != version), version]

    def retire(self, version: str) -> None:
        """A worker has retired this version, or it cannot be loaded any more."""
        self._published.pop(version, None)
        self._live = [label for label in self._live if label != version]

    async def replay(self, engine: Engine) -> None:
        """Loads everything again, in order, then makes the live version live; returns when both are done.

        A version that the new worker refuses is dropped: its folder is gone or is no longer what was published. One
        that fails otherwise is left for the next worker. If the live version is not there, the one that was live before
        it, and is there, is live instead. `EngineLost` leaves the rest of the ledger for the next worker.
        """
        if self._published:
            _log.info("the new worker loads what was published", extra={"versions": [*self._published]})
        published = tuple(self._published.items())
        there = {label for label, known in published if await self._tell(engine, replace(known, known=True))}
        for version in reversed(tuple(self._live)):
            if version in there and await self._tell(engine, replace(self._published[version], live=True)):
                break

    async def _tell(self, engine: Engine, publication: Publication) -> bool:
        """Whether the worker has it now."""
        version = publication.version
        try:
            await engine.publish(publication)
        except EngineLost:
            self._deaths[version] += 1
            if self._deaths[version] == _MAX_DEATHS:
                self._drop(version, f"{_MAX_DEATHS} workers died over it")
            raise
        except EngineRefused as error:
            self._drop(version, str(error))
            return False
        except EngineError as error:
            _log.warning("version %s is left for the next worker, this one failed to load it: %s", version, error)
            if self._live[-1:] == [version]:
                _log.error("version %s is live and not there; the one before it stands in", version)
            return False
        del self._deaths[version]
        return True

    def _drop(self, version: str, reason: str) -> None:
        del self._deaths[version]
        was_live = self._live[-1:] == [version]
        self.retire(version)
        _log.warning("version %s is dropped, it cannot be loaded again: %s", version, reason)
        if was_live:
            _log.error("version %s was live and is lost; %s takes its place", version, [BASE_VERSION, *self._live][-1])
