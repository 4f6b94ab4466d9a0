"""What the tests of evaluation share: a chat that answers by a function, and keeps what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openclaw_rl.evaluation.chat import Reply
from openclaw_rl.types import Message, Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    messages: tuple[Message, ...]
    session: str
    model: str | None
    tools: tuple[Tool, ...]
    closing: bool

    @property
    def last(self) -> str:
        return self.messages[-1].content


class FunctionChat:
    """A `Chat` whose reply is a function of what it is asked; a text is the whole reply."""

    def __init__(self, answer: Callable[[Asked], Reply | str]) -> None:
        self._answer = answer
        self.asked: list[Asked] = []

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        session: str,
        model: str | None = None,
        tools: Sequence[Tool] = (),
        closing: bool = False,
    ) -> Reply:
        self.asked.append(
            Asked(messages=tuple(messages), session=session, model=model, tools=tuple(tools), closing=closing)
        )
        answer = self._answer(self.asked[-1])
        return Reply(text=answer) if isinstance(answer, str) else answer
