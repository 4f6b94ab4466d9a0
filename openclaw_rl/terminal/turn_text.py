"""A session and its turns to lines for a person. Pure: no store, no clock, no screen.

#3 ← #1  main  2 min ago  v0  412 + 31 tokens  stop
  user       make it shorter
  assistant  Gravity pulls things together.
  next       user: thanks!
  feedback   +1 local: just right

What was learned from a turn is in `lesson_text.py`.
"""

from __future__ import annotations

from rich.text import Text

from openclaw_rl.terminal.screen import ago, one_line, printable
from openclaw_rl.types import Message, Session, Turn, TurnRecord

_LABEL = 11
_INDENT = _LABEL + 2
_LEAST = 40


def session_text(session: Session, *, now: float) -> Text:
    """The head line of a session."""
    facts = [session.user, session.client, f"seen {ago(now - session.last_seen_at)}"]
    facts += [f"named {session.key}"] if session.key not in (None, session.id) else []
    facts += ["closed"] if session.closed_at is not None else []
    facts += ["opted out of training"] if session.opted_out else []
    return Text.assemble((session.id, "bold"), "  ", (one_line(" · ".join(facts), 400), "dim"))


def room(width: int | None) -> int | None:
    """How many characters of a row's words fit on a screen; None for no limit."""
    return None if width is None else max(_LEAST, width - _INDENT)


def turn_text(record: TurnRecord, *, now: float, limit: int | None) -> Text:
    """A turn and what followed it: a line of `limit` each, or None for every message of the request, uncut."""
    turn = record.turn
    text = Text("\n")
    text.append_text(_head(turn, now=now))
    asked = turn.messages if limit is None else turn.messages[-1:]
    for message in asked:
        add_row(text, message.role, spoken(message), limit=limit)
    add_row(text, "assistant", spoken(turn.message), limit=limit, style="green")
    add_reaction(text, record, limit=limit)
    return text


def add_reaction(text: Text, record: TurnRecord, *, limit: int | None) -> None:
    """What followed a turn, and what was said about it outright."""
    for message in () if record.next_state is None else record.next_state.messages:
        add_row(text, "next", f"{message.role}: {spoken(message)}", limit=limit, style="dim")
    for given in record.feedback:
        score = "" if given.score is None else f"{given.score:+d} "
        said = f": {given.text}" if given.text else ""
        add_row(text, "feedback", f"{score}{given.user}{said}", limit=limit, style="cyan")


def add_row(text: Text, label: str, words: str | Text, *, limit: int | None, style: str = "") -> None:
    """A label and what it labels; words of our own may come with their colours."""
    text.append(f"\n  {label:<{_LABEL}}", "dim")
    if isinstance(words, Text):
        text.append_text(words)
    elif limit is None:
        text.append(printable(words).replace("\n", "\n" + " " * _INDENT), style)
    else:
        text.append(one_line(words, limit), style)


def spoken(message: Message) -> str:
    """The words and the tool calls of a message."""
    parts = [message.content] if message.content else []
    parts += [f"→ {call.name}({call.arguments})" for call in message.tool_calls]
    return "\n".join(parts)


def _head(turn: Turn, *, now: float) -> Text:
    completion = turn.completion
    # A conversation that just goes on needs no arrow: only a root further down and a branch do.
    came_from = "" if turn.parent == turn.index - 1 else " (root)" if turn.parent is None else f" ← #{turn.parent}"
    came_from = "" if turn.index == 0 else came_from
    parts = [
        ago(now - turn.created_at),
        " → ".join(dict.fromkeys(completion.versions)) or "no version",
        f"{len(turn.prompt_ids)} + {len(completion.token_ids)} tokens",
        completion.finish_reason,
    ]
    head = Text.assemble((f"#{turn.index}{came_from}", "bold"), f"  {turn.kind}", ("  " + "  ".join(parts), "dim"))
    if turn.skip is not None:
        head.append(f"  not trained: {turn.skip.value}", "yellow")
    return head
