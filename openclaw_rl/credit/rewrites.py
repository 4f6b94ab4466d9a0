"""Accepted rewrites: what the user kept after asking for a change is also an answer to the request as it was first put.

    turn 3   "Write a note to the landlord."   judged −1, a change was asked for   its prompt is the sample's prompt
    turn 4   "No, shorter please."             judged −1, a change was asked for
    turn 5   "And friendlier."                 judged +1                           its answer is the sample's response

A rule of its own beside the method's (`training.accepted_rewrites`). Not for answers that call a tool or were cut off,
nor across tool results or claims: what the accepted answer knew from them, the first request did not.
"""

from __future__ import annotations

from openclaw_rl.protocols import LearningStore
from openclaw_rl.types import JudgedTurn, NextState, Skip, Turn, Verdict


async def first_request(accepted: JudgedTurn, lessons: LearningStore, model_id: str) -> Turn | None:
    """The turn whose request this answer settled after one or more changes; None if it settled none."""
    if accepted.judgement.verdict.reward != 1 or not _is_plain_answer(accepted.turn, model_id):
        return None
    if accepted.turn.completion.finish_reason == "length":
        return None
    first: Turn | None = None
    child = accepted
    while child.turn.parent is not None and child.before is not None and asks_for_change(child.before):
        parent = await lessons.judged_turn(child.turn.session, child.turn.parent)
        state = await lessons.next_state(child.turn.session, child.turn.parent)
        if parent is None or not _is_plain_answer(parent.turn, model_id) or not _answers(child.turn, state):
            break
        first, child = parent.turn, parent
    return first


def asks_for_change(verdict: Verdict) -> bool:
    """Whether the reaction was a correction, and not just displeasure: then what follows is another try."""
    decided = [vote.score for vote in verdict.votes if vote.question == "hint" and vote.score is not None]
    return verdict.reward == -1 and (bool(verdict.hints) or sum(decided) > 0)


def _is_plain_answer(turn: Turn, model_id: str) -> bool:
    is_whole = turn.skip in (None, Skip.NO_NEXT_STATE) and bool(turn.completion.token_ids)
    is_text = not turn.message.tool_calls and turn.num_prefill == 0
    return turn.kind == "main" and turn.model == model_id and is_whole and is_text


def _answers(child: Turn, state: NextState | None) -> bool:
    """Whether this turn is the reply to the very reaction that was judged, and to nothing but the user's words."""
    if state is None or any(message.role != "user" for message in state.messages):
        return False
    last_answer = max((i for i, message in enumerate(child.messages) if message.role == "assistant"), default=-1)
    following = child.messages[last_answer + 1 :]
    return all(message in following for message in state.messages)
