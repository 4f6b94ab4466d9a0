"""Conversations, reactions and verdicts, and how they get into a store: what credit works on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from openclaw_rl.config import RolloutConfig, TrainingConfig
from openclaw_rl.config.presets import preset_defaults
from openclaw_rl.credit.registry import CreditSettings
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import (
    Credit,
    Feedback,
    FinishReason,
    Judgement,
    Message,
    NextState,
    Sampling,
    Score,
    Session,
    ToolCall,
    Turn,
    Verdict,
    Vote,
)
from tests.factories.turns import SESSION, make_session
from tests.factories.turns import make_turn as make_plain_turn

USER, MODEL = "ann", "smollm2#0"
HINT = "Answer more briefly."
CALL = Message(role="assistant", tool_calls=(ToolCall(id="c1", name="ls", arguments="{}"),))


def settings(min_turns: int = 1, session_aware: bool = True, **training: Any) -> CreditSettings:
    rollout = RolloutConfig(min_turns=min_turns, session_aware=session_aware)
    preset = preset_defaults({f"training.{name}": value for name, value in training.items()})
    moved = {key.removeprefix("training."): value for key, value in preset.items()}
    return CreditSettings.of(TrainingConfig(**{**moved, **training}), rollout)


def make_turn(
    index: int = 0, *, token_ids: Sequence[int] = (11, 12, 2), finish: FinishReason = "stop", **changes: Any
) -> Turn:
    """A turn that continues nothing."""
    values: dict[str, Any] = {
        "model": MODEL,
        "messages": (Message(role="user", content="Write a note to the landlord."),),
        "sampling": Sampling(max_tokens=64, temperature=0.7),
        "prompt_ids": (1, 9690, 198, index),
        "message": Message(role="assistant", content=f"answer {index}"),
        **changes,
    }
    return make_plain_turn(index, token_ids=token_ids, finish_reason=finish, **values)


def make_child(parent: Turn, said: str | Sequence[Message], *, index: int | None = None, **changes: Any) -> Turn:
    """The turn that answers what was said after another one; its prompt goes on from there."""
    index = parent.index + 1 if index is None else index
    new = (Message(role="user", content=said),) if isinstance(said, str) else tuple(said)
    child = make_turn(
        index,
        parent=parent.index,
        messages=(*parent.messages, parent.message, *new),
        prompt_ids=(*parent.prompt_ids, *parent.completion.token_ids, 198, 1, 7000 + index),
        token_ids=(20 + index, 21 + index, 2),
    )
    return replace(child, **changes)


def reaction(turn: Turn, child: Turn) -> NextState:
    following = child.messages[len(turn.messages) + 1 :]
    return NextState(session=turn.session, index=turn.index, messages=following, arrived_at=200.0)


def scored(score: Score, *hints: str, votes: tuple[Vote, ...] = ()) -> Verdict:
    return Verdict(outcome="scored", score=score, hints=hints, votes=votes)


def abstained(*hints: str, reason: str = "the votes tie") -> Verdict:
    return Verdict(outcome="abstained", reason=reason, hints=hints)


def failed(*hints: str) -> Verdict:
    return Verdict(outcome="failed", reason="no valid vote", hints=hints)


async def put_conversation(store: SqliteStore, turns: Sequence[Turn], session: Session | None = None) -> None:
    """The session, its turns, and what each of them was followed by."""
    await store.put_session(session or make_session(turns[0].session))
    for turn in turns:
        await store.put_turn(turn)
    for child in turns:
        parent = next((turn for turn in turns if turn.index == child.parent), None)
        if parent is not None:
            await store.put_next_state(reaction(parent, child))


async def thumb(store: SqliteStore, index: int, given_at: float = 300.0) -> None:
    """A person likes a turn: more evidence."""
    await store.put_feedback(Feedback(session=SESSION, index=index, user=USER, given_at=given_at, score=1))


async def judge(store: SqliteStore, verdicts: dict[int, Verdict], session: str = SESSION) -> None:
    """Gives these verdicts on all evidence that there is of these turns, thumbs included; and closes other tasks."""
    for held in await store.lessons.lease("judge", limit=100, ttl_s=60.0):
        if held.session != session or held.index not in verdicts:
            await store.lessons.close_task(held)
            continue
        judgement = Judgement(
            session=session,
            index=held.index,
            num_evidence=held.num_evidence,
            judge="hand",
            prompt_version="hand-1",
            judged_at=time.time(),
            verdict=verdicts[held.index],
        )
        assert await store.lessons.put_judgement(held, judgement)


async def credits_of(store: SqliteStore, session: str = SESSION) -> dict[int, Credit]:
    return {credit.index: credit for credit in await store.lessons.credits(session)}
