"""Which turns' tokens stay in memory."""

from __future__ import annotations

import pytest

from openclaw_rl.gateway.answer.memory import TokenMemory, TurnTokens
from openclaw_rl.types import Turn

TOKENS = TurnTokens(prompt_ids=[1] * 1000, completion_ids=[2], num_prefill=0, context=b"")


@pytest.mark.parametrize("limits", [{"max_turns": 2}, {"max_bytes": 9_000}])
async def test_those_used_longest_ago_go_first(limits: dict[str, int]) -> None:
    missed: list[int] = []

    async def load(_: str, index: int) -> Turn | None:
        missed.append(index)
        return None

    memory = TokenMemory(load, model_id="m", **limits)
    memory.put("s.0", TOKENS)
    memory.put("s.1", TOKENS)
    assert await memory.get("s", 0) is TOKENS
    memory.put("s.2", TOKENS)
    assert [await memory.get("s", index) for index in range(3)] == [TOKENS, None, TOKENS]
    assert missed == [1]
