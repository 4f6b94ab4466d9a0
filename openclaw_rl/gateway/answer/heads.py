"""How many of the first tokens of a prompt are its head: system prompt and tools, and no word of the conversation.

Only with `engine.share_heads`, where heads may serve other users' prompts too. What the head of a family's prompts is
shows where two conversations part that differ in their first word.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from itertools import takewhile

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.answer.memory import context_digest
from openclaw_rl.protocols import Renderer
from openclaw_rl.render.cache import SizedCache
from openclaw_rl.types import Message, Tool

_CACHE_BYTES = 8 << 20
_FIRST_WORDS = ("a", "B")


class PromptHeads:
    """Remembers the heads of recent system prompts and tools: agents send the same one with every request."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._known: SizedCache[bytes, array[int]] = SizedCache(_CACHE_BYTES)

    async def num_tokens(self, prompt_ids: Sequence[int], messages: Sequence[Message], tools: Sequence[Tool]) -> int:
        """Of a prompt that was rendered from these messages and tools."""
        opening = list(takewhile(lambda message: message.role == "system", messages))
        key = context_digest(opening, tools)
        head = self._known.get(key)
        if head is None:
            head = await self._read(opening, tools)
            self._known.put(key, head, 4 * len(head) + 256)
        return _num_common(head, array("I", prompt_ids[: len(head)]))

    async def _read(self, opening: Sequence[Message], tools: Sequence[Tool]) -> array[int]:
        try:
            first, second = await asyncio.to_thread(
                lambda: [
                    array("I", self._renderer.render([*opening, Message(role="user", content=word)], tools, {}))
                    for word in _FIRST_WORDS
                ]
            )
        except RequestError:  # a family that refuses so short a conversation has no head that we know
            return array("I")
        return first[: _num_common(first, second)]


def _num_common(first: array[int], second: array[int]) -> int:
    if first == second:
        return len(first)
    return next((i for i, (one, other) in enumerate(zip(first, second, strict=False)) if one != other), len(second))
