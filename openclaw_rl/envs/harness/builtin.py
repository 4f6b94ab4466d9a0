"""A small agent: it asks the model, makes the calls that the model wants, tells it what came of them, and asks again.

It knows no task and no tool. What a call does, and whether it was a good one, the room says.

    opening ─▶ ask ─▶ answer ─┬─ calls ─▶ room.step, one after the other ─▶ ask …
                              └─ none  ─▶ the end; its words are submitted where the room has a tool for that
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from openclaw_rl.backoff import Backoff
from openclaw_rl.envs.harness.asking import PATIENCE, GatewayAsker, WindowFull
from openclaw_rl.envs.harness.history import History, cut
from openclaw_rl.errors import EnvError
from openclaw_rl.protocols import Room
from openclaw_rl.types import Door, EndOfAttempt, Message, Opening, ToolCall

SUBMIT = "submit"
"""A room with a tool of this name is given the agent's last words by it: `{"answer": …}`."""

_MAX_RESULT_CHARS = 16_000


class BuiltinAgent:
    """One for any number of attempts, also at the same time. `patience`: the pauses while the gateway is away."""

    name = "builtin"

    def __init__(self, *, max_turns: int, max_steps: int, patience: Backoff = PATIENCE) -> None:
        self._max_turns = max_turns
        self._max_steps = max_steps
        self._patience = patience

    def programs(self) -> Mapping[str, Path]:
        return {}

    async def attempt(self, room: Room, opening: Opening, door: Door) -> EndOfAttempt:
        clock = asyncio.timeout(opening.timeout_s)
        try:
            async with clock, GatewayAsker(door, patience=self._patience) as asker:
                return await self._work(room, opening, asker)
        except TimeoutError:
            if not clock.expired():  # somebody else's
                raise
            return "timeout"

    async def _work(self, room: Room, opening: Opening, asker: GatewayAsker) -> EndOfAttempt:
        history = History(opening.messages)
        steps_left = self._max_steps
        for _ in range(self._max_turns):
            answer = await _answer(history, opening, asker)
            if answer is None:
                return "context"
            if not answer.tool_calls:
                await _submit(room, opening, answer.content)
                return "finished"
            results: list[Message] = []
            for call in answer.tool_calls:
                if not steps_left:
                    return "max_turns"
                steps_left -= 1
                seen = await room.step(call)
                if seen.is_done:
                    return "finished"
                content = cut(_sendable(seen.content), min(_MAX_RESULT_CHARS, await asker.window()))
                results.append(Message(role="tool", content=content, tool_call_id=call.id, name=call.name))
            history.add(answer, results)
        return "max_turns"


async def _answer(history: History, opening: Opening, asker: GatewayAsker) -> Message | None:
    """The model's next answer, with as much of the history as it has room for; None where it has too little."""
    while True:
        try:
            answered = await asker.ask(history.messages(), opening.tools)
        except WindowFull as error:
            if history.is_new:
                raise EnvError(f"the task does not fit the model's window: {error}") from None
            if not history.shorten():
                return None
        else:
            if not (answered.fills_window and history.shorten()):
                return answered.message


def _sendable(text: str) -> str:
    """Half of a surrogate pair, which a tool may say, is no UTF-8."""
    return text.encode(errors="replace").decode()


async def _submit(room: Room, opening: Opening, words: str) -> None:
    if any(tool.name == SUBMIT for tool in opening.tools):
        arguments = json.dumps({"answer": words}, ensure_ascii=False)
        await room.step(ToolCall(id=SUBMIT, name=SUBMIT, arguments=arguments))
