"""The versions that the engine holds beside the base model: what answers, what answered just before, what is looked at.

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
    """One engine's. A version that somebody looks at stays until nobody does, whatever else is said of it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._aside: dict[str, str] = {}
        """By line: the version that answered before, still loaded."""
        self._looked_at: Counter[str] = Counter()
        self._left: set[str] = set()
        """Versions that go when nobody looks at them any more."""

    async def load(self, version: Version) -> None:
        """It answers whoever asks for it by name, and nobody else. `EngineRefused` if its files are not what they
        were."""
        if version.weights is None:
            raise EngineRefused(f"the weights of {version.label} are gone; nothing was loaded")
        await self._engine.publish(Publication(version=version.label, weights=version.weights, live=False))

    async def unload(self, label: str) -> None:
        """Now, or when nobody looks at it any more."""
        if self._looked_at[label]:
            self._left.add(label)
        else:
            await self._retire(label)

    async def _retire(self, label: str) -> None:
        with suppress(EngineError):  # an engine that is away has unloaded it already
            await self._engine.retire(label)

    def is_aside(self, label: str) -> bool:
        return label in self._aside.values()

    async def step_aside(self, line: str, label: str, *, now: str) -> None:
        """What answered until now stays loaded, in place of what did before it."""
        await self.drop_aside(line, keep=(label, now))
        if label != BASE_VERSION:
            self._aside[line] = label

    async def drop_aside(self, line: str, *, keep: Collection[str] = ()) -> None:
        """Nothing of the line is aside any more; what is not to be kept is unloaded."""
        aside = self._aside.pop(line, None)
        if aside is not None and aside not in keep:
            await self.unload(aside)

    async def forget(self, line: str, labels: Collection[str]) -> None:
        """Unloads all of these now, whoever looks at them."""
        if self._aside.get(line) in labels:
            del self._aside[line]
        for label in labels:
            await self._retire(label)

    def look_at(self, version: Version) -> None:
        self._looked_at[version.label] += 1
        if version.state != "live":
            self._left.add(version.label)

    def look_away(self, version: Version) -> bool:
        """Whether nobody looks at it any more, and it may go."""
        label = version.label
        self._looked_at[label] -= 1
        if self._looked_at[label] or label not in self._left:
            return False
        self._left.remove(label)
        return True
