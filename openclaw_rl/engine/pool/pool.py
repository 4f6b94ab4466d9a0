"""Hosts -> one host: their lives, and how one that is new or was away comes to answer.

    consumes      the readiness of each host, and what callers of `engine` saw of it
    produces      members that may get requests
    waits for     a member's attention: it is new, was lost, or owes something
    woken by      `Member.lost`, and whoever waits for a member while there is none

A member that was away loads, proves and forgets what it missed, and then it answers. A version that a member refuses
while others have it is answered by the others. Nobody waits for a member that is down as long as another is up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

from openclaw_rl.backoff import Backoff
from openclaw_rl.engine.pool.engine import PooledEngine, ProvenScorer
from openclaw_rl.engine.pool.member import Member
from openclaw_rl.engine.pool.roster import Roster
from openclaw_rl.errors import ConfigError, EngineError
from openclaw_rl.protocols import EngineHost, Scorer
from openclaw_rl.types import Capabilities, EngineHealth, EngineState, Publication

_log = logging.getLogger(__name__)

_RETRY = Backoff(first_s=0.5, longest_s=30.0)
_LONG_S = 3600.0


class Pool:
    """An `EngineHost` and an `EngineGroup` over `hosts`, which have names. Made inside a running event loop."""

    def __init__(
        self, hosts: Mapping[str, EngineHost], *, wait_s: float = 60.0, max_waiting: int = 256, silent_s: float = 60.0
    ) -> None:
        if len(hosts) < 2:
            raise ConfigError(f"a pool is of two engines or more, got {len(hosts)}")
        self.roster = Roster(hosts, wait_s=wait_s, max_waiting=max_waiting, silent_s=silent_s)
        self.members = self.roster.members
        self.engine = PooledEngine(self.roster)
        self._running: asyncio.Task[None] | None = None

    @property
    def capabilities(self) -> Capabilities:
        """What all of them can do."""
        every = [member.host.capabilities for member in self.members]
        return Capabilities(
            reports_checksum=all(one.reports_checksum for one in every),
            scores=all(one.scores for one in every),
            top_k=min(one.top_k for one in every),
            hot_adapters=all(one.hot_adapters for one in every),
            full_weights=all(one.full_weights for one in every),
            has_weights=all(one.has_weights for one in every),
            hidden=all(one.hidden for one in every),
            logprobs_changed_by=frozenset().union(*(one.logprobs_changed_by for one in every)),
        )

    @property
    def is_ready(self) -> bool:
        return self.roster.is_ready

    @property
    def state(self) -> EngineState | None:
        return self.roster.state

    @property
    def last_error(self) -> str | None:
        if self.is_ready:
            return None
        told = [f"{one.name}: {one.reason or 'it is starting'}" for one in self.health]
        return "; ".join(told)

    @property
    def num_restarts(self) -> int:
        return sum(member.host.num_restarts for member in self.members)

    @property
    def health(self) -> Sequence[EngineHealth]:
        self.roster.eligible()  # notices who has died
        return [member.health for member in self.members]

    def scorers(self, versions: Collection[str]) -> Mapping[str, Scorer]:
        able = (member for member in self.roster.eligible() if all(map(member.holds, versions)))
        return {member.name: ProvenScorer(self.roster, member) for member in able}

    async def wait_ready(self, timeout_s: float | None = None) -> EngineState:
        """As soon as one answers."""
        return await self.roster.wait_ready(timeout_s)

    async def run(self) -> None:
        """Keeps every member alive until `stop`."""
        self._running = asyncio.current_task()
        async with asyncio.TaskGroup() as tasks:
            lives = [tasks.create_task(member.host.run(), name=member.name) for member in self.members]
            following = [tasks.create_task(self._follow(member)) for member in self.members]
            await asyncio.wait(lives)
            for task in following:
                task.cancel()

    async def stop(self) -> None:
        """Ends every member."""
        await asyncio.gather(*(member.host.stop() for member in self.members))
        if self._running is not None:
            await asyncio.wait((self._running,))

    async def _follow(self, member: Member) -> None:
        while True:
            await member.attention.wait()
            member.attention.clear()
            try:
                await member.host.wait_ready(_LONG_S)
                await self._catch_up(member)
            except EngineError as error:
                member.num_failures += 1
                member.reason = str(error)
                _log.warning("%s cannot answer yet: %s", member.name, error)
                member.attention.set()
                await asyncio.sleep(_RETRY.pause_s(member.num_failures))
            else:
                self.roster.news.set()

    async def _catch_up(self, member: Member) -> None:
        """Until it has all that the others have. A change is waited for, and never waits for this."""
        self._check_model(member)
        life, was_away = member.host.num_restarts, not member.is_caught_up
        while not member.is_caught_up:
            await self._load_missing(member)
            if member.owed_salts:
                await member.forget(frozenset(member.owed_salts))
            async with self.roster.changing:
                if not (member.owed_salts or member.owed_retirements or self._missing(member)):
                    member.caught_up(life)
                    self.roster.changed()
        if was_away:
            _log.info("%s answers", member.name)

    def _missing(self, member: Member) -> list[Publication]:
        """What it has not loaded, and could."""
        published = self.roster.ledger.published
        return [one for one in published if not (member.holds(one.version) or one.version in member.lacks)]

    async def _load_missing(self, member: Member) -> None:
        await member.retire_owed()
        for publication in self._missing(member):
            version = publication.version
            refusal = await member.load(publication)
            objection = str(refusal) if refusal else await self.roster.proofs.objection(version, member.engine)
            if objection:
                self.roster.lacking(member, version, objection)
            if objection and not refusal:
                await member.unload(version)

    def _check_model(self, member: Member) -> None:
        mine = member.host.state
        for other in self.roster.eligible():
            state = other.host.state
            if mine is not None and state is not None and mine.vocab_size != state.vocab_size:
                raise EngineError(
                    f"{member.name} serves {mine.model} with a vocabulary of {mine.vocab_size}, and {other.name} "
                    f"serves {state.model} with {state.vocab_size}: all engines of engine.urls must serve one model"
                )
