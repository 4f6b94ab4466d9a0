"""What versions scored where they were proved -> whether a member that joins later serves the same.

The proof of a version (`release/gate/proving.py`) scores the same tokens under the version and under the one before it.
Both answers are kept. A member that joins scores the version again: its change from the one before must be the change
that was proved. If it serves anything else, its change has nothing to do with it. Knows no trainer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum, sqrt

from openclaw_rl.protocols import Scorer
from openclaw_rl.types import BACKGROUND, Scored, ScoreRequest

_MIN_CORRELATION = 0.5
"""Two engines that serve the same agree far better, and two that do not hardly at all: over the tokens of a proof,
some hundreds, chance stays below 0.3."""

_NO_CHANGE = 1e-6
"""Nats, root mean square: two versions that are so near to each other cannot be told apart by what they score."""


@dataclass(frozen=True, slots=True)
class _Proof:
    request: ScoreRequest
    before: tuple[float, ...]
    after: tuple[float, ...]


class Proofs:
    """By version, the last one."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[ScoreRequest, tuple[float, ...]]] = {}
        """By member: what it scored last for a proof."""
        self._proofs: dict[str, _Proof] = {}

    def note(self, member: str, request: ScoreRequest, scored: tuple[Scored, ...]) -> None:
        """A member scored this for a proof: the version before first, then the version."""
        told, last = _flat(scored), self._last.get(member)
        self._last[member] = (request, told)
        if request.version is None or last is None or last[0].version == request.version:
            return
        if last[0].sequences == request.sequences and last[0].starts == request.starts:
            self._proofs[request.version] = _Proof(request, last[1], told)

    def forget(self, version: str) -> None:
        """The version is gone."""
        self._proofs.pop(version, None)

    async def objection(self, version: str, member: Scorer) -> str:
        """What stands against a member that says that it has loaded this version; empty if nothing does."""
        proof = self._proofs.get(version)
        if proof is None:
            return ""
        told = _flat(await member.score(replace(proof.request, priority=BACKGROUND)))
        expected = [after - before for after, before in zip(proof.after, proof.before, strict=True)]
        found = [value - before for value, before in zip(told, proof.before, strict=True)]
        if _size(expected) < _NO_CHANGE:
            return ""
        correlation = _correlation(expected, found)
        if correlation >= _MIN_CORRELATION:
            return ""
        return (
            f"it says that it has loaded {version} and answers otherwise: its log-probs correlate by {correlation:.2f} "
            f"with those that were proved, and {_MIN_CORRELATION:g} is needed"
        )


def _flat(scored: tuple[Scored, ...]) -> tuple[float, ...]:
    return tuple(value for one in scored for value in one.logprobs)


def _size(values: list[float]) -> float:
    return sqrt(fsum(value * value for value in values) / len(values))


def _correlation(one: list[float], other: list[float]) -> float:
    """About zero, and not about the mean: a member that changes nothing has none, whatever it adds to each token."""
    scale = len(one) * _size(one) * _size(other)
    return fsum(x * y for x, y in zip(one, other, strict=True)) / scale if scale else 0.0
