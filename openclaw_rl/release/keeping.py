"""Which versions' files may go: every n-th stays for good, and so do what the live one stands on, what the next step
builds on, and the newest: of those that were rejected, for inspection, and of the others, to go back to."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from openclaw_rl.types import Version, head_number, version_number

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
    return [one for one in versions if one.path and one.number % save_every and one.number not in in_use.union(newest)]


def answered_before(version: Version) -> int:
    """Where the watch would go back to: at the end of a chain it is not the parent, but what answered then."""
    parent = version.gate.get("parent") if isinstance(version.gate, dict) else None
    return version_number(parent) if isinstance(parent, str) else version.parent


class Log(Protocol):
    """What of the store is needed to tidy up."""

    async def versions(self, line: str) -> Sequence[Version]: ...

    async def forget_files(self, line: str, numbers: Sequence[int]) -> None: ...


async def tidy(log: Log, line: str, *, save_every: int) -> None:
    """Removes files that nobody needs; the rows know first, so that nobody is promised what is half gone."""
    known = await log.versions(line)
    for folder in await asyncio.to_thread(left_behind, known):
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    for version in superseded(known, save_every=save_every):
        await log.forget_files(line, [version.number])
        # The whole checkpoint: the folder around what engines load.
        await asyncio.to_thread(shutil.rmtree, Path(version.path).parent, ignore_errors=True)


def left_behind(versions: Sequence[Version]) -> list[Path]:
    """Checkpoints that a row has forgotten, and that a crash kept from being removed. They lie beside the others."""
    places = {Path(one.path).parent.parent for one in versions if one.path}
    return [place / one.label for place in places for one in versions if not one.path and (place / one.label).exists()]
