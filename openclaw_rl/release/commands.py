"""What a person may do to what was learned, and ask about it: undo, forget, import, and which tokens moved.

The same object serves the admin socket of a running server and a command that has the store for itself; the latter has
no engine, so what is taken in waits for the next start, and nothing can be scored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from openclaw_rl.errors import OpenClawError, TrainError
from openclaw_rl.protocols import Engine
from openclaw_rl.release import folders
from openclaw_rl.release.forgetting import Forgetting
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.types import (
    Json,
    Lesson,
    Sample,
    ScoreRequest,
    Session,
    Turn,
    Undone,
    Version,
    split_turn_id,
    version_label,
)


class NotFound(OpenClawError):
    """Nothing by that name is in the store."""


class NotReady(OpenClawError):
    """The server has only just started."""


START_S = 60.0
"""How long a command waits for a server that has just started."""


class Log(Protocol):
    """What of the store is needed."""

    async def get_session(self, session: str) -> Session | None: ...

    async def get_turn(self, session: str, index: int) -> Turn | None: ...

    async def sessions_of(self, user: str) -> list[str]: ...

    async def samples_named(self, ids: Sequence[str]) -> list[Sample]: ...

    async def versions(self, line: str, *, every_model: bool = False) -> Sequence[Version]: ...

    async def undo(self, lesson: Lesson, *, reason: str) -> Undone: ...

    async def put_imported(self, line: str, place: Callable[[int], tuple[str, str]]) -> Version: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What only a running server has."""

    releaser: Releaser
    engine: Engine

    async def ready(self) -> None:
        """`NotReady` as long as what the last run left is not loaded: before that nobody knows what answers."""
        try:
            async with asyncio.timeout(START_S):
                await self.releaser.loaded_live()
        except TimeoutError:
            raise NotReady("the server still loads what the last run left; ask again in a moment") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """`folder` is where versions are; without `serving` rows change, and the next start does the rest."""

    log: Log
    forgetting: Forgetting
    folder: Path
    serving: Serving | None = None
    _importing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def undo(self, turn: str) -> dict[str, Json]:
        """Takes back what a turn taught, if it taught anything; nobody learns from it again."""
        try:
            session_id, index = split_turn_id(turn)
        except ValueError as error:
            raise NotFound(str(error)) from None
        session = await self.log.get_session(session_id)
        if session is None or await self.log.get_turn(session_id, index) is None:
            raise NotFound(f"there is no turn {turn}; `openclaw-rl sessions` lists the conversations")
        lesson = Lesson(line=session.user, turn=(session_id, index))
        return _told(lesson, await take_back(self.log, self.serving, lesson, reason=f"turn {turn} was undone"))

    async def forget(self, *, session: str | None = None, user: str | None = None) -> dict[str, Json]:
        """A session, or all that a user ever said, with everything that was learned from it."""
        await self.forgetting.resume()
        if user is not None:
            sessions = tuple(await self.log.sessions_of(user))
            if not sessions and not await self.log.versions(user, every_model=True):
                raise NotFound(f"nothing of a user {user!r} is stored")
            lesson = Lesson(line=user, sessions=sessions, everything=True)
        else:
            assert session is not None, "one of the two is named"
            found = await self.log.get_session(session)
            if found is None:
                raise NotFound(f"there is no session {session!r}; `openclaw-rl sessions` lists all")
            lesson = Lesson(line=found.user, sessions=(session,))
        done = await self.forgetting.forget(lesson)
        return {
            **_told(lesson, done.undone),
            "sessions": done.num_sessions,
            "deleted": [version_label(lesson.line, number) for number in done.removed],
            "erased": done.is_erased,
        }

    async def take_in(self, folder: Path, line: str) -> dict[str, Json]:
        """An adapter from elsewhere becomes a candidate; where an engine runs, the gate says whether it answers."""
        if self.serving is not None:
            await self.serving.ready()
        try:
            async with self._importing:  # two of one line would write the same folder
                place = await asyncio.to_thread(folders.take_in, folder, self.folder, line)
                made = await self.log.put_imported(line, place)
        except OSError as error:
            raise folders.BadFolder(f"{folder} cannot be copied to {self.folder}: {error}") from error
        if self.serving is not None:
            with suppress(TrainError):  # that it is rejected is on its row
                await self.serving.releaser.release(made)
        (now,) = (one for one in await self.log.versions(line) if one.number == made.number)
        return {"version": now.label, "state": now.state, "reason": now.reason}

    async def moved(self, line: str, number: int, sample_ids: Sequence[str]) -> dict[str, Json]:
        """The log-prob of every response token under a version's parent and under the version, by sample."""
        if self.serving is None:
            raise NotFound("no engine runs")
        versions = {one.number: one for one in await self.log.versions(line)}
        if number not in versions:
            raise NotFound(f"the model that runs has no version {number} of {line}; `openclaw-rl versions` lists all")
        samples = await self.log.samples_named(sample_ids)
        if not samples:
            return {}
        releaser = self.serving.releaser
        async with releaser.loaded(line, versions[number].parent) as parent, releaser.loaded(line, number) as child:
            before, after = await self._scores(samples, parent), await self._scores(samples, child)
        return {
            sample.id: {"before": list(was), "after": list(now)}
            for sample, was, now in zip(samples, before, after, strict=True)
        }

    async def _scores(self, samples: Sequence[Sample], version: str) -> list[tuple[float, ...]]:
        assert self.serving is not None
        request = ScoreRequest(
            request_id=f"why-{version}",
            sequences=tuple(sample.prompt_ids + sample.response_ids for sample in samples),
            starts=tuple(len(sample.prompt_ids) for sample in samples),
            version=version,
        )
        return [scored.logprobs for scored in await self.serving.engine.score(request)]


async def take_back(log: Log, serving: Serving | None, lesson: Lesson, *, reason: str) -> Undone:
    """Undoes a lesson, on the engine too where one runs."""
    if serving is None:
        return await log.undo(lesson, reason=reason)
    await serving.ready()
    return await serving.releaser.undo(lesson, reason=reason)


def _told(lesson: Lesson, undone: Undone) -> dict[str, Json]:
    plan = undone.plan
    return {
        "user": lesson.line,
        "answered": version_label(lesson.line, plan.answering),
        "answers": version_label(lesson.line, plan.back_to),
        "undone": [version_label(lesson.line, number) for number in plan.undone],
        "removed": undone.num_removed,
        "returned": undone.num_returned,
    }
