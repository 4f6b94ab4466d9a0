"""What a version does once people talk to it -> the same version, or the last good one before it.

    consumes      turns, and verdicts on them, of every version that answers
    produces      a way back to what answered before it, with the reason
    waits for     the store
    woken by      a new turn; a new judgement

Five things are counted turn by turn: what the user says of it; answers that the engine fails over or that are empty;
answers that repeat themselves; tool calls that were made before with nothing new in between, as the judge found; and
answers that are much longer than those before. An answer that ended because the engine was away says nothing of a
version. Each is an event with a rate, and the question is whether the rate is the parent's or that of a bad version.
The evidence for the latter is added up turn by turn and never sinks below nothing (Page's CUSUM, 1954), so that a
version that turns bad late, because talk turns to what it is bad at, is found as fast as one that is bad at once. With
odds of n to 1, a version that is like its parent is taken for a bad one once in n turns or less.

Length alone is no fault: people ask for long answers, and for longer ones. Much longer is what is longer than nine of
ten answers of the parent and of the base model, and by more than the gate allows. An answer that was liked never
counts, and the alarm needs more of them to be disliked than liked.

Knows rows and numbers, no engine. What it did is on the version's row; the releaser tells the observers.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from openclaw_rl.config.learning import ReleaseConfig
from openclaw_rl.errors import EngineRefused, OpenClawError
from openclaw_rl.protocols import LearningStore
from openclaw_rl.release.answering import NoSuchVersion
from openclaw_rl.release.gate.behaviour import distinct_pairs
from openclaw_rl.release.keeping import ways_back
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

_MIN_LENGTHS = 10
"""Answers whose lengths tell what is long."""


@dataclass(frozen=True, slots=True)
class Usual:
    """What a version is held against: the limits, and the tokens beyond which an answer is much longer than before."""

    limits: ReleaseConfig
    long: float = math.inf


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to do badly: what it is called, when it happens (None: this turn does not say), and how rare it is taken
    to be at least, however clean the parent's few turns are."""

    name: str
    words: str
    happens: Callable[[ServedTurn, Usual], bool | None]
    min_rate: float
    by_verdict: bool = False
    """Only what people say makes it a fault: an answer that was liked does not count, and more of them must be disliked
    than liked."""


def _disliked(turn: ServedTurn, usual: Usual) -> bool | None:
    return None if turn.score is None else turn.score < 0


def _failed(turn: ServedTurn, usual: Usual) -> bool | None:
    return turn.failed


def _repeats(turn: ServedTurn, usual: Usual) -> bool | None:
    if turn.failed or len(turn.token_ids) <= _MIN_PAIRS:
        return None
    return distinct_pairs(turn.token_ids) < usual.limits.min_distinct


def _repeats_call(turn: ServedTurn, usual: Usual) -> bool | None:
    return turn.repeats_call


def _longer(turn: ServedTurn, usual: Usual) -> bool | None:
    return None if turn.failed else len(turn.token_ids) > usual.long


KINDS = (
    Kind("disliked", "were not what the user wanted", _disliked, 0.1),
    Kind("failed", "failed or were empty", _failed, 0.05),
    Kind("repetition", "repeated themselves", _repeats, 0.05),
    Kind("repeated_calls", "repeated a tool call with nothing new in between", _repeats_call, 0.05),
    Kind("length", "were much longer than those before", _longer, 0.1, by_verdict=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How often one kind happened to a version and to its parent, and what that says of the version."""

    kind: Kind
    num: int
    of: int
    parent_num: int
    parent_of: int
    odds: float
    """Of a version that is bad in this way to one that is like its parent."""
    is_alarm: bool

    def __str__(self) -> str:
        return (
            f"{self.num} of its {self.of} answers {self.kind.words}, and {self.parent_num} of {self.parent_of} of "
            "those of its parent"
        )


def alarm(
    version: Sequence[ServedTurn],
    parent: Sequence[ServedTurn],
    limits: ReleaseConfig,
    *,
    base: Sequence[ServedTurn] = (),
) -> str:
    """Why a version should not go on answering, by what became of its turns; empty if it may."""
    found = counts(version, parent, limits, base=base)
    return next((str(count) for count in found if count.is_alarm), "")


def counts(
    version: Sequence[ServedTurn],
    parent: Sequence[ServedTurn],
    limits: ReleaseConfig,
    *,
    base: Sequence[ServedTurn] = (),
) -> list[Count]:
    """Every kind, by what became of its turns and of its parent's. What is long is told by the base model's too."""
    usual = Usual(limits, limits.max_length * max(map(_long, (parent, base))) or math.inf)
    found: list[Count] = []
    for kind in KINDS:
        told = [(turn.score or 0, happens) for turn in version if (happens := kind.happens(turn, usual)) is not None]
        seen = [happens and not (kind.by_verdict and score > 0) for score, happens in told]
        before = [happens for turn in parent if (happens := kind.happens(turn, usual)) is not None]
        rate = max(kind.min_rate, (sum(before) + 1) / (len(before) + 2))
        logarithm = evidence(seen, rate)
        is_fault = not kind.by_verdict or sum(score for score, happens in told if happens) < 0
        found.append(
            Count(
                kind=kind,
                num=sum(seen),
                of=len(seen),
                parent_num=sum(before),
                parent_of=len(before),
                odds=math.exp(logarithm),
                is_alarm=is_fault and logarithm >= math.log(limits.alarm_odds),
            )
        )
    return found


def _long(turns: Sequence[ServedTurn]) -> int:
    """The length in tokens that nine of ten answers do not exceed; 0 where there are too few to tell."""
    lengths = sorted(len(turn.token_ids) for turn in turns if not turn.failed)
    return lengths[len(lengths) * 9 // 10] if len(lengths) >= _MIN_LENGTHS else 0


def window(version: Version) -> tuple[float, str]:
    """Since when a version has answered, and the label of the one that answered before."""
    gate = version.gate or {}
    return gate.get("live_at", version.created_at), gate.get("parent", BASE_VERSION)


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
        self._before: dict[str, Sequence[Sequence[ServedTurn]]] = {}
        """By the version: what its parent and the base model had served when it was first looked at."""

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
        since, parent = window(version)
        served = await self._log.served_turns(version.line, version.label, since=since, limit=MAX_TURNS)
        if not served:
            return ""
        if version.label not in self._before:
            self._before[version.label] = [
                await self._log.served_turns(version.line, label, since=0.0, limit=self._limits.watch_turns)
                for label in (parent, BASE_VERSION)
            ]
        before, base = self._before[version.label]
        return alarm(served, before, self._limits, base=base)

    async def _back_to_parent(self, version: Version, reason: str) -> None:
        """Rolls back to the version that answered before; if that one cannot be loaded, to the one before that, and so
        on."""
        _log.warning("version %s goes: %s", version.label, reason)
        for target in ways_back(version, await self._log.versions(version.line)):
            try:
                await self._roll_back(version.line, target, reason=reason, instead_of=version.number)
                return
            except (EngineRefused, NoSuchVersion) as error:
                _log.error("%s cannot answer again: %s", version_label(version.line, target), error)
            except OpenClawError as error:
                # An engine that is away is no fault of the parent: the next answer is another occasion.
                _log.warning("%s stays for now: %s", version.label, error)
                return
