"""Sessions and turns."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from openclaw_rl.types import (
    Completion,
    FinishReason,
    Message,
    Sampling,
    Session,
    Turn,
    VersionSpan,
)

SESSION = "s-1"


def make_session(name: str = SESSION, **changes: Any) -> Session:
    session = Session(id=name, user="ann", client="curl", opened_at=100.0, last_seen_at=100.0)
    return replace(session, **changes)


def make_turn(
    index: int = 0,
    *,
    session: str = SESSION,
    text: str = "fine",
    token_ids: Sequence[int] = (19556, 17, 2),
    finish_reason: FinishReason = "stop",
    **changes: Any,
) -> Turn:
    """A turn with no parent; `text` and `token_ids` are its answer."""
    spans = (VersionSpan("v0", 0, len(token_ids)),) if token_ids else ()
    turn = Turn(
        session=session,
        index=index,
        parent=None,
        kind="main",
        created_at=100.0 + index,
        finished_at=100.5 + index,
        dialect="chat",
        model="smollm2",
        messages=(Message(role="user", content=f"how are you, {session}?"),),
        tools=(),
        sampling=Sampling(max_tokens=64, temperature=0.7, seed=3),
        prompt_ids=(1, 9690, 198),
        completion=Completion(
            token_ids=tuple(token_ids),
            logprobs=tuple(-0.25 * (i + 1) for i in range(len(token_ids))),
            finish_reason=finish_reason,
            version_spans=spans,
        ),
        message=Message(role="assistant", content=text),
        request_digest=hashlib.sha256(f"request {session} {index}".encode()).hexdigest(),
        chain=hashlib.sha256(f"chain {session} {index}".encode()).hexdigest(),
    )
    return replace(turn, **changes)


def make_conversation(num_turns: int, session: str = SESSION, words: int = 40) -> list[Turn]:
    """Turns that continue each other: each request holds all messages and all ids of the one before."""
    turns: list[Turn] = []
    for index in range(num_turns):
        asked = Message(role="user", content=f"question {index} " * words)
        new_ids = tuple(range(index * 1000, index * 1000 + words))
        if index == 0:
            messages: tuple[Message, ...] = (Message(role="system", content="be kind"), asked)
            prompt_ids = new_ids
        else:
            before = turns[-1]
            messages = (*before.messages, before.message, asked)
            prompt_ids = before.prompt_ids + before.completion.token_ids + new_ids
        turns.append(
            make_turn(
                index,
                session=session,
                parent=index - 1 if index else None,
                messages=messages,
                prompt_ids=prompt_ids,
                text=f"answer {index} " * words,
                token_ids=tuple(range(500_000 + index, 500_000 + index + words)),
            )
        )
    return turns
