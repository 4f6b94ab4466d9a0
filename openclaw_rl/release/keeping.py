"""Which versions' files may be deleted.

Kept are every n-th version, the live one and the one it was built on, the one that the next step builds on, the last
few rejected ones for inspection, and the last few others to roll back to.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from openclaw_rl.errors import TrainError
from openclaw_rl.protocols import LearningStore, WeightsKeeper
from openclaw_rl.types import Version, head_number, version_number

_log = logging.getLogger(__name__)

NUM_NEWEST = 5
"""Of either kind."""


def superseded(versions: Sequence[Version], *, save_every: int) -> list[Version]:
    """The versions of one line whose files nobody needs any more."""
    rejected = {version.number for version in versions if version.state == "rejected"}
    others = {version.number for version in versions} - rejected
    newest = [number for kind in (rejected, others) for number in sorted(kind)[-NUM_NEWEST:]]
    in_use = {number for one in versions if one.state in ("live", "candidate") for number in (one.number, one.parent)}
    in_use |= {answered_before(one) for one in versions if one.state == "live"}
    in_use.add(head_number(versions))
    kept = in_use.union(newest)
    return [one for one in versions if one.weights and one.number % save_every and one.number not in kept]


def answered_before(version: Version) -> int:
    """The number of the version that the watch would roll back to: the one that answered before. That need not be the
    parent."""
    parent = version.gate.get("parent") if isinstance(version.gate, dict) else None
    return version_number(parent) if isinstance(parent, str) else version.parent


def ways_back(version: Version, line: Sequence[Version]) -> Iterator[int]:
    """The versions that may answer instead of one that answers, the latest first; the base model comes last."""
    known = {one.number: one for one in line}
    number = answered_before(version)
    while number in known:
        if known[number].weights and known[number].state == "retired":
            yield number
        number = answered_before(known[number])
    yield 0


async def tidy(log: LearningStore, keeper: WeightsKeeper, line: str, *, save_every: int) -> None:
    """Removes weights that nobody needs. The rows are changed first, so that no row names weights that are half
    removed.

    Weights that no row names any more, because a crash came before their removal, are removed too.
    """
    known = await log.versions(line)
    try:
        for version in known:
            if version.weights is None:
                await keeper.abandon(line, version.number)
        for version in superseded(known, save_every=save_every):
            await log.forget_files(line, [version.number])
            if version.weights is not None:
                await keeper.discard(version.weights)
    except TrainError as error:
        _log.warning("weights that nobody needs stay: %s", error)
