"""The opponent: a chat that writes down what the user wants and puts it into the system prompt, and never trains.

Each reaction is read by the judge that training reads it with, so both sides learn from the same hints: what differs
is only where they are kept. Notes that say nearly the same are one, and the newest `max_notes` stay. Which preference
a user has it does not know, and neither whose notes are whose: one `MemoryChat` is the memory of one user.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from openclaw_rl.evaluation.chat import Chat, Reply
from openclaw_rl.protocols import Judge
from openclaw_rl.types import Evidence, Message, Tool

HEADING = "What the user told you before about how to answer; follow it in every reply:"
NEAR_EQUAL = 0.6
"""Two notes are one when they share this part of all their words."""


class MemoryChat:
    """A `Chat` with a memory. `chat` must not learn (`HttpChat(learn=False)`), or it is no baseline."""

    def __init__(self, chat: Chat, judge: Judge, *, max_notes: int = 8) -> None:
        self._chat = chat
        self._judge = judge
        self._max_notes = max_notes
        self._notes: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """What is remembered, the oldest first."""
        return tuple(self._notes)

    @property
    def system_prompt(self) -> str:
        """What the notes add to the system prompt; empty before the first one."""
        return "\n".join([HEADING, *(f"- {note}" for note in self._notes)]) if self._notes else ""

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        session: str,
        model: str | None = None,
        tools: Sequence[Tool] = (),
        closing: bool = False,
    ) -> Reply:
        """The reply of the chat behind it, asked with the notes."""
        await self._learn(messages)
        return await self._chat.reply(
            self._reminded(messages), session=session, model=model, tools=tools, closing=closing
        )

    async def _learn(self, messages: Sequence[Message]) -> None:
        """Keep what the newest message says about the reply before it."""
        spoken = [m for m in messages if m.role != "system"]
        if len(spoken) < 3 or spoken[-1].role != "user" or spoken[-2].role != "assistant":
            return
        verdict = await self._judge.judge(
            Evidence(request=(spoken[-3],), reply=spoken[-2], following=(spoken[-1],), history=tuple(spoken[:-3]))
        )
        for hint in verdict.hints:
            self._notes = [note for note in self._notes if not _near_equal(note, hint)]
            self._notes.append(hint)
        del self._notes[: -self._max_notes]

    def _reminded(self, messages: Sequence[Message]) -> list[Message]:
        if not self._notes:
            return list(messages)
        given = [m.content for m in messages if m.role == "system"]
        system = Message(role="system", content="\n\n".join([*given, self.system_prompt]))
        return [system, *(m for m in messages if m.role != "system")]


def _near_equal(first: str, second: str) -> bool:
    a, b = (set(re.findall(r"\w+", text.lower())) for text in (first, second))
    return len(a & b) >= NEAR_EQUAL * len(a | b)
