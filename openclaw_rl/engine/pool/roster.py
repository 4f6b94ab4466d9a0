"""The members of a pool: who of them may get a request, what all of them must have, and what they have in common.

Pure bookkeeping over hosts: nothing is started, loaded or sent here. `engine.py` sends requests where this says, and
`pool.py` makes members eligible.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from openclaw_rl.engine.pool.affinity import bound, ranked
from openclaw_rl.engine.pool.member import Member
from openclaw_rl.engine.pool.proofs import Proofs
from openclaw_rl.engine.worker.ledger import Ledger
from openclaw_rl.engine.worker.waiting import WaitingRoom
from openclaw_rl.protocols import EngineHost
from openclaw_rl.types import BASE_VERSION, EngineState

_log = logging.getLogger(__name__)


class Roster:
    """`ledger` is what was published, beside what each supervised engine remembers of its own life."""

    def __init__(self, hosts: Mapping[str, EngineHost], *, wait_s: float, max_waiting: int, silent_s: float) -> None:
        self.members = tuple(
            Member(name, host, silent_s=silent_s, may_leave=self._has_another) for name, host in hosts.items()
        )
        self.ledger = Ledger()
        self.proofs = Proofs()
        self.silent_s = silent_s
        self.changing = asyncio.Lock()
        """Held while what must be loaded changes."""
        self.news = asyncio.Event()
        """A member may get requests that could not."""
        self._waiting = WaitingRoom(wait_s=wait_s, max_waiting=max_waiting)
        self._told: tuple[EngineState | None, ...] = ()
        self._state: EngineState | None = None

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
    def live_version(self) -> str:
        """What answers requests that name no version: the last that was made live and that somebody has."""
        members = self.eligible()
        there = (label for label in reversed(self.ledger.live) if any(member.holds(label) for member in members))
        return next(there, BASE_VERSION)

    async def wait_ready(self, timeout_s: float | None = None) -> EngineState:
        """As soon as one answers."""
        if not self.is_ready:
            await self._waiting.wait(self._until_one_answers, timeout_s)
        state = self.state
        assert state is not None, "a member that answers has told its state"
        return state

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
            if 0 < len(holding) < len(able):
                self._look_at_others(able, holding, version)
            able = holding or able  # where nobody has it, somebody says so
        able = [member for member in able if member not in avoid] or able
        able = [member for member in able if member.is_welcome] or able
        if not able:
            return None
        most = bound([member.num_running for member in able])
        order = [able[place] for place in ranked(conversation, [member.name for member in able])]
        return next((member for member in order if member.num_running < most), order[0])

    def _look_at_others(self, able: Sequence[Member], holding: Sequence[Member], version: str) -> None:
        """What was published to all, and has not been refused, was lost where it is not; unless it is on its way."""
        if any(one.version == version for one in self.ledger.published):
            for member in able:
                if member not in holding and version not in member.lacks:
                    self.lost(member, f"it has lost {version}")

    def lost(self, member: Member, reason: str) -> None:
        """A caller saw a member die, or refuse what it should have."""
        if member.is_caught_up:
            _log.warning("%s is looked at: %s", member.name, reason)
        member.lost(reason)

    def changed(self) -> None:
        """What is known of the versions has changed, beyond what members say of themselves."""
        self._told = ()

    def _has_another(self, one: Member) -> bool:
        others = (member for member in self.members if member is not one)
        return any(member.is_eligible and not member.silence.is_doubtful for member in others)

    async def _until_one_answers(self) -> None:
        while not self.eligible():
            self.news.clear()
            for member in self.members:
                member.attention.set()
            await self.news.wait()

    def lacking(self, member: Member, version: str, reason: str) -> None:
        """A member cannot answer with a version that others have."""
        _log.error("%s does not answer with %s: %s", member.name, version, reason)
        member.lacks[version] = f"it does not answer with {version}: {reason}"
        self.changed()

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
