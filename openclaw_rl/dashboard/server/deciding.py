"""What a person decides about a lesson that was not learned yet: accept it, or put its hint into their own words.

Both are feedback like any other: they are stored, judged and credited as everything that is said, and outlive whatever
is killed. To reject a lesson is `Commands.reject`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Literal

from openclaw_rl.errors import NotFound, OpenClawError
from openclaw_rl.judge.hints import MAX_CHARS, MIN_CHARS
from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import Feedback, Json, Session, Skip, TurnTrace, own_hint, split_turn_id, turn_id
from openclaw_rl.views.page.left_out import WORDS
from openclaw_rl.views.page.tracing import sentence


class CannotDecide(OpenClawError):
    """Nothing can be decided about this turn any more, or not so."""


class Decisions:
    """`put` stores feedback; it is on disk when it returns."""

    def __init__(self, rows: ReadStore, put: Callable[[Feedback], Awaitable[None]]) -> None:
        self._rows = rows
        self._put = put

    async def accept_turn(self, turn: str) -> dict[str, Json]:
        """For whose conversation it is."""
        session, index = await asyncio.to_thread(self._named, turn)
        await self.accept(session, index, user=session.user)
        return {"turn": turn}

    async def hint_turn(self, turn: str, hint: str) -> dict[str, Json]:
        """For whose conversation it is."""
        session, index = await asyncio.to_thread(self._named, turn)
        await self.give_hint(session, index, hint, user=session.user)
        return {"turn": turn}

    async def accept(self, session: Session, index: int, *, user: str) -> None:
        """The verdict is the person's own from now on. Where the judge was not sure, what they said is the hint."""
        trace = await asyncio.to_thread(self._open_lesson, session, index)
        verdict = None if trace.judgement is None else trace.judgement.verdict
        if verdict is None or trace.is_unjudged:
            raise CannotDecide("nobody has judged it yet; accept it when there is a verdict")
        if trace.credit is not None and trace.credit.skip is Skip.CLAIM:
            raise CannotDecide(" ".join(WORDS[Skip.CLAIM]))
        if verdict.score:
            await self._say(session, index, user, score=1 if verdict.score > 0 else -1)
        else:
            await self._say(session, index, user, score=-1, text=own_hint(_checked(sentence(trace))))

    async def give_hint(self, session: Session, index: int, hint: str, *, user: str) -> None:
        """The person's own sentence takes the place of every hint that a judge found."""
        trace = await asyncio.to_thread(self._open_lesson, session, index)
        score = None if trace.judgement is None else trace.judgement.verdict.score
        await self._say(session, index, user, score=score or -1, text=own_hint(_checked(hint.strip())))

    def _named(self, turn: str) -> tuple[Session, int]:
        try:
            name, index = split_turn_id(turn)
        except ValueError as error:
            raise NotFound(str(error)) from None
        session = self._rows.session(name)
        if session is None or not self._rows.has_turn(name, index):
            raise NotFound(f"there is no turn {turn}; `openclaw-rl sessions` lists the conversations")
        return session, index

    def _open_lesson(self, session: Session, index: int) -> TurnTrace:
        """`CannotDecide` where it was learned, or may not be."""
        trace = self._rows.traces([(session.id, index)]).get((session.id, index))
        name = turn_id(session.id, index)
        if trace is None or not trace.is_heard:
            raise CannotDecide(f"nothing was said about turn {name}, so there is no lesson")
        if any(one.step is not None for one in trace.samples):
            raise CannotDecide(f"turn {name} was learned from already; `openclaw-rl undo {name}` takes that back")
        skip = trace.turn.skip
        if skip is not None and skip is not Skip.NO_NEXT_STATE:
            raise CannotDecide(" ".join(filter(None, WORDS[skip])))
        return trace

    async def _say(self, session: Session, index: int, user: str, *, score: Literal[-1, 0, 1], text: str = "") -> None:
        said = Feedback(session=session.id, index=index, user=user, given_at=time.time(), score=score, text=text)
        await self._put(said)


def _checked(hint: str) -> str:
    if not MIN_CHARS <= len(hint) <= MAX_CHARS or "\x00" in hint:
        raise CannotDecide(
            f"a hint has {MIN_CHARS} to {MAX_CHARS} characters and says what the answer should have minded; "
            "write one that does"
        )
    return hint
