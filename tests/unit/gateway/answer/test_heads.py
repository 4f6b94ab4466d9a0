"""The head of a prompt ends before the first word of the conversation, in every family."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.answer.heads import PromptHeads
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import Message, Tool

SYSTEM = Message(role="system", content="You are the house of Ann.")
TOOLS = (Tool(name="run", description="Runs it.", parameters={"type": "object", "properties": {}}),)


def says(text: str) -> Message:
    return Message(role="user", content=text)


@pytest.mark.parametrize("tools", [(), TOOLS])
async def test_system_prompt_and_tools_are_the_head(renderer: Renderer, tools: Sequence[Tool]) -> None:
    heads = PromptHeads(renderer)
    for messages in ([SYSTEM, says("a word")], [SYSTEM, says("Bern"), says("more")], [SYSTEM, says("\n\n")]):
        ids = renderer.render(messages, tools, {})
        num = await heads.num_tokens(ids, messages, tools)
        head = renderer.decode(ids[:num])
        assert "You are the house of Ann." in head
        assert ("Runs it." in head) == bool(tools)
        assert head.endswith(("user", "user\n")), "and not one letter of what the person said"


async def test_heads_differ_with_the_system_prompt_and_the_tools(renderer: Renderer) -> None:
    heads = PromptHeads(renderer)
    short, long = says("x"), Message(role="system", content=SYSTEM.content * 3)
    sizes = [
        await heads.num_tokens(renderer.render(messages, tools, {}), messages, tools)
        for messages, tools in (([SYSTEM, short], ()), ([long, short], ()), ([SYSTEM, short], TOOLS), ([short], ()))
    ]
    assert len(set(sizes)) == 4


async def test_a_prompt_that_opens_otherwise_has_a_shorter_head(renderer: Renderer) -> None:
    heads = PromptHeads(renderer)
    ids = renderer.render([SYSTEM, says("x")], (), {})
    whole = await heads.num_tokens(ids, [SYSTEM, says("x")], ())
    assert await heads.num_tokens([*ids[:9], 500, 500], [SYSTEM, says("x")], ()) == 9 < whole


async def test_what_a_family_does_not_render_is_not_shared() -> None:
    class Refusing:
        def render(self, *_: object) -> list[int]:
            raise RequestError("conversation roles must alternate")

    assert await PromptHeads(Refusing()).num_tokens([1, 2, 3], [SYSTEM, says("x")], ()) == 0  # type: ignore[arg-type]
