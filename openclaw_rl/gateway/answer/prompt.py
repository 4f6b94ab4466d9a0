"""A placed request to the exact ids of its prompt.

Ids that were sampled before stay as they were sampled: the prompt is the parent's ids extended by what is new
(a bridge), or, where the client changed something further up, a fresh rendering with the sampled answers spliced in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from openclaw_rl.errors import CONTEXT_LENGTH_EXCEEDED, PromptTooLong, RequestError
from openclaw_rl.gateway.access.shares import AT_ONCE, IsWanted, Shares
from openclaw_rl.gateway.answer.memory import TokenMemory, TurnTokens
from openclaw_rl.gateway.sessions.placement import Placement
from openclaw_rl.protocols import Renderer
from openclaw_rl.render.allowance import allowing
from openclaw_rl.types import Message, Request, Tool

T = TypeVar("T")

_MESSAGE_CHARS = 16
"""What a message costs beside its text."""
_MAX_COUNTED_WINDOWS = 8
"""`count_tokens` goes on counting beyond the window, for clients that ask how much too long a conversation is."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Where prompts are rendered: `user` has his share of the threads, and no more tokens are made than `window`."""

    renderer: Renderer
    shares: Shares
    user: str
    window: int

    async def render(
        self, messages: Sequence[Message], tools: Sequence[Tool], sampled: Mapping[int, Sequence[int]]
    ) -> list[int]:
        """A whole conversation."""
        size = _num_chars(messages) + (AT_ONCE if tools else 0)  # only writing a schema tells how long it is
        return await self._limited(size, lambda: self.renderer.render(messages, tools, sampled))

    async def bridge(self, before: TurnTokens, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int] | None:
        """What a turn is extended by."""
        ids = before.prompt_ids, before.completion_ids
        return await self._limited(_num_chars(messages), lambda: self.renderer.bridge(*ids, messages, tools))

    async def _limited(self, size: int, render: Callable[[], T]) -> T:
        def limited(is_wanted: IsWanted) -> T:
            with allowing(self.window, is_wanted):
                return render()

        try:
            return await self.shares.run(self.user, size, limited)
        except PromptTooLong as error:
            raise _too_long(f"{error.num_tokens} tokens", self.window, " (counting stopped there)") from None


async def build_prompt(
    request: Request, tools: Sequence[Tool], context: bytes, placement: Placement, memory: TokenMemory, desk: Desk
) -> Prompt:
    """Renders a request whose place is known; `tools` are those that the model is to see, `context` names them."""
    ids = await _bridged(request, tools, context, placement, memory, desk)
    if ids is None:
        ids = await _rendered(request, tools, placement, memory, desk)
    if request.tool_choice != "required":
        return Prompt(ids, "", 0, context)
    opening = desk.renderer.prefill_ids(request.forced_tool)
    return Prompt(ids + opening, desk.renderer.prefill(request.forced_tool), len(opening), context)


async def count_prompt(request: Request, desk: Desk) -> int:
    """How many tokens the prompt of a request has that is placed nowhere: answers count as their text is written."""
    far = replace(desk, window=_MAX_COUNTED_WINDOWS * desk.window)
    ids = await far.render(request.messages, seen_tools(request), {})
    opening = desk.renderer.prefill_ids(request.forced_tool) if request.tool_choice == "required" else []
    return len(ids) + len(opening)


def room(prompt: Prompt, request: Request, context_window: int) -> int:
    """How many tokens the answer may have; a 400 if the prompt leaves none."""
    left = context_window - len(prompt.ids)
    if left < 1:
        raise _too_long(f"{len(prompt.ids)} tokens", context_window)
    return min(request.sampling.max_tokens, left)


def _too_long(size: str, window: int, note: str = "") -> RequestError:
    return RequestError(
        # These words are what clients look for before they make a conversation shorter.
        f"prompt is too long: {size} > {window} maximum{note}, answer included; "
        "shorten the conversation or serve a model with a larger window",
        param="messages",
        code=CONTEXT_LENGTH_EXCEEDED,
    )


async def _bridged(
    request: Request, tools: Sequence[Tool], context: bytes, placement: Placement, memory: TokenMemory, desk: Desk
) -> list[int] | None:
    parent, position = placement.parent, placement.parent_position
    if parent is None or position is None or not placement.extends_parent:
        return None
    tokens = await memory.get(parent.session, parent.index)
    if tokens is None or tokens.context != context:
        return None
    return await desk.bridge(tokens, request.messages[position + 1 :], tools)


async def _rendered(
    request: Request, tools: Sequence[Tool], placement: Placement, memory: TokenMemory, desk: Desk
) -> list[int]:
    sampled = {}
    for position, known in placement.answered.items():
        tokens = await memory.get(known.session, known.index)
        if tokens is not None:
            sampled[position] = tokens.answer_ids
    return await desk.render(request.messages, tools, sampled)


def _num_chars(messages: Sequence[Message]) -> int:
    """How much there is to go through."""
    said = sum(len(m.content) + len(m.reasoning) + sum(len(c.arguments) for c in m.tool_calls) for m in messages)
    return said + _MESSAGE_CHARS * len(messages)
