"""Which version of a line answers: every change of that, in the rows, in memory and on the engine.

A change holds `lock` and reads the row first: what a person decided meanwhile wins, also through another process on the
same store. What others changed is followed. Knows no gate: it is told what was found.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from openclaw_rl.errors import EngineError, EngineRefused, OpenClawError
from openclaw_rl.faults import crash_point
from openclaw_rl.protocols import LearningStore
from openclaw_rl.release.keeping import ways_back
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.shelf import Shelf
from openclaw_rl.types import (
    BASE_VERSION,
    Json,
    Lesson,
    Undone,
    Version,
    VersionState,
    ancestry,
    candidate_chain,
    version_label,
)

_log = logging.getLogger(__name__)


class NoSuchVersion(OpenClawError):
    """A version that cannot be made live."""


class Answering:
    """`stop_looking` ends the checks of a line's versions, whose results would come too late."""

    def __init__(
        self,
        log: LearningStore,
        live: LiveVersions,
        shelf: Shelf,
        *,
        on_change: Callable[[Version], None],
        stop_looking: Callable[[str], None],
    ) -> None:
        self._log = log
        self._live = live
        self._shelf = shelf
        self._on_change = on_change
        self._stop_looking = stop_looking
        self.lock = asyncio.Lock()

    async def go_live(self, version: Version, *, instead_of: str, gate: Json) -> bool:
        """False if somebody rolled back or undid the version meanwhile: a person's decision wins."""
        async with self.lock:
            undecided = partial(_still, version, instead_of)
            if not await self.mark(version, "live", gate=gate, only_if=undecided):
                return False
            crash_point("release.marked")
            self._live.set(version.line, version.label)
            crash_point("release.live")
            return True

    async def build_on(self, version: Version, reason: str, *, gate: Json) -> None:
        """Keeps a candidate that changed too little to be proved. The next step builds on it, and both changes together
        may be enough."""
        async with self.lock:
            known = await self._log.versions(version.line)
            if not is_candidate(version, known):
                return  # undone meanwhile
            _log.info("version %s does not answer: %s", version.label, reason)
            for below in candidate_chain(known)[:-1]:
                await self.mark(below, "retired", reason=f"version {version.label} stands on it")
            await self.mark(version, "no_effect", reason=reason, gate=gate)
            crash_point("release.marked")

    async def reject(self, version: Version, reason: str, *, gate: Json = None, blameless: bool = False) -> bool:
        """False if it was undone, or put live by somebody, meanwhile."""
        async with self.lock:
            still = partial(is_candidate, version)
            if not await self.mark(version, "rejected", reason=reason, gate=gate, blameless=blameless, only_if=still):
                return False
            _log.warning("version %s is rejected: %s", version.label, reason)
            crash_point("release.marked")
            return True

    async def confirm(self, version: Version, *, gate: Json) -> None:
        """Its full check found nothing against a version that answers."""
        async with self.lock:
            if await self._log.set_version_state(
                version.line, version.number, "live", gate=gate, only_if=partial(_answers, version)
            ):
                _log.info("version %s is confirmed", version.label)

    async def take_back(self, version: Version, reason: str, *, gate: Json) -> None:
        """Rejects a version that answers; the one that answered before it takes its place."""
        line = version.line
        async with self.lock:
            known = await self.numbered(line)
            if answering(list(known.values())) != version.label:
                return  # another one answers meanwhile
            _log.warning("version %s answers no more: %s", version.label, reason)
            number = await self._first_loaded(version, known)
            changes = {"to": number, "live_at": time.time(), "reason": reason, "gate": gate}
            if not await self._log.take_back(line, version.number, **changes):
                return
            crash_point("release.marked")
            self._live.set(line, known[number].label if number else None)
            self._stop_looking(line)
            self._on_change(replace(version, state="rejected", reason=reason))
            if number:
                self._on_change(replace(known[number], state="live", reason=""))
            await self._shelf.unload(version.label)

    async def _first_loaded(self, version: Version, known: Mapping[int, Version]) -> int:
        """The latest version before this one that the engine still loads; 0 is the base model."""
        for number in ways_back(version, list(known.values())):
            try:
                if number:
                    await self._shelf.load(known[number])
                return number
            except EngineRefused as error:
                _log.error("%s cannot answer again: %s", known[number].label, error)
        raise AssertionError("the base model can always answer")

    async def roll_back(
        self, line: str, number: int, *, reason: str = "", instead_of: int | None = None, untried: bool = False
    ) -> str:
        """Makes an earlier version of a line live, 0 for the base model; the label that answers from now on.

        With `instead_of` only if that one answers still; `reason` is why it does not any more. `NoSuchVersion` if
        samples that made it were given back, or if it never answered, unless it is to be made live `untried`.
        """
        async with self.lock:
            if instead_of is not None:
                now = live_version(await self._log.versions(line))
                if now is None or now.number != instead_of:
                    return BASE_VERSION if now is None else now.label
            if number:
                await self._check_may_answer(line, number, untried=untried)
            return await self._roll_back(line, number, reason or f"version {number} was put live")

    async def _check_may_answer(self, line: str, number: int, *, untried: bool) -> None:
        known = await self.numbered(line)
        version = self.with_files(known, number)
        if not version.may_answer and not untried:
            heard = ", ".join(map(str, (0, *(n for n, one in known.items() if one.may_answer))))
            why = f"{version.state}: {version.reason}" if version.reason else version.state
            raise NoSuchVersion(
                f"version {number} never answered ({why}): no gate let it. --untried puts it live all the same; what "
                f"answered before: {heard}"
            )
        if await self._log.was_taken_back(line, ancestry(list(known.values()), number)):
            raise NoSuchVersion(
                f"samples that made version {number} were given back ({version.reason}) and are learned from anew; "
                "`openclaw-rl versions` shows how far that is"
            )

    async def _roll_back(self, line: str, number: int, reason: str) -> str:
        known = await self.numbered(line)
        now = next((version for version in known.values() if version.state == "live"), None)
        if number:
            await self._shelf.load(self.with_files(known, number))
        if now is not None and now.number == number:
            self._live.set(line, now.label)
            return now.label
        self._stop_looking(line)
        if number:
            self._live.set(line, known[number].label)
            # It is watched from now on: what it did before is known to whoever wants it back.
            await self.mark(known[number], "live", gate={**(known[number].gate or {}), "live_at": time.time()})
        else:
            self._live.set(line, None)
        label = version_label(line, number) if number else BASE_VERSION
        if now is not None:
            await self.mark(now, "rolled_back", reason=reason)
            await self._shelf.step_aside(line, now.label, now=label)
        return label

    async def undo(self, lesson: Lesson, *, reason: str) -> Undone:
        """Takes a lesson back: the last version before it answers from now on, and running answers end on theirs.

        A version whose files the engine refuses is as good as gone: then an earlier one answers. What answered steps
        aside; where whole conversations are taken back it leaves the engine at once.
        """
        async with self.lock:
            now = live_version(await self._log.versions(lesson.line))
            loaded, unusable = {0} if now is None else {0, now.number}, set[int]()
            while not (undone := await self._log.undo(lesson, reason=reason, loaded=loaded, unusable=unusable)).is_done:
                back = (await self.numbered(lesson.line))[undone.plan.back_to]
                try:
                    await self._shelf.load(back)
                    loaded.add(back.number)
                except EngineRefused as error:
                    _log.error("version %s cannot be gone back to: %s", back.label, error)
                    unusable.add(back.number)
            if undone.plan.undone:
                self._stop_looking(lesson.line)
            # Only now: the train loop may have made a version of it a moment ago.
            known, plan = await self.numbered(lesson.line), undone.plan
            if plan.back_to != plan.answering:
                await self._answer_instead(lesson.line, plan.back_to, plan.answering)
            if plan.back_to and plan.back_to != plan.answering:
                back = known[plan.back_to]
                await self.mark(back, "live", gate={**(back.gate or {}), "live_at": time.time()})
            if lesson.turn is None:  # it is to be forgotten: nothing of it stays, not even for a request on its way
                await self._shelf.forget(lesson.line, [version_label(lesson.line, one) for one in plan.holding])
            for number in plan.undone:
                if number in known:  # and not another model's
                    self._on_change(replace(known[number], state="rolled_back", reason=reason))
            return undone

    async def _answer_instead(self, line: str, number: int, of: int) -> None:
        label = version_label(line, number) if number else BASE_VERSION
        self._live.set(line, label if number else None)
        await self._shelf.step_aside(line, version_label(line, of), now=label)

    async def numbered(self, line: str) -> dict[int, Version]:
        return {version.number: version for version in await self._log.versions(line)}

    @staticmethod
    def with_files(known: Mapping[int, Version], number: int) -> Version:
        if number not in known:
            have = ", ".join(str(n) for n in (0, *known))
            raise NoSuchVersion(f"the model that runs has no version {number}; there are {have}")
        if known[number].weights is None:
            have = ", ".join(str(n) for n, one in known.items() if one.weights)
            gone = f"the files of version {number} were not kept (training.save_every)"
            raise NoSuchVersion(f"{gone}; there are 0, {have}")
        return known[number]

    async def unload_unneeded(self, version: Version) -> None:
        async with self.lock:
            known = await self._log.versions(version.line)
            needed = {answering(known), *(one.label for one in candidate_chain(known))}
            if version.label not in needed and not self._shelf.is_aside(version.label):
                await self._shelf.unload(version.label)

    async def mark(
        self,
        version: Version,
        state: VersionState,
        *,
        reason: str = "",
        gate: Json = None,
        blameless: bool = False,
        only_if: Callable[[Sequence[Version]], bool] | None = None,
    ) -> bool:
        """False if the versions of its line are not, or no more, as `only_if` wants them."""
        is_done = await self._log.set_version_state(
            version.line, version.number, state, reason=reason, gate=gate, blameless=blameless, only_if=only_if
        )
        if is_done:
            self._on_change(replace(version, state=state, reason=reason))
        return is_done

    async def follow(self, line: str) -> bool:
        """Answers with what another process let answer; False if this engine cannot load it now.

        Until it can, what answered goes on: whether the version is any good was decided where it was tried.
        """
        async with self.lock:
            known = await self._log.versions(line)
            await self._unload_gone(line, known)
            now, before = answering(known), self._live.present(line) or BASE_VERSION
            if now == before or self._live.is_expected(line):
                return True
            try:
                if (version := live_version(known)) is not None:
                    await self._shelf.load(version)
            except EngineError as error:
                _log.error("version %s, which answers elsewhere, cannot be loaded here: %s", now, error)
                return False
            self._stop_looking(line)
            self._live.set(line, None if now == BASE_VERSION else now)
            _log.info("version %s answers %s, as another process says", now, line)
            await self._shelf.step_aside(line, before, now=now)
            await self._unload_gone(line, known)
            return True

    async def _unload_gone(self, line: str, known: Sequence[Version]) -> None:
        """A version whose files are gone may have been forgotten: it is not kept to go back to."""
        gone = {version.label for version in known if version.weights is None}
        if (aside := self._shelf.aside(line)) is not None and aside in gone:
            await self._shelf.drop_aside(line)

    async def load(self, line: str) -> bool:
        """What the last run left live answers again; False if it cannot be loaded now.

        Serving never waits for a file that is gone or changed: then the base model answers, and the row says why.
        """
        if not self._live.is_expected(line):
            return True
        version, refusal = live_version(await self._log.versions(line)), ""
        try:
            if version is not None:
                await self._shelf.load(version)
        except EngineRefused as error:
            refusal = str(error)
        except EngineError as error:
            _log.warning("what answered %s waits for the engine: %s", line, error)
            return False
        async with self.lock:
            now = answering(await self._log.versions(line))
            if version is not None and now != version.label:  # somebody chose another one meanwhile
                if not self._shelf.is_aside(version.label):
                    await self._shelf.unload(version.label)
                return not self._live.is_expected(line)
            if version is not None and refusal:
                _log.error("version %s cannot be served any more: %s", version.label, refusal)
                if not self._log.is_shared:  # others may well serve it
                    await self.mark(version, "rejected", reason=refusal, blameless=True)
            self._live.set(line, None if refusal or now == BASE_VERSION else now)
        return True


def live_version(versions: Sequence[Version]) -> Version | None:
    """The version of a line that answers; None while it is the base model."""
    return next((version for version in versions if version.state == "live"), None)


def _answers(version: Version, versions: Sequence[Version]) -> bool:
    return answering(versions) == version.label


def _still(version: Version, instead_of: str, versions: Sequence[Version]) -> bool:
    """Whether nobody decided anything about a candidate, or about what it is to answer instead of."""
    return answering(versions) == instead_of and is_candidate(version, versions)


def is_candidate(version: Version, versions: Sequence[Version]) -> bool:
    """Whether the row still says candidate."""
    return any(one.number == version.number and one.state == "candidate" for one in versions)


def answering(versions: Sequence[Version]) -> str:
    """Its label."""
    return BASE_VERSION if (live := live_version(versions)) is None else live.label
