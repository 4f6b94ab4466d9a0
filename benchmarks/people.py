"""Simulated people on a running system: a key for each, and waiting until what they said is learned.

Looks into the store as `openclaw-rl versions` does, read-only. Knows no arm and no measure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from benchmarks.load import LoadError
from benchmarks.system import System
from openclaw_rl.cli.admin import ask_server
from openclaw_rl.config import StoreConfig
from openclaw_rl.evaluation.questions import KINDS, Question, load_questions
from openclaw_rl.evaluation.users import SimulatedUser, questions_for
from openclaw_rl.store import StoreReader
from openclaw_rl.types import TRAINING_PAUSED

LOOK_S = 0.25
PATIENCE_S = 1800.0
"""How long a step with its gate may take on a machine that does other things too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A running system with its store; `batch_size` is the system's own."""

    system: System
    store: StoreConfig
    reader: StoreReader
    batch_size: int

    @classmethod
    def of(cls, system: System, *, batch_size: int) -> Self:
        store = StoreConfig(data_dir=system.data_dir)
        return cls(system=system, store=store, reader=StoreReader.open(store.data_dir), batch_size=batch_size)

    async def new_key(self, user: str) -> str:
        """A user of their own, and so a line of their own."""
        made = await ask_server(self.store, "POST", "/keys", {"user": user, "label": "benchmark"})
        if made is None:
            raise LoadError("the system does not take commands on its admin socket")
        return str(made["key"])

    async def learn_now(self) -> None:
        """Takes every step that there are samples for, as if `training.max_wait_s` had passed."""
        await ask_server(self.store, "POST", "/train", timeout_s=None)

    async def until_credited(self) -> None:
        """Until everything that was said is judged and credited."""
        await self._until(self._is_credited)

    async def until_learned(self) -> None:
        """Until nothing more comes of what was said: samples may wait, but fewer than fire a step."""
        await self._until(self._is_learned)

    def _is_credited(self) -> bool:
        return not (self.reader.num_open("judge") or self.reader.num_open("credit"))

    def _is_learned(self) -> bool:
        # In the order of the data: what moves on while this looks is seen at its next place. Only a rejected candidate
        # goes back, to the samples, so these are looked at once more.
        if not self._is_credited() or self._is_due() or self.reader.planned_steps():
            return False
        return not any(one.state == "candidate" for one in self.reader.versions()) and not self._is_due()

    def _is_due(self) -> bool:
        return any(one.num_samples >= self.batch_size or one.num_doubted for one in self.reader.waiting())

    async def _until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not await asyncio.to_thread(condition):
            if time.monotonic() > end:
                why = await asyncio.to_thread(self.reader.flag, TRAINING_PAUSED)
                raise LoadError(f"nothing was learned for {PATIENCE_S:.0f} s: {why or 'nobody says why'}")
            await asyncio.sleep(LOOK_S)


def lesson_questions(user: SimulatedUser) -> tuple[Question, ...]:
    """What a user asks in lessons: of the kinds whose answers mostly end by themselves."""
    asked = questions_for(user, load_questions("train"))
    short = getattr(user, "short_kinds", KINDS)
    return tuple(question for question in asked if question.kind in short) or asked
