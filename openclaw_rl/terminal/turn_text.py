"""A session and its turns to lines for a person. Pure: no store, no clock, no screen.

#3 ← #1  main  2 min ago  v0  412 + 31 tokens  stop
  user       make it shorter
  assistant  Gravity pulls things together.
  next       user: thanks!
  feedback   +1 local: just right
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from openclaw_rl.terminal.screen import ago, one_line, printable
from openclaw_rl.types import Feedback, Message, NextState, Session, Turn

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


def turn_text(
    turn: Turn, next_state: NextState | None, feedback: Sequence[Feedback], *, now: float, width: int | None
) -> Text:
    """A turn and what followed it: a line of `width` each, or None for every message of the request, uncut."""
    limit = None if width is None else max(_LEAST, width - _INDENT)
    text = Text("\n")
    text.append_text(_head(turn, now=now))
    asked = turn.messages if limit is None else turn.messages[-1:]
    for message in asked:
        _add(text, message.role, _words(message), limit=limit)
    _add(text, "assistant", _words(turn.message), limit=limit, style="green")
    for message in () if next_state is None else next_state.messages:
        _add(text, "next", f"{message.role}: {_words(message)}", limit=limit, style="dim")
    for given in feedback:
        score = "" if given.score is None else f"{given.score:+d} "
        said = f": {given.text}" if given.text else ""
        _add(text, "feedback", f"{score}{given.user}{said}", limit=limit, style="cyan")
    return text


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


def _words(message: Message) -> str:
    parts = [message.content] if message.content else []
    parts += [f"→ {call.name}({call.arguments})" for call in message.tool_calls]
    return "\n".join(parts)


def _add(text: Text, label: str, words: str, *, limit: int | None, style: str = "") -> None:
    shown = printable(words).replace("\n", "\n" + " " * _INDENT) if limit is None else one_line(words, limit)
    text.append(f"\n  {label:<{_LABEL}}", "dim")
    text.append(shown, style)
