"""Requests to a pool -> requests to its members, and on to another member where one fails.

A request that has no token yet moves by itself. One that has raises `EngineLost`, and its caller goes on from the exact
tokens, which then go to another member. What changes versions goes to every member, one after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

from openclaw_rl.engine.pool.member import Member
from openclaw_rl.engine.pool.roster import Roster
from openclaw_rl.engine.pool.silence import EngineSilent
from openclaw_rl.engine.worker.admission import admit_retirement
from openclaw_rl.errors import EngineError, EngineLost, EngineRefused, EngineUnavailable
from openclaw_rl.protocols import Engine, HiddenReader
from openclaw_rl.types import (
    Delta,
    EngineState,
    GenerateRequest,
    Hidden,
    HiddenRequest,
    Publication,
    Scored,
    ScoreRequest,
)

_log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_MOVES = 3
"""Members that a request tries besides the first before its caller is told; a request that kills engines must end."""


class PooledEngine:
    """The `Engine` of a pool. Waits until a member answers, `EngineUnavailable` if that takes too long."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._changes: set[asyncio.Task[None]] = set()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """A member's deltas."""
        request = await self._named(request)
        moves = _Moves(self._roster, f"{request.cache_salt}\0{request.conversation or request.request_id}")
        while True:
            member, has_streamed = await moves.to(request.version), False
            try:
                async with aclosing(member.generate(request, patient=moves.is_patient)) as deltas:
                    async for delta in deltas:
                        has_streamed = True
                        yield delta
                return
            except (EngineLost, EngineUnavailable, EngineRefused) as error:
                moves.failed(member, error, request.version, may_move=not has_streamed)

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        """A member's scores."""
        if request.version is None:
            await self._roster.wait_ready()
            request = replace(request, version=self._roster.live_version)
        return await self._asked(request.request_id, request.version, lambda engine: engine.score(request))

    async def hidden(self, request: HiddenRequest) -> tuple[Hidden, ...]:
        """A member's hidden states."""

        def ask(engine: Engine) -> Awaitable[tuple[Hidden, ...]]:
            assert isinstance(engine, HiddenReader), "capabilities say so"
            return engine.hidden(request)

        return await self._asked(request.request_id, None, ask)

    async def publish(self, publication: Publication) -> None:
        """Returns when every member that answers has loaded the version; live from then on, if that was wished.

        One after the other, so that the others answer at full speed. A member that dies meanwhile is caught up when it
        is back. `EngineRefused` if all refuse; what only some refuse is answered by the others.
        """
        await self._to_its_end(self._publish(publication))

    async def retire(self, version: str) -> None:
        """Returns when no member finds the version for a new request; one that is away unloads it when it is back."""
        await self._to_its_end(self._retire(version))

    async def forget_cache(self, salts: Collection[str]) -> None:
        """Returns when no request finds what these salts left: a member that cannot say so gets none before it can."""
        await asyncio.gather(*(self._forget(member, salts) for member in self._roster.members))

    async def state(self) -> EngineState:
        """Of those that answer; waits for one as `generate` does, and asks nobody."""
        return await self._roster.wait_ready()

    async def close(self) -> None:
        """Ends what changes, and every member's engine."""
        for change in self._changes:
            change.cancel()
        await asyncio.gather(*(member.engine.close() for member in self._roster.members))

    async def _named(self, request: GenerateRequest) -> GenerateRequest:
        """By its version: what is live is the pool's to say, and its members' base models answer whoever asks them."""
        if request.version is not None:
            return request
        await self._roster.wait_ready()
        return replace(request, version=self._roster.live_version)

    async def _asked(self, name: str, version: str | None, answer: Callable[[Engine], Awaitable[T]]) -> T:
        moves = _Moves(self._roster, name)
        while True:
            member = await moves.to(version)
            try:
                return await member.ask(answer, patient=moves.is_patient)
            except (EngineLost, EngineUnavailable, EngineRefused) as error:
                moves.failed(member, error, version, may_move=True)

    async def _to_its_end(self, change: Coroutine[None, None, None]) -> None:
        """Also if its caller leaves: what members were told must be known here."""
        task = asyncio.create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        await asyncio.shield(task)

    async def _publish(self, publication: Publication) -> None:
        roster = self._roster
        await roster.wait_ready()
        async with roster.changing:
            for member in roster.members:
                member.owed_retirements.discard(publication.version)
            members = roster.eligible()
            refusals: list[tuple[Member, EngineRefused]] = []
            failure: EngineError = EngineLost("no engine of the pool answers")
            num_loaded = 0
            for member in members:
                if member.silence.is_doubtful:
                    roster.lost(member, "it said nothing when a version was published")
                    continue
                member.is_loading = len(members) > 1 and _is_whole_model(publication)
                try:
                    refusal = await member.load(publication)
                except EngineError as error:
                    failure = error
                    roster.lost(member, str(error))
                    continue
                finally:
                    member.is_loading = False
                if refusal is None:
                    num_loaded += 1
                else:
                    refusals.append((member, refusal))
            if not num_loaded:
                raise refusals[0][1] if refusals else failure
            for member, refusal in refusals:
                roster.lacking(member, publication.version, str(refusal))
            roster.ledger.publish(publication)
            roster.changed()

    async def _retire(self, version: str) -> None:
        roster = self._roster
        await roster.wait_ready()
        async with roster.changing:
            state = roster.state
            assert state is not None, "a member has answered"
            admit_retirement(version, state)
            roster.ledger.retire(version)
            roster.proofs.forget(version)
            roster.changed()
            for member in roster.members:
                member.owed_retirements.add(version)
            for member in roster.eligible():
                try:
                    await member.retire_owed()
                except EngineError as error:
                    roster.lost(member, str(error))

    async def _forget(self, member: Member, salts: Collection[str]) -> None:
        if not member.host.is_ready or member.silence.is_doubtful:
            member.owed_salts |= set(salts)
            member.lost("it has to forget something first")
            return
        try:
            async with asyncio.timeout(self._roster.silent_s):
                await member.forget(frozenset(salts))
        except (EngineLost, EngineUnavailable, TimeoutError) as error:
            member.owed_salts |= set(salts)
            self._roster.lost(member, f"it may not have forgotten what it was told to: {error}")


class ProvenScorer:
    """A `Scorer`: one member, whose scores are kept for those that join later."""

    def __init__(self, roster: Roster, member: Member) -> None:
        self._roster = roster
        self._member = member

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        """Of this member and no other."""
        try:
            scored = await self._member.ask(lambda engine: engine.score(request), patient=True)
        except EngineLost as error:
            self._roster.lost(self._member, str(error))
            raise
        self._roster.proofs.note(self._member.name, request, scored)
        return scored

    async def state(self) -> EngineState:
        """What this member has loaded."""
        return await self._member.engine.state()


class _Moves:
    """Where one request was, and where it goes next."""

    def __init__(self, roster: Roster, conversation: str) -> None:
        self._roster = roster
        self._conversation = conversation
        self._been: list[Member] = []
        self.is_patient = False
        """Whether it has left a silent engine once: a long prompt is not read over and over again."""

    async def to(self, version: str | None) -> Member:
        while (member := self._roster.choose(self._conversation, version, self._been)) is None:
            await self._roster.wait_ready()
        return member

    def failed(self, member: Member, error: EngineError, version: str | None, *, may_move: bool) -> None:
        """Raises the error, or returns if another member is to be tried."""
        self._been.append(member)
        can_move = may_move and len(self._been) <= _MAX_MOVES
        if isinstance(error, EngineSilent):
            self.is_patient = True
        elif isinstance(error, EngineLost):
            self._roster.lost(member, str(error))
        elif isinstance(error, EngineRefused):
            # It should have it: it was started again by somebody else, say, and has not said so.
            is_odd = error.code == "version_not_found" and version is not None and member.holds(version)
            can_move &= is_odd and self._has_another()
            if is_odd:
                self._roster.lost(member, str(error))
        else:  # it is full
            can_move &= self._has_another()
        if not can_move:
            raise error
        _log.info("a request moves away from %s: %s", member.name, error)

    def _has_another(self) -> bool:
        return any(other not in self._been for other in self._roster.eligible())


def _is_whole_model(publication: Publication) -> bool:
    folder = None if publication.weights is None else publication.weights.folder
    return folder is not None and not (folder / "adapter_config.json").exists()
