"""Conversations, a part at a time: who talked, and each turn with what became of it."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import Feedback, Message, Session, SessionSummary, Skip, TurnTrace, hint_in, line_of
from openclaw_rl.views.page.conversations import (
    CallText,
    ChatTurn,
    ConversationDetail,
    ConversationPage,
    ConversationRow,
    Given,
    SaidText,
)
from openclaw_rl.views.page.lines import LineHistory
from openclaw_rl.views.page.paging import Paging, first_part, place
from openclaw_rl.views.page.tracing import correction, read_histories

_TITLE_CHARS = 80


def list_conversations(rows: ReadStore, line: str | None, paging: Paging) -> ConversationPage:
    """Of a line, or of all; the one seen last first."""
    key = paging.key(float, str)
    after = None if key is None else (float(str(key[0])), str(key[1]))
    part = rows.session_part(line, after=after, limit=paging.limit + 1, talks_only=True)
    found, has_more = first_part(part, paging.limit)
    titles = rows.openings([one.session.id for one in found])
    last = found[-1].session if found and has_more else None
    return ConversationPage(
        items=tuple(_row(one, titles.get(one.session.id, "")) for one in found),
        next=None if last is None else place(last.last_seen_at, last.id),
    )


def read_conversation_part(rows: ReadStore, session: Session, paging: Paging) -> ConversationDetail:
    """The newest turns, or those before one of them."""
    key = paging.key(int)
    before = None if key is None else int(str(key[0]))
    found = rows.glimpses(session.id, before=before, limit=paging.limit + 1)
    has_more = len(found) > paging.limit
    found = found[-paging.limit :]
    (summary,) = rows.session_summaries([session])
    return ConversationDetail(
        session=_row(summary, rows.openings([session.id]).get(session.id, "")),
        turns=tuple(read_turns(rows, [(one.session, one.index) for one in found])),
        next=place(found[0].index) if has_more and found else None,
    )


def read_turns(rows: ReadStore, turns: Sequence[tuple[str, int]]) -> list[ChatTurn]:
    """These, of those that are there, each with what became of it."""
    traces = rows.traces(turns)
    histories = read_histories(rows, traces.values())
    return [_turn(trace, histories[line_of(trace.session)]) for name in turns if (trace := traces.get(name))]


def said_text(message: Message) -> SaidText:
    return SaidText(
        role=message.role,
        text=message.content,
        thinking=message.reasoning,
        calls=tuple(CallText(name=one.name, arguments=one.arguments) for one in message.tool_calls),
    )


def title_of(words: str) -> str:
    """The first line of it, not too long."""
    line = next((one.strip() for one in words.splitlines() if one.strip()), "")
    return line if len(line) <= _TITLE_CHARS else line[: _TITLE_CHARS - 1].rstrip() + "…"


def _row(summary: SessionSummary, opening: str) -> ConversationRow:
    session = summary.session
    return ConversationRow(
        id=session.id,
        title=title_of(opening),
        user=session.user,
        client=session.client,
        opened_at=session.opened_at,
        last_seen_at=session.last_seen_at,
        is_closed=session.closed_at is not None,
        is_private=session.opted_out,
        num_turns=summary.main_turns,
        versions=summary.versions,
    )


def _turn(trace: TurnTrace, history: LineHistory) -> ChatTurn:
    turn = trace.turn
    return ChatTurn(
        id=turn.id,
        index=turn.index,
        parent=turn.parent,
        kind=turn.kind,
        asked=tuple(map(said_text, turn.asked)),
        answer=said_text(turn.answer),
        version=turn.versions[-1] if turn.versions else "",
        versions=turn.versions,
        finish_reason=turn.finish_reason,
        num_tokens=turn.num_sampled,
        created_at=turn.created_at,
        finished_at=turn.finished_at,
        is_private=trace.session.opted_out or turn.skip is Skip.OPTED_OUT,
        feedback=tuple(map(_given, trace.feedback)),
        correction=correction(trace, history) if trace.is_heard else None,
    )


def _given(one: Feedback) -> Given:
    return Given(user=one.user, at=one.given_at, score=one.score, text=hint_in(one.text) or one.text)
