"""What a person may do to what was learned, and ask about it: undo, forget, import, and which tokens moved.

The same object serves the admin socket of a running server and a command that has the store for itself; the latter has
no engine, so what is taken in waits for the next start, and nothing can be scored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.errors import NotFound, OpenClawError, TrainError
from openclaw_rl.protocols import Engine, LearningStore, WeightsKeeper
from openclaw_rl.release import folders
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.release.undo.forgetting import Forgetting, Forgotten
from openclaw_rl.types import (
    USER_NAME,
    Json,
    Lesson,
    Sample,
    ScoreRequest,
    Skip,
    Undone,
    line_for,
    line_of,
    split_turn_id,
    version_label,
)


class NotReady(OpenClawError):
    """The server has only just started."""


START_S = 60.0
"""How long a command waits for a server that has just started."""


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
    """Without `serving` rows change, and the next start does the rest."""

    log: LearningStore
    forgetting: Forgetting
    keeper: WeightsKeeper
    serving: Serving | None = None
    _importing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def undo(self, turn: str) -> dict[str, Json]:
        """Takes back what a turn taught, if it taught anything; nobody learns from it again."""
        return await self._take_back(turn, Skip.UNDONE, "undone")

    async def reject(self, turn: str) -> dict[str, Json]:
        """The same for a lesson that is none: the turn says so."""
        return await self._take_back(turn, Skip.REJECTED, "rejected")

    async def _take_back(self, turn: str, skip: Skip, done: str) -> dict[str, Json]:
        try:
            session_id, index = split_turn_id(turn)
        except ValueError as error:
            raise NotFound(str(error)) from None
        session = await self.log.get_session(session_id)
        if session is None or await self.log.get_turn(session_id, index) is None:
            raise NotFound(f"there is no turn {turn}; `openclaw-rl sessions` lists the conversations")
        lesson = Lesson(line=line_of(session), turn=(session_id, index), skip=skip)
        return _told(lesson, await take_back(self.log, self.serving, lesson, reason=f"turn {turn} was {done}"))

    async def forget(self, *, session: str | None = None, user: str | None = None) -> dict[str, Json]:
        """A session, or all that a user ever said, with everything that was learned from it, on whatever line."""
        await self.forgetting.resume()
        elsewhere: list[tuple[str, Forgotten]] = []
        if user is not None:
            home = line_for(user) if USER_NAME.fullmatch(user) else user  # a line by its own name
            by_line = await self._by_line(await self.log.sessions_of(user))
            if not by_line and not await self.log.versions(home, every_model=True):
                raise NotFound(f"nothing of a user {user!r} is stored")
            lesson = Lesson(line=home, sessions=tuple(by_line.pop(home, ())), everything=True)
            for line, names in by_line.items():  # agents that the user ran
                elsewhere.append((line, await self.forgetting.forget(Lesson(line=line, sessions=tuple(names)))))
        else:
            assert session is not None, "one of the two is named"
            found = await self.log.get_session(session)
            if found is None:
                raise NotFound(f"there is no session {session!r}; `openclaw-rl sessions` lists all")
            lesson = Lesson(line=line_of(found), sessions=(session,))
        done = await self.forgetting.forget(lesson)
        forgotten = [(lesson.line, done), *elsewhere]
        return {
            **_told(lesson, done.undone),
            "sessions": sum(one.num_sessions for _, one in forgotten),
            "deleted": [version_label(line, number) for line, one in forgotten for number in one.removed],
            "erased": all(one.is_erased for _, one in forgotten),
        }

    async def _by_line(self, sessions: Sequence[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in sessions:
            if (session := await self.log.get_session(name)) is not None:
                found.setdefault(line_of(session), []).append(name)
        return found

    async def take_in(self, folder: Path, line: str) -> dict[str, Json]:
        """An adapter from elsewhere becomes a candidate; where an engine runs, the gate says whether it answers."""
        if self.serving is not None:
            await self.serving.ready()
        try:
            async with self._importing:  # two of one line would write the same folder
                await asyncio.to_thread(folders.check_adapter, folder)
                place = await asyncio.to_thread(self.keeper.adopt, folder, line)
                made = await self.log.put_imported(line, place)
        except OSError as error:
            raise folders.BadFolder(f"{folder} cannot be copied to where versions are kept: {error}") from error
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


async def take_back(log: LearningStore, serving: Serving | None, lesson: Lesson, *, reason: str) -> Undone:
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
