"""One who tells and many who look on. Telling takes no time and cannot fail.

Each observer hears everything in order, in a thread of its own. One that raises, or falls too far behind, is switched
off with one warning; it is not tried again before the next start. Knows no observer by name.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from openclaw_rl.tracking.observer import Observer
from openclaw_rl.types import Credit, JudgedTurn, Skip, Step, Version

_log = logging.getLogger(__name__)

MAX_WAITING = 256
"""What an observer may have left to hear; a turn of a long conversation is about a megabyte."""

CLOSE_S = 10.0
"""How long the end of the program waits for all of them together."""


class Observers:
    """Told by the loops; passes it on."""

    def __init__(self, observers: Sequence[Observer] = (), *, max_waiting: int = MAX_WAITING) -> None:
        self._listeners = [_Listener(observer, max_waiting) for observer in observers]

    def credited(self, judged: JudgedTurn, credit: Credit) -> None:
        for one in self._listeners:
            one.tell(lambda observer: observer.credited(judged, credit))

    def skipped(self, line: str, sample_ids: Sequence[str], why: Skip) -> None:
        for one in self._listeners:
            one.tell(lambda observer: observer.skipped(line, sample_ids, why))

    def stepped(self, step: Step) -> None:
        for one in self._listeners:
            one.tell(lambda observer: observer.stepped(step))

    def evaluated(self, step: Step) -> None:
        for one in self._listeners:
            one.tell(lambda observer: observer.evaluated(step))

    def changed(self, version: Version) -> None:
        for one in self._listeners:
            one.tell(lambda observer: observer.changed(version))

    def catch_up(self, timeout_s: float = CLOSE_S) -> None:
        """Returns when all have heard what they were told, or are off. Blocks, no longer than `timeout_s`."""
        until = time.monotonic() + timeout_s
        for one in self._listeners:
            heard = threading.Event()
            one.tell(lambda _, heard=heard: heard.set())  # type: ignore[misc]
            while not (one.is_off or heard.wait(0.05)) and time.monotonic() < until:
                pass

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Lets them hear the rest and close. Blocks, no longer than `timeout_s`."""
        for one in self._listeners:
            one.end()
        until = time.monotonic() + timeout_s
        for one in self._listeners:
            one.wait(max(0.0, until - time.monotonic()))


class _Listener:
    """An observer and what it has not heard yet.

    The thread is a daemon, and not one of asyncio's: an observer that hangs must not keep the process from ending.
    """

    def __init__(self, observer: Observer, max_waiting: int) -> None:
        self._observer = observer
        self._waiting: queue.Queue[Callable[[Observer], None] | None] = queue.Queue(max_waiting)
        self._is_off = False
        self._thread = threading.Thread(target=self._listen, name=f"tracking {observer.name}", daemon=True)
        self._thread.start()

    @property
    def is_off(self) -> bool:
        return self._is_off

    def tell(self, event: Callable[[Observer], None]) -> None:
        if self._is_off:
            return
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._switch_off(f"it is {self._waiting.maxsize} events behind")

    def end(self) -> None:
        with suppress(queue.Full):  # then it is off, or about to be
            self._waiting.put_nowait(None)

    def wait(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            _log.warning("%s has not ended: what it was told last may be missing there", self._observer.name)

    def _listen(self) -> None:
        while (event := self._waiting.get()) is not None and not self._is_off:
            try:
                event(self._observer)
            except Exception as error:
                # The boundary of tracking: whatever is wrong with an observer, learning goes on without it.
                self._switch_off(f"{type(error).__name__}: {error}")
        try:
            self._observer.close()
        except Exception as error:
            self._switch_off(f"{type(error).__name__}: {error}")

    def _switch_off(self, reason: str) -> None:
        if self._is_off:
            return
        self._is_off = True
        _log.warning("%s is off until the next start, and nothing else is: %s", self._observer.name, reason)
        self.end()
