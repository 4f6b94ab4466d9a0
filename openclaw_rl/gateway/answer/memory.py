"""The tokens of recent turns, so many turns and bytes in memory, so that the next turn is rendered without a read.

It turns a known turn into its exact ids: from memory, else from the store. What is evicted is only slower to get.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import orjson

from openclaw_rl.types import Message, Tool, Turn, turn_id


@dataclass(frozen=True, slots=True)
class TurnTokens:
    """The exact ids of a turn, and `context`: a digest of the system prompts and tools it was rendered with."""

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    num_prefill: int
    context: bytes

    @property
    def answer_ids(self) -> list[int]:
        """The ids of the assistant message: what was prefilled and what was sampled."""
        start = len(self.prompt_ids) - self.num_prefill
        return [*self.prompt_ids[start:], *self.completion_ids]

    @classmethod
    def of(cls, turn: Turn, context: bytes) -> TurnTokens:
        return cls(array("i", turn.prompt_ids), array("i", turn.completion.token_ids), turn.num_prefill, context)


class TokenMemory:
    """Least recently used first out."""

    def __init__(
        self,
        load: Callable[[str, int], Awaitable[Turn | None]],
        *,
        model_id: str,
        max_bytes: int = 64 << 20,
        max_turns: int = 4096,
    ) -> None:
        self._load = load
        self._model_id = model_id
        self._max_bytes = max_bytes
        self._max_turns = max_turns
        self._num_bytes = 0
        self._turns: OrderedDict[str, TurnTokens] = OrderedDict()

    def put(self, turn_id: str, tokens: TurnTokens) -> None:
        self._drop(turn_id)
        self._turns[turn_id] = tokens
        self._num_bytes += _size(tokens)
        while len(self._turns) > 1 and (self._num_bytes > self._max_bytes or len(self._turns) > self._max_turns):
            self._drop(next(iter(self._turns)))

    def forget(self, session: str) -> None:
        """Every turn of a session; another one may come to have its name."""
        for name in [name for name in self._turns if name.rpartition(".")[0] == session]:
            self._drop(name)

    async def get(self, session: str, index: int) -> TurnTokens | None:
        """The tokens of a turn; None if they were never stored, or if another model's tokenizer made them."""
        name = turn_id(session, index)
        tokens = self._turns.get(name)
        if tokens is not None:
            self._turns.move_to_end(name)
            return tokens
        turn = await self._load(session, index)
        if turn is None or turn.model != self._model_id or not turn.prompt_ids:
            return None
        tokens = TurnTokens.of(turn, context_digest(turn.messages, turn.tools))
        self.put(name, tokens)
        return tokens

    def _drop(self, name: str) -> None:
        tokens = self._turns.pop(name, None)
        if tokens is not None:
            self._num_bytes -= _size(tokens)


def context_digest(messages: Sequence[Message], tools: Sequence[Tool]) -> bytes:
    """Names what surrounds a conversation: its system prompts and its tools."""
    digest = blake2b(digest_size=16)
    for message in messages:
        if message.role == "system":
            digest.update(message.content.encode("utf-8", "surrogatepass") + b"\x00")
    if tools:
        digest.update(orjson.dumps([tool.to_json() for tool in tools]))
    return digest.digest()


def _size(tokens: TurnTokens) -> int:
    return 4 * (len(tokens.prompt_ids) + len(tokens.completion_ids)) + 256
