"""Attempts at tasks -> keys that name them, and their ends: `protocols.EpisodeDesk` over the gateway.

An attempt is a user of its own, called like its episode: no agent at work reads what people, or other attempts, said.
What comes in with its key belongs to the episode. The keys are in memory alone, so no attempt outlives the process that
began it; `recover` ends those of an earlier one.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from openclaw_rl.gateway.access.auth import KeyRing, new_key
from openclaw_rl.gateway.answer.exchange import Gateway
from openclaw_rl.gateway.sessions.placement import Ended
from openclaw_rl.protocols import LearningStore
from openclaw_rl.types import AtWork, Door, Episode, Message, NextState, Outcome, Turn

INTERRUPTED = "the server stopped in the middle of the attempt"


class AttemptDesk:
    """`listens_at` is where the gateway listens, once it does; `model` is what agents ask for there."""

    def __init__(
        self, gateway: Gateway, lessons: LearningStore, keys: KeyRing, *, model: str, listens_at: Awaitable[str]
    ) -> None:
        self._gateway = gateway
        self._lessons = lessons
        self._keys = keys
        self._model = model
        self._listens_at = listens_at
        self._key_ids: dict[str, str] = {}

    async def recover(self) -> int:
        """Ends what an earlier process left open, so that the other attempts of these groups can teach; how many."""
        left = await self._lessons.unfinished_episodes()
        for episode in left:
            await self._lessons.put_outcome(Outcome(episode=episode.id, failure=INTERRUPTED, ended_at=time.time()))
        return len(left)

    async def begin(
        self, episode: Episode, *, learn: bool, version: str = "", heard: Callable[[Turn], None] | None = None
    ) -> Door:
        key, secret = new_key(episode.id, time.time(), label=f"attempt {episode.attempt} at {episode.task}")
        await self._lessons.put_episode(episode)
        if (earlier := self._key_ids.get(episode.id)) is not None:
            self._keys.remove(earlier)
        self._keys.add(key, AtWork(episode=episode, learn=learn))
        self._key_ids[episode.id] = key.id
        if heard is not None:
            self._gateway.watched[episode.id] = heard
        model = f"{self._model}@{version}" if version else self._model
        return Door(url=await self._listens_at, key=secret, model=model)

    async def end(self, outcome: Outcome, *, report: str = "") -> None:
        if (key := self._key_ids.pop(outcome.episode, None)) is not None:
            self._keys.remove(key)
        gateway = self._gateway
        gateway.watched.pop(outcome.episode, None)
        sessions = gateway.sessions.open_of(outcome.episode)
        await gateway.take_back(sessions)
        ended = [found for name in sessions if (found := gateway.sessions.end(name)) is not None]
        if report:
            ended = await self._told(ended, report, outcome.ended_at)
        for one in ended:
            await gateway.end_session(one)
        await self._lessons.put_outcome(outcome)

    async def _told(self, ended: list[Ended], report: str, at: float) -> list[Ended]:
        """The same where the last answer of the attempt is followed by what the grader said of it."""
        last = max(ended, key=lambda one: one.session.last_seen_at, default=None)
        if last is None or not last.dangling:
            return ended
        turn = max(last.dangling, key=lambda one: one.index)
        said = (Message(role="tool", content=report),)
        state = NextState(session=turn.session, index=turn.index, messages=said, arrived_at=at)
        await self._gateway.store.put_next_state(state)
        rest = tuple(one for one in last.dangling if one is not turn)
        return [replace(one, dangling=rest) if one is last else one for one in ended]
