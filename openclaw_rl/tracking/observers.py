"""The events of talking and learning, and how every observer gets them. Telling takes no time and cannot fail.

Each observer gets all events in order, in a thread of its own. One that raises, or falls too far behind, is switched
off with one warning until the next start. Knows no observer by name.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from openclaw_rl.types import Credit, JudgedTurn, Skip, Step, Turn, Version, line_of

_log = logging.getLogger(__name__)

MAX_WAITING = 256
"""Most events that an observer may be behind; a turn of a long conversation is about a megabyte."""

CLOSE_S = 10.0
"""How long the end of the program waits for all observers together."""


class Observer:
    """Overrides the events that it wants. It may block and it may raise: `Observers` shields the others from both."""

    name: str

    def answered(self, turn: Turn) -> None:
        """A turn was put on disk, as it was said: a private one too."""

    def credited(self, judged: JudgedTurn, credit: Credit) -> None:
        """A judgement became samples, or a skip with its reason."""

    def skipped(self, line: str, sample_ids: Sequence[str], why: Skip) -> None:
        """Waiting samples of a line will not be trained on."""

    def stepped(self, step: Step) -> None:
        """A step ended: done, or discarded."""

    def evaluated(self, step: Step) -> None:
        """The version of a step was evaluated; `metrics` has these measures alone."""

    def changed(self, version: Version) -> None:
        """A version changed its state, for example to live or rejected."""

    def close(self) -> None:
        """There will be no more events."""


class SeriesObserver(Observer):
    """An observer that draws curves over the step's number, a series for each line.

    It adds counts since the start to a step's metrics: `credit/sample` turns that became samples, `credit/REASON` turns
    that did not, `skipped/REASON` samples that were dropped while they waited.
    """

    def __init__(self) -> None:
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def credited(self, judged: JudgedTurn, credit: Credit) -> None:
        self._counts[line_of(judged.session)][f"credit/{credit.skip or 'sample'}"] += 1

    def skipped(self, line: str, sample_ids: Sequence[str], why: Skip) -> None:
        self._counts[line][f"skipped/{why}"] += len(sample_ids)

    def stepped(self, step: Step) -> None:
        if step.state == "done":
            self.put(step, {**step.metrics, **self._counts[step.line]})

    def evaluated(self, step: Step) -> None:
        self.put(step, step.metrics)

    @abstractmethod
    def put(self, step: Step, metrics: Mapping[str, float]) -> None:
        """A point of the series of `step.line`."""


class Observers:
    """The loops tell it what happened; it passes that on to all observers."""

    def __init__(self, observers: Sequence[Observer] = (), *, max_waiting: int = MAX_WAITING) -> None:
        self._listeners = [_Listener(observer, max_waiting) for observer in observers]

    def answered(self, turn: Turn) -> None:
        for one in self._listeners:
            if one.hears_turns:
                one.tell(lambda observer: observer.answered(turn))

    def credited(self, judged: JudgedTurn, credit: Credit) -> None:
        self._tell(lambda observer: observer.credited(judged, credit))

    def skipped(self, line: str, sample_ids: Sequence[str], why: Skip) -> None:
        self._tell(lambda observer: observer.skipped(line, sample_ids, why))

    def stepped(self, step: Step) -> None:
        self._tell(lambda observer: observer.stepped(step))

    def evaluated(self, step: Step) -> None:
        self._tell(lambda observer: observer.evaluated(step))

    def changed(self, version: Version) -> None:
        self._tell(lambda observer: observer.changed(version))

    def _tell(self, event: Callable[[Observer], None]) -> None:
        for one in self._listeners:
            one.tell(event)

    def catch_up(self, timeout_s: float = CLOSE_S) -> None:
        """Returns when all observers have handled their events, or are off. Blocks for at most `timeout_s`."""
        until = time.monotonic() + timeout_s
        for one in self._listeners:
            heard = threading.Event()
            one.tell(lambda _, heard=heard: heard.set())  # type: ignore[misc]
            while not (one.is_off or heard.wait(0.05)) and time.monotonic() < until:
                pass

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Lets them handle the rest and close. Blocks for at most `timeout_s`."""
        for one in self._listeners:
            one.end()
        until = time.monotonic() + timeout_s
        for one in self._listeners:
            one.wait(max(0.0, until - time.monotonic()))


class _Listener:
    """An observer and the events that it has not handled yet.

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

    @property
    def hears_turns(self) -> bool:
        """There are many of them: whoever does nothing with them is not woken."""
        return type(self._observer).answered is not Observer.answered

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
