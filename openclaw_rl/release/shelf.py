"""The versions that the engine has loaded beside the base model: the live ones, the ones before them, and those in use.

What answered before stays loaded until the next candidate comes: a request that has chosen it finds it, and going back
to it takes no time. Knows no row: whoever decides what answers says so here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextlib import suppress

from openclaw_rl.errors import EngineError, EngineRefused
from openclaw_rl.protocols import Engine
from openclaw_rl.types import BASE_VERSION, Publication, Version


class Shelf:
    """The loaded versions of one engine. A version that somebody uses stays loaded until nobody does."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._aside: dict[str, str] = {}
        """By line: the version that answered before, still loaded."""
        self._looked_at: Counter[str] = Counter()
        self._left: set[str] = set()
        """Versions that go when nobody looks at them any more."""

    async def load(self, version: Version) -> None:
        """Loads a version that answers only requests that name it. `EngineRefused` if its files have changed."""
        if version.weights is None:
            raise EngineRefused(f"the weights of {version.label} are gone; nothing was loaded")
        await self._engine.publish(Publication(version=version.label, weights=version.weights, live=False))

    async def unload(self, label: str) -> None:
        """Unloads a version now, or as soon as nobody uses it any more."""
        if self._looked_at[label]:
            self._left.add(label)
        else:
            await self._retire(label)

    async def _retire(self, label: str) -> None:
        with suppress(EngineError):  # an engine that is away has unloaded it already
            await self._engine.retire(label)

    def aside(self, line: str) -> str | None:
        """The version of this line that answered before and is still loaded."""
        return self._aside.get(line)

    def is_aside(self, label: str) -> bool:
        return label in self._aside.values()

    async def step_aside(self, line: str, label: str, *, now: str) -> None:
        """Keeps the version that answered until now loaded, and unloads the one before it."""
        await self.drop_aside(line, keep=(label, now))
        if label != BASE_VERSION:
            self._aside[line] = label

    async def drop_aside(self, line: str, *, keep: Collection[str] = ()) -> None:
        """Keeps no former version of this line loaded any more."""
        aside = self._aside.pop(line, None)
        if aside is not None and aside not in keep:
            await self.unload(aside)

    async def forget(self, line: str, labels: Collection[str]) -> None:
        """Unloads all of these now, even those in use."""
        if self._aside.get(line) in labels:
            del self._aside[line]
        for label in labels:
            await self._retire(label)

    def look_at(self, version: Version) -> None:
        self._looked_at[version.label] += 1
        if version.state != "live":
            self._left.add(version.label)

    def look_away(self, version: Version) -> bool:
        """Ends one use; True if nobody uses the version any more and it may be unloaded."""
        label = version.label
        self._looked_at[label] -= 1
        if self._looked_at[label] or label not in self._left:
            return False
        self._left.remove(label)
        return True
