"""What became of every person of every arm -> means with their spread, ratios, and the table. Pure, but for one file.

A record is one person (a simulated user and a seed) in one arm. Finished ones are lines of JSON in a file, so that a
run that was stopped goes on where it was; a line of a run with other settings is not counted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Self

from openclaw_rl.evaluation.measures import Interval, mean_interval, paired_difference
from openclaw_rl.types.checks import require

Person = tuple[str, int]
"""The name of a simulated user, and a seed."""

IN_A_ROW = 3
"""So many good first replies in a row are no accident any more."""

Bound = Literal["exact", "at most", "at least", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The held-out questions after so many sessions: means over the answers."""

    session: int
    preference: float
    on_topic: float
    tokens: float


def sessions_to_stable(first_reply_ok: Sequence[bool]) -> int | None:
    """The number, from 1, of the first of `IN_A_ROW` sessions whose first replies were all good; None if none.

    >>> sessions_to_stable([False, True, False, True, True, True, False])
    4
    """
    for start in range(len(first_reply_ok) - IN_A_ROW + 1):
        if all(first_reply_ok[start : start + IN_A_ROW]):
            return start + 1
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """Sessions until stable under a cap: the cap counts, marked ">", where it was never so."""

    sessions: int
    reached: bool

    @classmethod
    def of(cls, first_reply_ok: Sequence[bool], *, cap: int) -> Stability:
        """Of at most `cap` sessions. One that becomes good too late for three in a row has not become stable."""
        require(cap >= IN_A_ROW, f"a cap below {IN_A_ROW} sessions can never be met, got {cap}")
        found = sessions_to_stable(first_reply_ok[:cap])
        return cls(sessions=cap if found is None else found, reached=found is not None)

    def __str__(self) -> str:
        return f"{'' if self.reached else '>'}{self.sessions}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One person in one arm. `plan` names all settings, `measured` those of the measures; `right` tells each capability
    item, "1" or "0", `base_right` the same of the base model: empty where nobody asked. `known` is what the gate found
    of each version, the base model being version 0.
    """

    arm: str
    user: str
    seed: int
    plan: str
    measured: str
    cap: int
    first_ok: tuple[bool, ...]
    first_scores: tuple[float, ...]
    probes: tuple[Probe, ...]
    right: str = ""
    base_right: str = ""
    known: tuple[tuple[int, float], ...] = ()
    num_steps: int = 0
    num_rejected: int = 0
    seconds: float = 0.0
    ceiling: Probe | None = None
    """The base model with the wish in the prompt; None where nobody asked."""
    num_lessons: int = 0

    @property
    def person(self) -> Person:
        return self.user, self.seed

    @property
    def stability(self) -> Stability:
        return Stability.of(self.first_ok, cap=self.cap)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Self:
        raw = json.loads(line)
        return cls(
            **{
                **raw,
                "first_ok": tuple(raw["first_ok"]),
                "first_scores": tuple(raw["first_scores"]),
                "probes": tuple(Probe(**one) for one in raw["probes"]),
                "ceiling": None if raw.get("ceiling") is None else Probe(**raw["ceiling"]),
                "known": tuple((number, share) for number, share in raw["known"]),
            }
        )


class RecordFile:
    """Records on disk, one a line; the last line may have been cut by a kill and does not count then."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[Record]:
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        found: list[Record] = []
        for line in lines:
            try:
                found.append(Record.from_json(line))
            except (ValueError, KeyError, TypeError):
                continue
        return found

    def add(self, records: Iterable[Record]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            if file.tell() and not self._path.read_bytes().endswith(b"\n"):
                file.write("\n")
            file.writelines(f"{record.to_json()}\n" for record in records)

    def of(self, arm: str, plan: str) -> dict[Person, Record]:
        """What is finished of an arm under these settings."""
        return {record.person: record for record in self.read() if (record.arm, record.plan) == (arm, plan)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """An arm over its people. Capability is None where it was not measured."""

    arm: str
    records: tuple[Record, ...]
    sessions: Interval
    before: Interval | None
    after: Interval | None
    gain: Interval | None
    on_topic: tuple[float, float] | None
    tokens: tuple[float, float] | None
    capability: Interval | None

    @property
    def num_capped(self) -> int:
        return sum(not record.stability.reached for record in self.records)

    @property
    def seconds(self) -> float:
        """People of one simulated user talk side by side, those of another after them."""
        users = {record.user for record in self.records}
        return sum(max(record.seconds for record in self.records if record.user == user) for user in users)

    def to_json(self) -> dict[str, Any]:
        named = {name: getattr(self, name) for name in ("sessions", "before", "after", "gain", "capability")}
        return {
            **{name: None if value is None else value.to_json() for name, value in named.items()},
            "each": {f"{r.user}-{r.seed}": str(r.stability) for r in self.records},
            "num_capped": self.num_capped,
            "cap": self.records[0].cap,
            "on_topic": self.on_topic,
            "tokens": self.tokens,
            "first_score": fmean(score for r in self.records for score in r.first_scores),
            "steps": fmean(record.num_steps for record in self.records),
            "rejected": sum(record.num_rejected for record in self.records),
            "seconds": round(self.seconds, 1),
        }


def summarise(arm: str, records: Iterable[Record]) -> Summary:
    """Spread is over people; that of capability over items, each item's mean over people being one value."""
    people = tuple(sorted(records, key=lambda record: record.person))
    probed = [(record.probes[0], record.probes[-1]) for record in people if record.probes]
    both = [[pair[at].preference for pair in probed] for at in (0, 1)]

    def means(name: str) -> tuple[float, float] | None:
        if not probed:
            return None
        return fmean(getattr(first, name) for first, _ in probed), fmean(getattr(last, name) for _, last in probed)

    return Summary(
        arm=arm,
        records=people,
        sessions=_mean([float(record.stability.sessions) for record in people], 1.0, math.inf),
        before=_mean(both[0], 0.0, 1.0) if probed else None,
        after=_mean(both[1], 0.0, 1.0) if probed else None,
        gain=paired_difference(both[0], both[1], 0, is_share=True) if probed else None,
        on_topic=means("on_topic"),
        tokens=means("tokens"),
        capability=capability_change(people),
    )


def _mean(values: Sequence[float], least: float, most: float) -> Interval:
    """With an interval that does not leave what is possible; of one value nothing is known of it, and it stays so."""
    found = mean_interval(values, 0)
    if not math.isfinite(found.low):
        return found
    return Interval(value=found.value, low=max(least, found.low), high=min(most, found.high))


def capability_change(records: Sequence[Record]) -> Interval | None:
    """By how much the share of items that come out right changed from the base model."""
    pairs = [(record.base_right, record.right) for record in records if record.right and record.base_right]
    if not pairs:
        return None
    num = len(pairs[0][0])
    changes = [fmean(int(now[item]) - int(was[item]) for was, now in pairs) for item in range(num)]
    return mean_interval(changes, 0)


LEAST_ROOM = 0.15
"""A wish that moves the base model less than this when it stands in the prompt says nothing of learning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """One simulated user over all seeds: what the base model gives, what it gives when told, and what was learned."""

    user: str
    base: float
    ceiling: float
    learned: float
    topic_ceiling: float
    topic_learned: float
    num_lessons: float

    @property
    def share(self) -> float | None:
        """How much of the way to the ceiling was learned; None where there is no way to go."""
        room = self.ceiling - self.base
        return (self.learned - self.base) / room if room >= LEAST_ROOM else None


def reaches(records: Iterable[Record]) -> list[Reach]:
    """Of the people whose ceiling was measured."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.ceiling is not None:
            found.setdefault(record.user, []).append(record)

    def mean(user: str, of: Callable[[Record, Probe], float]) -> float:
        return fmean(of(record, record.ceiling) for record in found[user] if record.ceiling is not None)

    return [
        Reach(
            user=user,
            base=mean(user, lambda record, _: record.probes[0].preference),
            ceiling=mean(user, lambda _, ceiling: ceiling.preference),
            learned=mean(user, lambda record, _: record.probes[-1].preference),
            topic_ceiling=mean(user, lambda _, ceiling: ceiling.on_topic),
            topic_learned=mean(user, lambda record, _: record.probes[-1].on_topic),
            num_lessons=mean(user, lambda record, _: record.num_lessons),
        )
        for user in found
    ]


def ceiling_share(found: Iterable[Reach]) -> float | None:
    """The mean over users with room to learn; None where there is none."""
    shares = [one.share for one in found if one.share is not None]
    return fmean(shares) if shares else None


def reach_table(found: Mapping[str, Sequence[Reach]], labels: Mapping[str, str]) -> str:
    """A row for each arm and user."""
    head = ("arm", "user", "base", "ceiling", "learned", "share", "on topic: ceiling → learned", "lessons")
    rows = [head]
    for arm, users in found.items():
        rows += [
            (
                labels.get(arm, arm),
                one.user,
                f"{one.base:.2f}",
                f"{one.ceiling:.2f}",
                f"{one.learned:.2f}",
                "–" if one.share is None else f"{one.share:.2f}",
                f"{one.topic_ceiling:.2f} → {one.topic_learned:.2f}",
                f"{one.num_lessons:.1f}",
            )
            for one in users
        ]
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, each column as wide as its widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Mean sessions of one arm over those of another, of the people that both have. A cap counts as itself."""

    value: float
    bound: Bound
    """Which side the truth lies on, as whoever never became stable may need any number beyond the cap."""

    def __str__(self) -> str:
        return f"{ {'exact': '', 'at most': '≤ ', 'at least': '≥ ', 'unknown': '? '}[self.bound] }{self.value:.2f}"


def sessions_ratio(ours: Summary | None, theirs: Summary | None) -> Ratio | None:
    """None where one of them was not run."""
    if ours is None or theirs is None:
        return None
    common = {record.person for record in ours.records} & {record.person for record in theirs.records}
    if not common:
        return None
    found = [[one.stability for one in arm.records if one.person in common] for arm in (ours, theirs)]
    means = [fmean(one.sessions for one in arm) for arm in found]
    capped = tuple(any(not one.reached for one in arm) for arm in found)
    bounds: dict[tuple[bool, ...], Bound] = {
        (False, False): "exact",
        (False, True): "at most",
        (True, False): "at least",
        (True, True): "unknown",
    }
    return Ratio(value=means[0] / means[1], bound=bounds[capped])


def figures(summaries: Mapping[str, Summary]) -> dict[str, Any]:
    """Everything, for `--json`."""
    ours = summaries.get("default")
    found: dict[str, Any] = {}
    for name, other in (("sessions_vs_reference", "reference"), ("sessions_vs_memory", "memory")):
        ratio = sessions_ratio(ours, summaries.get(other))
        found[name] = None if ratio is None else round(ratio.value, 3)
        found[f"{name}_bound"] = None if ratio is None else ratio.bound
    found["preference_gain"] = None if ours is None or ours.gain is None else round(ours.gain.value, 3)
    found["capability_change"] = None if ours is None or ours.capability is None else round(ours.capability.value, 4)
    found["ceiling_share"] = None if ours is None else ceiling_share(reaches(ours.records))
    found["reach"] = {name: [asdict(one) for one in reaches(arm.records)] for name, arm in summaries.items()}
    found["arms"] = {name: summary.to_json() for name, summary in summaries.items()}
    return found


def table(summaries: Mapping[str, Summary], labels: Mapping[str, str]) -> str:
    """A row for each arm."""
    head = ("arm", "sessions to stable", "each", "preference, held out", "on topic", "tokens", "capability", "steps")
    rows = [head, *(_row(labels.get(name, name), summary) for name, summary in summaries.items())]
    return aligned(rows)


def _row(label: str, summary: Summary) -> tuple[str, ...]:
    each = ", ".join(str(record.stability) for record in summary.records)
    steps = f"{fmean(record.num_steps for record in summary.records):.1f}"
    rejected = sum(record.num_rejected for record in summary.records)
    return (
        label,
        f"{'>' if summary.num_capped else ''}{interval_text(summary.sessions, '.1f')}",
        each,
        _change(summary.before, summary.after, ".2f"),
        "–" if summary.on_topic is None else f"{summary.on_topic[0]:.2f} → {summary.on_topic[1]:.2f}",
        "–" if summary.tokens is None else f"{summary.tokens[0]:.0f} → {summary.tokens[1]:.0f}",
        "–" if summary.capability is None else f"{interval_text(summary.capability, '+.1%')}",
        f"{steps}{f' ({rejected} rejected)' if rejected else ''}",
    )


def _change(before: Interval | None, after: Interval | None, form: str) -> str:
    if before is None or after is None:
        return "–"
    return f"{before.value:{form}} → {interval_text(after, form)}"


def interval_text(interval: Interval, form: str) -> str:
    """A value and its 95 % interval; without it where one person says nothing of a spread."""
    if not math.isfinite(interval.low):
        return f"{interval.value:{form}}"
    return f"{interval.value:{form}} [{interval.low:{form}} … {interval.high:{form}}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One point of the grid: what the tuning people came to. Fewer sessions win, then better first replies."""

    preset: str
    learning_rate: float
    batch_size: int
    sessions: float
    num_capped: int
    first_score: float
    num_people: int

    @classmethod
    def of(cls, preset: str, learning_rate: float, batch_size: int, records: Sequence[Record]) -> Self:
        stabilities = [record.stability for record in records]
        return cls(
            preset=preset,
            learning_rate=learning_rate,
            batch_size=batch_size,
            sessions=fmean(one.sessions for one in stabilities),
            num_capped=sum(not one.reached for one in stabilities),
            first_score=round(fmean(fmean(record.first_scores) for record in records), 3),
            num_people=len(records),
        )

    @property
    def rank(self) -> tuple[float, float]:
        return self.sessions, -self.first_score


def winners(cells: Iterable[Cell]) -> dict[str, Cell]:
    """The best cell of each preset; of equals the first."""
    found: dict[str, Cell] = {}
    for cell in cells:
        if cell.preset not in found or cell.rank < found[cell.preset].rank:
            found[cell.preset] = cell
    return found


def grid_text(cells: Sequence[Cell]) -> str:
    """The grid, a row for each cell, the winner of each preset marked."""
    best = set(map(id, winners(cells).values()))
    rows = [
        f"  {cell.preset:10} lr {cell.learning_rate:<7g} batch {cell.batch_size:<3d} "
        f"{'>' if cell.num_capped else ' '}{cell.sessions:4.1f} sessions, first replies {cell.first_score:.2f}, "
        f"{cell.num_people} people{'   chosen' if id(cell) in best else ''}"
        for cell in cells
    ]
    return "\n".join(rows)
