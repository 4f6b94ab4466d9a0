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

_SHORT = 160
_LABEL = 11


def session_text(session: Session, *, now: float) -> Text:
    """The head line of a session."""
    facts = [session.user, session.client, f"seen {ago(now - session.last_seen_at)}"]
    facts += [f"named {session.key}"] if session.key not in (None, session.id) else []
    facts += ["closed"] if session.closed_at is not None else []
    facts += ["opted out of training"] if session.opted_out else []
    return Text.assemble((session.id, "bold"), "  ", (one_line(" · ".join(facts), 400), "dim"))


def turn_text(
    turn: Turn, next_state: NextState | None, feedback: Sequence[Feedback], *, now: float, whole: bool
) -> Text:
    """A turn and what followed it. `whole` shows every message of the request, uncut."""
    text = Text("\n")
    text.append_text(_head(turn, now=now))
    asked = turn.messages if whole else turn.messages[-1:]
    for message in asked:
        _add(text, message.role, _words(message), whole=whole)
    _add(text, "assistant", _words(turn.message), whole=whole, style="green")
    for message in () if next_state is None else next_state.messages:
        _add(text, "next", f"{message.role}: {_words(message)}", whole=whole, style="dim")
    for given in feedback:
        score = "" if given.score is None else f"{given.score:+d} "
        said = f": {given.text}" if given.text else ""
        _add(text, "feedback", f"{score}{given.user}{said}", whole=whole, style="cyan")
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


def _add(text: Text, label: str, words: str, *, whole: bool, style: str = "") -> None:
    shown = printable(words).replace("\n", "\n" + " " * (_LABEL + 2)) if whole else one_line(words, _SHORT)
    text.append(f"\n  {label:<{_LABEL}}", "dim")
    text.append(shown, style)
