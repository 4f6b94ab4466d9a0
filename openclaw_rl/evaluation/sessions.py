"""A simulated user, a question and a chat -> one conversation; many first replies -> how soon they were good.

    question -> reply -> reaction -> reply ... until the user is content, or has seen `max_turns` replies

The last reaction is sent as well: it is what the reply before it is judged by. The answer to it is read by nobody, so
the chat may cut it short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.evaluation.chat import Chat, Reply
from openclaw_rl.evaluation.questions import Question
from openclaw_rl.evaluation.users import Reaction, SimulatedUser, score_of
from openclaw_rl.types import Json, Message
from openclaw_rl.types.checks import require

IN_A_ROW = 3
"""So many good first replies in a row are no accident any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What the user said, what came back, how well that met the preference, and what the user made of it."""

    said: str
    reply: Reply
    score: float
    reaction: Reaction

    def __post_init__(self) -> None:
        require(0.0 <= self.score <= 1.0, f"a user's score lies in [0, 1], got {self.score}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """One conversation. Only its first reply tells what was learned: later ones were told the preference."""

    session: str
    user: str
    question: Question
    exchanges: tuple[Exchange, ...]

    def __post_init__(self) -> None:
        require(bool(self.exchanges), "a session has at least one reply")

    @property
    def first_reply(self) -> Reply:
        return self.exchanges[0].reply

    @property
    def first_score(self) -> float:
        return self.exchanges[0].score

    @property
    def first_reply_ok(self) -> bool:
        return self.exchanges[0].reaction.is_content

    @property
    def is_content(self) -> bool:
        """Whether the user was content in the end."""
        return self.exchanges[-1].reaction.is_content

    @property
    def num_complaints(self) -> int:
        return sum(not e.reaction.is_content for e in self.exchanges)

    def to_json(self) -> dict[str, Json]:
        """A line of a record file."""
        return {
            "session": self.session,
            "user": self.user,
            "question": self.question.text,
            "kind": self.question.kind,
            "first_score": self.first_score,
            "first_reply_ok": self.first_reply_ok,
            "is_content": self.is_content,
            "exchanges": [
                {
                    "said": e.said,
                    "reply": e.reply.text,
                    "version": e.reply.version,
                    "turn": e.reply.turn_id,
                    "num_tokens": e.reply.num_tokens,
                    "score": e.score,
                    "reaction": e.reaction.kind,
                }
                for e in self.exchanges
            ],
        }


async def run_session(
    chat: Chat,
    user: SimulatedUser,
    question: Question,
    *,
    session: str,
    max_turns: int = 4,
    model: str | None = None,
) -> SessionRecord:
    """The whole conversation. `max_turns` counts the replies that the user reads; `ChatFailed` ends it."""
    require(max_turns >= 1, f"max_turns must be at least 1, got {max_turns}")
    messages = [Message(role="user", content=question.text)]
    exchanges: list[Exchange] = []
    while not exchanges or not (exchanges[-1].reaction.done or len(exchanges) == max_turns):
        reply = await chat.reply(messages, session=session, model=model)
        reaction = user.react(question, reply.text, len(exchanges))
        score = score_of(user, question, reply.text)
        exchanges.append(Exchange(said=messages[-1].content, reply=reply, score=score, reaction=reaction))
        messages += [reply.message, Message(role="user", content=reaction.message)]
    if messages[-1].content:
        await chat.reply(messages, session=session, model=model, closing=True)
    return SessionRecord(session=session, user=user.name, question=question, exchanges=tuple(exchanges))


def sessions_to_stable(first_reply_ok: Sequence[bool], *, in_a_row: int = IN_A_ROW) -> int | None:
    """The number of the first session, from 1, of the first `in_a_row` whose first replies were all good; None if none.

    >>> sessions_to_stable([False, True, False, True, True, True, False])
    4
    """
    for start in range(len(first_reply_ok) - in_a_row + 1):
        if all(first_reply_ok[start : start + in_a_row]):
            return start + 1
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """Sessions until stable under a cap: the cap counts, marked ">", where it was never so."""

    sessions: int
    reached: bool

    @classmethod
    def of(cls, first_reply_ok: Sequence[bool], *, cap: int) -> Stability:
        """Of at most `cap` sessions. One that becomes good too late for three in a row has not become stable."""
        require(cap >= IN_A_ROW, f"a cap below {IN_A_ROW} sessions can never be met, got {cap}")
        found = sessions_to_stable(first_reply_ok[:cap])
        return cls(sessions=cap if found is None else found, reached=found is not None)

    def __str__(self) -> str:
        return f"{'' if self.reached else '>'}{self.sessions}"
