"""Which versions' files may go: every n-th stays for good, and so do what the live one stands on, what the next step
builds on, and the newest: of those that were rejected, for inspection, and of the others, to go back to."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from openclaw_rl.errors import TrainError
from openclaw_rl.protocols import LearningStore, WeightsKeeper
from openclaw_rl.types import Version, head_number, version_number

_log = logging.getLogger(__name__)

NUM_NEWEST = 5
"""Of either kind."""


def superseded(versions: Sequence[Version], *, save_every: int) -> list[Version]:
    """Those of one line whose files nobody needs any more."""
    rejected = {version.number for version in versions if version.state == "rejected"}
    others = {version.number for version in versions} - rejected
    newest = [number for kind in (rejected, others) for number in sorted(kind)[-NUM_NEWEST:]]
    in_use = {number for one in versions if one.state in ("live", "candidate") for number in (one.number, one.parent)}
    in_use |= {answered_before(one) for one in versions if one.state == "live"}
    in_use.add(head_number(versions))
    kept = in_use.union(newest)
    return [one for one in versions if one.weights and one.number % save_every and one.number not in kept]


def answered_before(version: Version) -> int:
    """Where the watch would go back to: at the end of a chain it is not the parent, but what answered then."""
    parent = version.gate.get("parent") if isinstance(version.gate, dict) else None
    return version_number(parent) if isinstance(parent, str) else version.parent


async def tidy(log: LearningStore, keeper: WeightsKeeper, line: str, *, save_every: int) -> None:
    """Removes weights that nobody needs. The rows know first: nobody is promised what is half gone.

    Weights that a row has forgotten and that a crash kept from being removed go too.
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
