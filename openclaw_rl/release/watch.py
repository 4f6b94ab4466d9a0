"""What a version does once people talk to it -> the same version, or the last good one before it.

    consumes      turns, and verdicts on them, of every version that answers
    produces      a way back to what answered before it, with the reason
    waits for     the store
    woken by      a new turn; a new judgement

Three things are counted turn by turn: what the user says of it, answers that the engine fails over or that are empty,
answers that repeat themselves. An answer that ended because the engine was away says nothing of a version. Each is an
event with a rate, and the question is whether the rate is the parent's or that of a bad version. The evidence for the
latter is added up turn by turn and never sinks below nothing (Page's CUSUM, 1954), so that a version that turns bad
late, because talk turns to what it is bad at, is found as fast as one that is bad at once. With odds of n to 1, a
version that is like its parent is taken for a bad one once in n turns or less.

Knows rows and numbers, no engine. What it did is on the version's row; the releaser tells the observers.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from openclaw_rl.config.learning import ReleaseConfig
from openclaw_rl.errors import EngineRefused, OpenClawError
from openclaw_rl.protocols import LearningStore
from openclaw_rl.release.answering import NoSuchVersion
from openclaw_rl.release.gate.behaviour import distinct_pairs
from openclaw_rl.release.keeping import answered_before
from openclaw_rl.types import BASE_VERSION, ServedTurn, Version, version_label

_log = logging.getLogger(__name__)

MAX_TURNS = 200
"""Last turns of a version that are looked at."""

_GATHER_S = 0.5
"""Turns that come within this time are looked at together: under load the store has better things to do."""

_WORSE = 0.6
"""A bad version does wrong in so much of what its parent did right."""

_MIN_PAIRS = 8
"""Tokens of an answer, less one, of which repetition can be told."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to do badly: what it is called, when it happens (None: this turn does not say), and how rare it is taken
    to be at least, however clean the parent's few turns are."""

    words: str
    happens: Callable[[ServedTurn, ReleaseConfig], bool | None]
    min_rate: float


def _disliked(turn: ServedTurn, limits: ReleaseConfig) -> bool | None:
    return None if turn.score is None else turn.score < 0


def _failed(turn: ServedTurn, limits: ReleaseConfig) -> bool | None:
    return turn.failed


def _repeats(turn: ServedTurn, limits: ReleaseConfig) -> bool | None:
    if turn.failed or len(turn.token_ids) <= _MIN_PAIRS:
        return None
    return distinct_pairs(turn.token_ids) < limits.min_distinct


KINDS = (
    Kind("were not what the user wanted", _disliked, 0.1),
    Kind("failed or were empty", _failed, 0.05),
    Kind("repeated themselves", _repeats, 0.05),
)


def alarm(version: Sequence[ServedTurn], parent: Sequence[ServedTurn], limits: ReleaseConfig) -> str:
    """Why a version should not go on answering, by what became of its turns and its parent's; empty if it may."""
    for kind in KINDS:
        seen = [found for turn in version if (found := kind.happens(turn, limits)) is not None]
        before = [found for turn in parent if (found := kind.happens(turn, limits)) is not None]
        rate = max(kind.min_rate, (sum(before) + 1) / (len(before) + 2))
        if evidence(seen, rate) >= math.log(limits.alarm_odds):
            return (
                f"{sum(seen)} of its {len(seen)} answers {kind.words}, and {sum(before)} of {len(before)} of those of "
                "its parent"
            )
    return ""


def evidence(seen: Iterable[bool], rate: float) -> float:
    """The logarithm of the odds that speak for a bad version, the latest; `rate` is the parent's."""
    bad = rate + _WORSE * (1 - rate)
    odds = 0.0
    for found in seen:
        odds = max(0.0, odds + math.log(bad / rate if found else (1 - bad) / (1 - rate)))
    return odds


class RollBack(Protocol):
    """Puts a version live in place of another, if that one answers still."""

    def __call__(self, line: str, number: int, *, reason: str, instead_of: int) -> Awaitable[str]: ...


class Watch:
    """Watches every version that answers, until it is cancelled."""

    def __init__(self, log: LearningStore, roll_back: RollBack, limits: ReleaseConfig) -> None:
        self._log = log
        self._roll_back = roll_back
        self._limits = limits
        self._parents: dict[str, Sequence[ServedTurn]] = {}
        """By the version: what its parent had served when it was first looked at."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._log.woken("watch").clear()
            try:
                await self.look()
            except OpenClawError as error:
                _log.warning("the version that answers is not watched: %s", error)
            await self._log.woken("watch").wait()
            await asyncio.sleep(_GATHER_S)

    async def look(self) -> None:
        """Checks every version that answers now, once."""
        for version in await self._log.versions():
            if version.state == "live" and (reason := await self._alarm(version)):
                await self._back_to_parent(version, reason)

    async def _alarm(self, version: Version) -> str:
        since = (version.gate or {}).get("live_at", version.created_at)
        served = await self._log.served_turns(version.line, version.label, since=since, limit=MAX_TURNS)
        if not served:
            return ""
        if version.label not in self._parents:
            parent = (version.gate or {}).get("parent", BASE_VERSION)
            self._parents[version.label] = await self._log.served_turns(
                version.line, parent, since=0.0, limit=self._limits.watch_turns
            )
        return alarm(served, self._parents[version.label], self._limits)

    async def _back_to_parent(self, version: Version, reason: str) -> None:
        """Rolls back to the version that answered before; if that one cannot be loaded, to the one before that, and so
        on."""
        _log.warning("version %s goes: %s", version.label, reason)
        for target in _ways_back(version, await self._log.versions(version.line)):
            try:
                await self._roll_back(version.line, target, reason=reason, instead_of=version.number)
                return
            except (EngineRefused, NoSuchVersion) as error:
                _log.error("%s cannot answer again: %s", version_label(version.line, target), error)
            except OpenClawError as error:
                # An engine that is away is no fault of the parent: the next answer is another occasion.
                _log.warning("%s stays for now: %s", version.label, error)
                return


def _ways_back(version: Version, line: Sequence[Version]) -> Iterator[int]:
    """The versions to roll back to, the latest first; the base model comes last."""
    known = {one.number: one for one in line}
    number = answered_before(version)
    while number in known:
        if known[number].weights and known[number].state == "retired":
            yield number
        number = answered_before(known[number])
    yield 0
