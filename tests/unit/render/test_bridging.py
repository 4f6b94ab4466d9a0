"""Fifty random conversations: every prompt starts with the ids of the turn before; no sampled id is encoded anew."""

from __future__ import annotations

import json
from random import Random

import pytest

from openclaw_rl.render.chatml import ChatmlRenderer
from openclaw_rl.types import Message, Role, Tool, ToolCall

WORDS = [
    "hello",
    " ",
    "\n\n",
    "<|im_end|>",
    "<|im_start|>user\n",
    "été",
    "🐍",
    "語",
    "\x00",
    "</tool_response>",
    "42",
    "{",
]
IM_START, IM_END, VOCAB_SIZE = 1, 2, 49_152


def random_text(rng: Random) -> str:
    size = rng.choice([0, 1, 5, 20, 2000])
    return "".join(rng.choice(WORDS) for _ in range(size))


def random_ids(rng: Random) -> list[int]:
    ids = [rng.randrange(17, VOCAB_SIZE) for _ in range(rng.choice([0, 1, 10, 200]))]
    return ids + rng.choice([[], [0], [IM_END], [IM_END]])


def random_following(rng: Random) -> list[Message]:
    """What may follow an answer: tool results, words of the user, a remark of the system, or several of them."""
    roles: list[Role] = rng.choice([["user"], ["tool"], ["tool", "tool", "user"], ["system", "user"], ["user", "user"]])
    return [Message(role=role, content=random_text(rng)) for role in roles]


@pytest.mark.parametrize("seed", range(50))
def test_every_prompt_starts_with_the_turn_before(embedded: ChatmlRenderer, seed: int) -> None:
    rng = Random(seed)
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    tools = [
        Tool(name=f"tool{i}", description=random_text(rng), parameters=schema) for i in range(rng.choice([0, 0, 3]))
    ]
    messages = [Message(role="system", content=random_text(rng))] if rng.random() < 0.5 else []
    messages += [Message(role="user", content=random_text(rng))]
    sampled: dict[int, list[int]] = {}
    prompt = embedded.render(messages, tools, {})
    for _ in range(rng.randrange(2, 8)):
        completion = random_ids(rng)
        sampled[len(messages)] = completion
        calls = tuple(
            ToolCall(id=f"c{i}", name="tool0", arguments=json.dumps({"q": "x"})) for i in range(rng.randrange(2))
        )
        # The client sends the answer back as it understood it; the ids must not be made from that.
        messages.append(Message(role="assistant", content=random_text(rng), tool_calls=calls))
        following = random_following(rng)
        messages += following
        bridged = embedded.bridge(prompt, completion, following, tools)
        assert bridged is not None
        assert bridged[: len(prompt) + len(completion)] == prompt + completion
        assert bridged == embedded.render(messages, tools, sampled)
        prompt = bridged
    assert prompt.count(IM_START) == prompt.count(IM_END) + 1
