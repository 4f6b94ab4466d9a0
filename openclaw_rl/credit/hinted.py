"""An accepted hint to the prompt that a teacher reads: the same conversation with the hint in it.

    after_history   ... <last message> <the hint> <opening of the answer>       shares all but the last few ids
    last_user       ... <last message of the user + the hint> ... <opening>     shares what stands before it

Next to the action a hint follows the user's own words, as if the user had thought of it at once; after a tool's result
it is a message of its own. It stands there bare: of 24 questions the embedded model, told to answer in one sentence,
answers 24 about the matter so, 20 where the hint is a message of its own, and 12 where a preamble asks it to keep the
hint in mind.

The ids that the turn was sampled behind are never made anew. Next to the action only the end of the prompt changes: the
conversation is rendered with and without the hint, and what differs at the end is put in the place of the prompt's own
end. Elsewhere the whole conversation is rendered around the sampled answers, and whatever it has in common with the
prompt at its beginning is shared. A forced tool call opens a hinted prompt's answer too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from openclaw_rl.errors import RequestError
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import Candidate, Message, Role, Turn

Placement = Literal["after_history", "last_user"]

# People's last word is what models heed most; templates that drop old thoughts when the user speaks, or that refuse a
# user after a user, may take the system's.
_ROLES: tuple[Role, ...] = ("user", "system")

_TAG = "[A note on this request]"
"""Stands before a hint in an earlier message of the user, which others follow."""


def asked(text: str, hint: str, renderer: Renderer) -> tuple[tuple[int, ...], Candidate] | None:
    """The prompt of a question that nobody asked before, and the hint behind it; None if the template swallows it."""
    messages = [Message(role="user", content=text)]
    plain, hinted = (tuple(renderer.render(one, (), {})) for one in (messages, _added(messages, 0, hint)))
    num_shared = _num_common(plain, hinted)
    return (
        None
        if plain == hinted
        else (plain, Candidate(hint=hint, num_shared=num_shared, suffix_ids=hinted[num_shared:]))
    )


def unhinted(turn: Turn) -> Candidate:
    """The teacher reads what the student read."""
    return Candidate(hint="", num_shared=len(turn.prompt_ids), suffix_ids=())


def beside_action(turn: Turn, hint: str, renderer: Renderer) -> Candidate | None:
    """The hint right before the answer, by exchanging the end of the prompt; None where that cannot be done exactly."""
    plain = _rendered(turn.messages, turn, renderer, {})
    if plain is None:
        return None
    for ways in _beside(turn.messages, hint):
        rendered = [_rendered(way, turn, renderer, {}) for way in ways]
        exchanged = [_exchanged(turn, plain, ids) for ids in rendered if ids is not None]
        if found := [ids for ids in exchanged if ids is not None]:
            return _candidate(turn, hint, found)
    return None


def _beside(messages: Sequence[Message], hint: str) -> Iterator[list[list[Message]]]:
    """Ways to say it next to the action, the better ones first; of equally good ones any may do."""
    if messages and messages[-1].role == "user":
        yield [_added(messages, len(messages) - 1, hint)]
    yield [[*messages, Message(role=role, content=hint)] for role in _ROLES]


def _exchanged(turn: Turn, plain: tuple[int, ...], hinted: tuple[int, ...]) -> tuple[int, ...] | None:
    """The turn's own prompt with the end of `hinted` in place of its own; None where the ids do not fit together."""
    body = _without_prefill(turn)
    num_same = _num_common(plain, hinted)
    end = plain[num_same:]
    cut = len(body) - len(end)
    if hinted == plain:  # the template has swallowed it
        return None
    # The id before the cut must be the same too: the new end was encoded to follow it.
    fits = cut > 0 and num_same > 0 and body[cut:] == end and body[cut - 1] == plain[num_same - 1]
    return body[:cut] + hinted[num_same:] if fits else None


def in_whole(
    turn: Turn, hint: str, renderer: Renderer, placement: Placement, sampled: Mapping[int, Sequence[int]]
) -> Candidate | None:
    """The hint in a conversation that is rendered anew around its sampled answers; None if no way is accepted."""
    users = [i for i, message in enumerate(turn.messages) if message.role == "user"]
    last_user = _added(turn.messages, users[-1] if users else len(turn.messages) - 1, f"{_TAG}\n{hint}")
    beside = list(_beside(turn.messages, hint)) if placement == "after_history" else []
    plain = _rendered(turn.messages, turn, renderer, sampled)
    for ways in (*beside, [last_user]):
        rendered = [_rendered(way, turn, renderer, sampled) for way in ways]
        if found := [ids for ids in rendered if ids is not None and ids != plain]:
            return _candidate(turn, hint, found)
    return None


def sampled_answers(turn: Turn, turns: Sequence[Turn]) -> dict[int, tuple[int, ...]]:
    """Which messages of a turn's request are answers that were sampled before, and their ids."""
    by_index = {other.index: other for other in turns}
    sampled: dict[int, tuple[int, ...]] = {}
    ancestor = None if turn.parent is None else by_index.get(turn.parent)
    while ancestor is not None:
        at = len(ancestor.messages)
        is_answer = at < len(turn.messages) and turn.messages[at].role == "assistant"
        if is_answer and ancestor.model == turn.model and _spoken(turn.messages[:at]) == _spoken(ancestor.messages):
            sampled[at] = ancestor.answer_ids
        ancestor = None if ancestor.parent is None else by_index.get(ancestor.parent)
    return sampled


def _added(messages: Sequence[Message], at: int, text: str) -> list[Message]:
    """With a paragraph more in one message."""
    longer = replace(messages[at], content=f"{messages[at].content}\n\n{text}")
    return [*messages[:at], longer, *messages[at + 1 :]]


def _rendered(
    messages: Sequence[Message], turn: Turn, renderer: Renderer, sampled: Mapping[int, Sequence[int]]
) -> tuple[int, ...] | None:
    try:
        return tuple(renderer.render(messages, turn.tools, sampled))
    except RequestError:  # this family's template does not take these messages
        return None


def _candidate(turn: Turn, hint: str, found: Sequence[tuple[int, ...]]) -> Candidate:
    """Of several ways to say it, the one that shares most with the prompt; the first of equals."""
    prefill = turn.prompt_ids[len(turn.prompt_ids) - turn.num_prefill :]
    prompts = [ids + prefill for ids in found]
    shared = [_num_common(turn.prompt_ids, ids) for ids in prompts]
    best = shared.index(max(shared))
    return Candidate(hint=hint, num_shared=shared[best], suffix_ids=prompts[best][shared[best] :])


def _without_prefill(turn: Turn) -> tuple[int, ...]:
    return turn.prompt_ids[: len(turn.prompt_ids) - turn.num_prefill]


def _num_common(one: Sequence[int], other: Sequence[int]) -> int:
    differing = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))


def _spoken(messages: Sequence[Message]) -> list[Message]:
    """Without system prompts: clients put clocks into them."""
    return [message for message in messages if message.role != "system"]
