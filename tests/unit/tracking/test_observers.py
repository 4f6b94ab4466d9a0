"""Observers can do nothing to those who tell them: not by raising, not by blocking, not by hanging."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

import pytest

from openclaw_rl.tracking import Observer, Observers
from openclaw_rl.types import Credit, JudgedTurn, Skip, Step, Version
from tests.factories.events import credited, step, version


class Diary(Observer):
    """Writes down what it is told, and in which thread."""

    name = "a diary"

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.threads: set[int] = set()

    def credited(self, judged: JudgedTurn, credit: Credit) -> None:
        self._hear(credit)

    def skipped(self, line: str, sample_ids: Sequence[str], why: Skip) -> None:
        self._hear((line, sample_ids, why))

    def stepped(self, step: Step) -> None:
        self._hear(step)

    def changed(self, version: Version) -> None:
        self._hear(version)

    def close(self) -> None:
        self._hear("closed")

    def _hear(self, event: object) -> None:
        self.heard.append(event)
        self.threads.add(threading.get_ident())


class Broken(Diary):
    """Fails at its second step; or, if told so, when it is closed."""

    name = "a broken one"

    def __init__(self, *, only_at_the_end: bool = False) -> None:
        super().__init__()
        self._only_at_the_end = only_at_the_end

    def stepped(self, step: Step) -> None:
        super().stepped(step)
        if len(self.heard) == 2 and not self._only_at_the_end:
            raise OSError("no space left on device")

    def close(self) -> None:
        super().close()
        if self._only_at_the_end:
            raise OSError("no space left on device")


class Hanging(Diary):
    name = "a hanging one"

    def __init__(self) -> None:
        super().__init__()
        self.is_in = threading.Event()
        self.let_go = threading.Event()

    def stepped(self, step: Step) -> None:
        self.is_in.set()
        self.let_go.wait(60)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_everything_is_heard_in_order_in_a_thread_of_its_own() -> None:
    first, second = Diary(), Diary()
    observers = Observers([first, second])
    judged, credit = credited()
    observers.credited(judged, credit)
    observers.skipped("ann", ["s-1.0"], Skip.STALE)
    observers.stepped(step(1))
    observers.changed(version(1))
    observers.close()
    assert first.heard == [credit, ("ann", ["s-1.0"], Skip.STALE), step(1), version(1), "closed"]
    assert second.heard == first.heard
    assert len(first.threads | second.threads | {threading.get_ident()}) == 3


def test_catching_up_waits_for_all_but_those_that_are_off() -> None:
    slow, broken = Hanging(), Broken()
    observers = Observers([broken, slow])
    for number in (1, 2, 3):
        observers.stepped(step(number))
    assert slow.is_in.wait(10)
    observers.catch_up(timeout_s=0.2)  # returns, although one still hangs
    assert slow.heard == []
    slow.let_go.set()
    observers.changed(version(1))
    observers.catch_up()
    assert slow.heard == [version(1)]
    observers.close()


def test_one_that_raises_is_off_with_one_warning_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    broken, diary = Broken(), Diary()
    observers = Observers([broken, diary])
    for number in range(1, 6):
        observers.stepped(step(number))
    observers.close()
    assert broken.heard == [step(1), step(2), "closed"]
    assert diary.heard == [*map(step, range(1, 6)), "closed"]
    (warning,) = warnings(caplog)
    assert warning.startswith("a broken one is off until the next start")
    assert "no space left on device" in warning


def test_one_that_fails_at_the_end_is_only_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    observers = Observers([Broken(only_at_the_end=True)])
    observers.stepped(step(1))
    observers.close()
    (warning,) = warnings(caplog)
    assert "no space left on device" in warning


def test_one_that_hangs_holds_up_nobody_and_is_off_when_it_falls_behind(caplog: pytest.LogCaptureFixture) -> None:
    hanging, diary = Hanging(), Diary()
    observers = Observers([hanging, diary], max_waiting=4)
    observers.stepped(step(1))
    assert hanging.is_in.wait(10)
    for number in range(2, 12):
        observers.stepped(step(number))
        while len(diary.heard) < number:
            time.sleep(0.001)
    observers.close(timeout_s=0.2)  # returns, although one still hangs
    assert diary.heard == [*map(step, range(1, 12)), "closed"]
    behind, unended = warnings(caplog)
    assert "a hanging one is off" in behind
    assert "4 events behind" in behind
    assert "a hanging one has not ended" in unended
    hanging.let_go.set()
