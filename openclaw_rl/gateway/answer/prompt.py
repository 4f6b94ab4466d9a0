"""A placed request to the exact ids of its prompt.

Ids that were sampled before stay as they were sampled: the prompt is the parent's ids extended by what is new
(a bridge), or, where the client changed something further up, a fresh rendering with the sampled answers spliced in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.errors import CONTEXT_LENGTH_EXCEEDED, RequestError
from openclaw_rl.gateway.answer.memory import TokenMemory, context_digest
from openclaw_rl.gateway.sessions.placement import Placement
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import Message, Request, Tool

_BIG_PROMPT_CHARS = 16_384
"""Above this, rendering leaves the event loop; below, a thread would cost more than the work."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """`ids` end where sampling begins. `prefill` opens the answer and is the text of the last `num_prefill` ids."""

    ids: list[int]
    prefill: str
    num_prefill: int
    context: bytes


def seen_tools(request: Request) -> tuple[Tool, ...]:
    """The tools that the model is shown."""
    return request.tools if request.tool_choice != "none" else ()


async def build_prompt(
    request: Request, tools: Sequence[Tool], placement: Placement, renderer: Renderer, memory: TokenMemory
) -> Prompt:
    """Renders a request whose place is known; `tools` are those that the model is to see."""
    context = context_digest(request.messages, tools)
    ids = await _bridged(request, tools, context, placement, renderer, memory)
    if ids is None:
        ids = await _rendered(request, tools, placement, renderer, memory)
    if request.tool_choice != "required":
        return Prompt(ids, "", 0, context)
    opening = renderer.prefill_ids(request.forced_tool)
    return Prompt(ids + opening, renderer.prefill(request.forced_tool), len(opening), context)


async def count_prompt(request: Request, renderer: Renderer) -> int:
    """How many tokens the prompt of a request has that is placed nowhere: answers count as their text is written."""
    ids = await _render(request.messages, seen_tools(request), {}, renderer)
    opening = renderer.prefill_ids(request.forced_tool) if request.tool_choice == "required" else []
    return len(ids) + len(opening)


def room(prompt: Prompt, request: Request, context_window: int) -> int:
    """How many tokens the answer may have; a 400 if the prompt leaves none."""
    left = context_window - len(prompt.ids)
    if left < 1:
        raise RequestError(
            # These words are what clients look for before they make a conversation shorter.
            f"prompt is too long: {len(prompt.ids)} tokens > {context_window} maximum, answer included; "
            "shorten the conversation or serve a model with a larger window",
            param="messages",
            code=CONTEXT_LENGTH_EXCEEDED,
        )
    return min(request.sampling.max_tokens, left)


async def _bridged(
    request: Request,
    tools: Sequence[Tool],
    context: bytes,
    placement: Placement,
    renderer: Renderer,
    memory: TokenMemory,
) -> list[int] | None:
    parent, position = placement.parent, placement.parent_position
    if parent is None or position is None or not placement.extends_parent:
        return None
    tokens = await memory.get(parent.session, parent.index)
    if tokens is None or tokens.context != context:
        return None
    new = request.messages[position + 1 :]
    if _is_big(new):
        return await asyncio.to_thread(renderer.bridge, tokens.prompt_ids, tokens.completion_ids, new, tools)
    return renderer.bridge(tokens.prompt_ids, tokens.completion_ids, new, tools)


async def _rendered(
    request: Request, tools: Sequence[Tool], placement: Placement, renderer: Renderer, memory: TokenMemory
) -> list[int]:
    sampled = {}
    for position, known in placement.answered.items():
        tokens = await memory.get(known.session, known.index)
        if tokens is not None:
            sampled[position] = tokens.answer_ids
    return await _render(request.messages, tools, sampled, renderer)


async def _render(
    messages: Sequence[Message], tools: Sequence[Tool], sampled: Mapping[int, Sequence[int]], renderer: Renderer
) -> list[int]:
    if _is_big(messages):
        return await asyncio.to_thread(renderer.render, messages, tools, sampled)
    return renderer.render(messages, tools, sampled)


def _is_big(messages: Sequence[Message]) -> bool:
    return sum(len(m.content) for m in messages) > _BIG_PROMPT_CHARS
