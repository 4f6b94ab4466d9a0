"""Hosts -> one host: who of them answers, what all of them must have loaded, and how one comes back.

    consumes      the readiness of each host, and what callers of `engine` saw of it
    produces      members that may get requests
    waits for     a member's attention: it is new, was lost, or owes something
    woken by      `Member.lost`, and whoever waits for a member while there is none

What was published is remembered here (`ledger`), beside what each supervised engine remembers of its own life: a member
that was away loads, proves and forgets what it missed, and then it answers. A version that a member refuses while
others have it is answered by the others. Nobody waits here for a member that is down as long as another is up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from openclaw_rl.backoff import Backoff
from openclaw_rl.engine.pool.affinity import bound, ranked
from openclaw_rl.engine.pool.engine import PooledEngine, ProvenScorer
from openclaw_rl.engine.pool.member import Member
from openclaw_rl.engine.pool.proofs import Proofs
from openclaw_rl.engine.worker.ledger import Ledger
from openclaw_rl.engine.worker.waiting import WaitingRoom
from openclaw_rl.errors import ConfigError, EngineError
from openclaw_rl.protocols import EngineHost, Scorer
from openclaw_rl.types import BASE_VERSION, Capabilities, EngineHealth, EngineState, Publication

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
        self.members = tuple(
            Member(name, host, silent_s=silent_s, may_leave=self._has_another) for name, host in hosts.items()
        )
        self.engine = PooledEngine(self)
        self.ledger = Ledger()
        self.proofs = Proofs()
        self.silent_s = silent_s
        self.changing = asyncio.Lock()
        """Held while what must be loaded changes."""
        self._waiting = WaitingRoom(wait_s=wait_s, max_waiting=max_waiting)
        self._news = asyncio.Event()
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._told: tuple[EngineState | None, ...] = ()
        self._state: EngineState | None = None

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
        )

    @property
    def is_ready(self) -> bool:
        return any(member.is_eligible for member in self.members)

    @property
    def state(self) -> EngineState | None:
        """What those that answer have in common; as it was, while none does."""
        members = self.eligible()
        told = tuple(member.host.state for member in members)
        known = [state for state in told if state is not None]
        if known and told != self._told:  # the same objects, as long as nothing changes
            self._told, self._state = told, self._merged(members, known)
        return self._state

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
        self.eligible()
        return [member.health for member in self.members]

    @property
    def live_version(self) -> str:
        """What answers requests that name no version: the last that was made live and that somebody has."""
        members = self.eligible()
        there = (label for label in reversed(self.ledger.live) if any(member.holds(label) for member in members))
        return next(there, BASE_VERSION)

    def scorers(self, version: str) -> Mapping[str, Scorer]:
        return {member.name: ProvenScorer(self, member) for member in self.eligible() if member.holds(version)}

    async def wait_ready(self, timeout_s: float | None = None) -> EngineState:
        """As soon as one answers."""
        if not self.is_ready:
            await self._waiting.wait(self._until_one_answers, timeout_s)
        state = self.state
        assert state is not None, "a member that answers has told its state"
        return state

    async def run(self) -> None:
        """Keeps every member alive until `stop`."""
        self._running = asyncio.current_task()
        async with asyncio.TaskGroup() as tasks:
            lives = [tasks.create_task(member.host.run(), name=member.name) for member in self.members]
            following = [tasks.create_task(self._follow(member)) for member in self.members]
            await self._stopping.wait()
            await asyncio.wait(lives)
            for task in following:
                task.cancel()

    async def stop(self) -> None:
        """Ends every member."""
        self._stopping.set()
        await asyncio.gather(*(member.host.stop() for member in self.members))
        if self._running is not None:
            await asyncio.wait((self._running,))

    def eligible(self) -> list[Member]:
        """Those that may get requests. One that has died since it was caught up is noticed here."""
        for member in self.members:
            if member.is_caught_up and not member.is_eligible:
                self.lost(member, member.host.last_error or "it was started again")
        return [member for member in self.members if member.is_eligible]

    def choose(self, conversation: str, version: str | None, avoid: Sequence[Member]) -> Member | None:
        """Who is to answer; None while nobody can. Of several the conversation's own, unless it is overrun, says
        nothing, or is one to `avoid`."""
        able = self.eligible()
        if version is not None:
            holding = [member for member in able if member.holds(version)]
            for member in able if holding else ():
                if member not in holding and version not in member.lacks:
                    self.lost(member, f"it has lost {version}")
            able = holding or able  # where nobody has it, somebody says so
        able = [member for member in able if member not in avoid] or able
        able = [member for member in able if member.is_welcome] or able
        if not able:
            return None
        most = bound([member.num_running for member in able])
        order = [able[place] for place in ranked(conversation, [member.name for member in able])]
        return next((member for member in order if member.num_running < most), order[0])

    def lost(self, member: Member, reason: str) -> None:
        """A caller saw a member die, or refuse what it should have."""
        if member.is_caught_up:
            _log.warning("%s is looked at: %s", member.name, reason)
        member.lost(reason)

    def changed(self) -> None:
        """What is known of the versions has changed, beyond what members say of themselves."""
        self._told = ()

    def _has_another(self) -> bool:
        return sum(member.is_eligible and not member.silence.is_doubtful for member in self.members) > 1

    async def _until_one_answers(self) -> None:
        while not self.is_ready:
            self._news.clear()
            for member in self.members:
                member.attention.set()
            await self._news.wait()

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
                self._news.set()

    async def _catch_up(self, member: Member) -> None:
        """Until it has all that the others have. A change is waited for, and never waits for this."""
        self._check_model(member)
        while True:
            await self._load_missing(member)
            if member.owed_salts:
                await member.forget(frozenset(member.owed_salts))
            async with self.changing:
                if not (member.owed_salts or member.owed_retirements or self._missing(member)):
                    break
        if not member.is_caught_up:
            _log.info("%s answers", member.name)
        member.caught_up()
        self.changed()

    def _missing(self, member: Member) -> list[Publication]:
        """What it has not loaded, and could."""
        return [one for one in self.ledger.published if not (member.holds(one.version) or one.version in member.lacks)]

    async def _load_missing(self, member: Member) -> None:
        await member.retire_owed()
        for publication in self._missing(member):
            version = publication.version
            refusal = await member.load(publication)
            objection = str(refusal) if refusal else await self.proofs.objection(version, member.engine)
            if objection:
                self.lacking(member, version, objection)
            if objection and not refusal:
                await member.unload(version)

    def lacking(self, member: Member, version: str, reason: str) -> None:
        """A member cannot answer with a version that others have."""
        _log.error("%s does not answer with %s: %s", member.name, version, reason)
        member.lacks[version] = f"it does not answer with {version}: {reason}"
        self.changed()

    def _check_model(self, member: Member) -> None:
        mine = member.host.state
        for other in self.eligible():
            state = other.host.state
            if mine is not None and state is not None and mine.vocab_size != state.vocab_size:
                raise EngineError(
                    f"{member.name} serves {mine.model} with a vocabulary of {mine.vocab_size}, and {other.name} "
                    f"serves {state.model} with {state.vocab_size}: all engines of engine.urls must serve one model"
                )

    def _merged(self, members: Sequence[Member], told: Sequence[EngineState]) -> EngineState:
        versions = dict.fromkeys(label for state in told for label in state.versions)
        held = tuple(label for label in versions if any(member.holds(label) for member in members))
        checksums = {}
        for label in held:
            known = {state.checksums.get(label, "") for state in told if label in state.versions}
            if len(known) == 1 and (sha256 := known.pop()):
                checksums[label] = sha256
        return replace(
            told[0],
            versions=held,
            live_version=self.live_version,
            context_window=min(state.context_window for state in told),
            checksums=checksums,
        )
