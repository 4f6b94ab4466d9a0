"""What the store says of a demo's turns becomes events, each once."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from openclaw_rl.cli.demo.events import Changed, DemoJudged, Left, Stepped, Watcher
from openclaw_rl.store import StoreReader
from openclaw_rl.types import Skip
from tests.unit.cli.demo_run import LINE, step, verdict, version


@dataclass
class Rows:
    """A store's reader over rows in memory."""

    judged: dict[str, list[Any]] = field(default_factory=dict)
    credited: dict[str, list[Any]] = field(default_factory=dict)
    taken: list[Any] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)

    def judgements(self, session: str) -> list[Any]:
        return self.judged.get(session, [])

    def credits(self, session: str) -> list[Any]:
        return self.credited.get(session, [])

    def steps(self, line: str) -> list[Any]:
        assert line == LINE
        return self.taken

    def versions(self, line: str) -> list[Any]:
        return self.made


def judgement(score: int, *, at: float = 1.0, index: int = 0) -> Any:
    return SimpleNamespace(index=index, judged_at=at, verdict=verdict(score))


def credit(*samples: str, skip: Skip | None = None) -> Any:
    return SimpleNamespace(index=0, skip=skip, samples=[SimpleNamespace(id=name) for name in samples])


def test_a_turn_is_judged_learned_and_settled_once() -> None:
    rows = Rows()
    watcher = Watcher(cast(StoreReader, rows), LINE)
    watcher.add("s-1", 1)
    watcher.add("s-2", 2)
    assert (watcher.look(), watcher.num_unsettled, watcher.is_quiet) == ([], 2, False)
    rows.judged = {"s-1": [judgement(-1), judgement(1, index=1)], "s-2": [judgement(1)]}
    assert watcher.look() == [DemoJudged(turn=1, verdict=verdict(-1)), DemoJudged(turn=2, verdict=verdict(1))]
    assert watcher.look() == []
    rows.credited = {"s-1": [credit("a")], "s-2": [credit(skip=Skip.TRUNCATED)]}
    assert watcher.look() == [Left(turn=2, reason="truncated")]
    assert (watcher.num_unsettled, watcher.num_waiting, watcher.is_judged) == (1, 1, True)
    rows.taken = [step(1, "planned", sample_ids=("a",))]
    (planned,) = watcher.look()
    assert isinstance(planned, Stepped)
    assert (planned.turns, watcher.num_unsettled, watcher.num_waiting, watcher.is_quiet) == ((1,), 1, 0, False)
    rows.taken, rows.made = [step(1, sample_ids=("a",))], [version(1, "candidate")]
    done, made = watcher.look()
    assert isinstance(done, Stepped)
    assert made == Changed(version=rows.made[0])
    assert (watcher.num_unsettled, watcher.is_quiet, watcher.live) == (0, False, 0)
    rows.made = [version(1, "live")]
    assert watcher.look() == [Changed(version=rows.made[0])]
    assert (watcher.is_quiet, watcher.live) == (True, 1)


def test_a_verdict_that_is_revised_is_told_again() -> None:
    rows = Rows(judged={"s-1": [judgement(-1)]})
    watcher = Watcher(cast(StoreReader, rows), LINE)
    watcher.add("s-1", 1)
    watcher.look()
    rows.judged = {"s-1": [judgement(1, at=2.0)]}
    assert watcher.look() == [DemoJudged(turn=1, verdict=verdict(1))]


def test_a_discarded_step_settles_nothing_and_lessons_are_counted_along_the_way() -> None:
    rows = Rows(credited={"s-1": [credit("a")]}, taken=[step(1, "discarded", sample_ids=("a",))])
    watcher = Watcher(cast(StoreReader, rows), LINE)
    watcher.add("s-1", 1)
    watcher.look()
    assert watcher.num_unsettled == 1
    rows.taken = [step(1), step(2, sample_ids=("c", "d", "e")), step(3)]
    rows.made = [version(1, "retired"), version(2, "rejected"), version(3, "live", parent=1)]
    watcher.look()
    assert [watcher.num_lessons(number) for number in (0, 1, 3)] == [0, 2, 4]
