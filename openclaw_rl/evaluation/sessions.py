"""A simulated user, a question and a chat -> one conversation.

    question -> reply -> reaction -> reply ... until the user is content, or has seen `max_turns` replies

The last reaction is sent as well: it is what the reply before it is judged by. The answer to it is read by nobody, so
the chat may cut it short.
"""

from __future__ import annotations

from dataclasses import dataclass

from openclaw_rl.evaluation.chat import Chat, Reply
from openclaw_rl.evaluation.questions import Question
from openclaw_rl.evaluation.users import Reaction, SimulatedUser, score_of
from openclaw_rl.types import Json, Message
from openclaw_rl.types.checks import require


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionExchange:
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
    exchanges: tuple[SessionExchange, ...]

    def __post_init__(self) -> None:
        require(bool(self.exchanges), "a session has at least one reply")

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
    chat: Chat, user: SimulatedUser, question: Question, *, session: str, max_turns: int = 4, model: str | None = None
) -> SessionRecord:
    """The whole conversation. `max_turns` counts the replies that the user reads; `ChatFailed` ends it."""
    require(max_turns >= 1, f"max_turns must be at least 1, got {max_turns}")
    messages = [Message(role="user", content=question.text)]
    exchanges: list[SessionExchange] = []
    while not exchanges or not (exchanges[-1].reaction.done or len(exchanges) == max_turns):
        reply = await chat.reply(messages, session=session, model=model)
        reaction = user.react(question, reply.text, len(exchanges))
        score = score_of(user, question, reply.text)
        exchanges.append(SessionExchange(said=messages[-1].content, reply=reply, score=score, reaction=reaction))
        messages += [reply.message, Message(role="user", content=reaction.message)]
    if messages[-1].content:
        await chat.reply(messages, session=session, model=model, closing=True)
    return SessionRecord(session=session, user=user.name, question=question, exchanges=tuple(exchanges))
