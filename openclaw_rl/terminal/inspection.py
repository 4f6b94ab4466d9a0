"""`openclaw-rl inspect`: the turns of one session, as text for people or as one JSON object. Only looks."""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.errors import OpenClawError
from openclaw_rl.store import StoreReader
from openclaw_rl.terminal.listing import session_json
from openclaw_rl.terminal.screen import make_console, print_json
from openclaw_rl.terminal.turn_text import session_text, turn_text
from openclaw_rl.types import Feedback, Json, NextState, Session, Turn, split_turn_id, turn_id


class NotFound(OpenClawError):
    """What was asked for is not in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """A turn and everything that was said after it."""

    turn: Turn
    next_state: NextState | None
    feedback: tuple[Feedback, ...]


def show_session(data_dir: Path, url: str | None, name: str, *, index: int | None, as_json: bool) -> None:
    """Print a session's turns, or one of them. `name` is a session, the start of one, or a turn (`SESSION.INDEX`)."""
    reader = StoreReader.open(data_dir, url)
    session, named_index = find_session(name, [summary.session for summary in reader.sessions()])
    index = named_index if index is None else index
    records = read_turns(reader, session.id, index)
    if as_json:
        print_json({**session_json(session), "turns": [turn_json(record) for record in records]})
        return
    console, now = make_console(), time.time()
    console.print(session_text(session, now=now), soft_wrap=True)
    width = console.width if index is None else None
    for record in records:
        text = turn_text(record.turn, record.next_state, record.feedback, now=now, width=width)
        console.print(text, soft_wrap=True)


def find_session(name: str, sessions: Sequence[Session]) -> tuple[Session, int | None]:
    """The session that `name` means, and the index if it names a turn."""
    exact = [session for session in sessions if name in (session.id, session.key)]
    if exact:
        return exact[0], None
    started = [session for session in sessions if session.id.startswith(name)]
    if len(started) == 1:
        return started[0], None
    with suppress(ValueError):
        of_turn, index = split_turn_id(name)
        of_it = [s for s in sessions if s.id == of_turn] or [s for s in sessions if s.id.startswith(of_turn)]
        if len(of_it) == 1:
            return of_it[0], index
    ids = [session.id for session in started or sessions]
    near = difflib.get_close_matches(name, ids, n=3, cutoff=0.4) or ids[:3]
    hint = f"; near it: {', '.join(near)}" if near else ""
    what = f"{len(started)} sessions start with" if started else "there is no session"
    raise NotFound(f"{what} {name!r}{hint}; `openclaw-rl sessions` lists all")


def read_turns(reader: StoreReader, session: str, index: int | None) -> list[TurnRecord]:
    """All turns of a session with what followed them, or the one at `index`."""
    if index is None:
        turns = reader.turns(session)
    elif (turn := reader.turn(session, index)) is not None:
        turns = [turn]
    else:
        raise NotFound(f"there is no turn {turn_id(session, index)}; `openclaw-rl inspect {session}` shows all")
    states = {state.index: state for state in reader.next_states(session)}
    feedback = reader.feedback(session)
    return [
        TurnRecord(
            turn=turn,
            next_state=states.get(turn.index),
            feedback=tuple(given for given in feedback if given.index == turn.index),
        )
        for turn in turns
    ]


def turn_json(record: TurnRecord) -> dict[str, Json]:
    """A turn as `inspect --json` writes it: `prompt_ids` followed by `token_ids` is exactly what the model saw."""
    turn, completion = record.turn, record.turn.completion
    return {
        "id": turn.id,
        "index": turn.index,
        "parent": None if turn.parent is None else turn_id(turn.session, turn.parent),
        "kind": turn.kind,
        "dialect": turn.dialect,
        "model": turn.model,
        "created_at": turn.created_at,
        "finished_at": turn.finished_at,
        "request": [message.to_json() for message in turn.messages],
        "tools": [tool.to_json() for tool in turn.tools],
        "sampling": turn.sampling.to_json(),
        "stop": list(turn.stop),
        "text": turn.message.content,
        "message": turn.message.to_json(),
        "prompt_ids": list(turn.prompt_ids),
        "num_prefill": turn.num_prefill,
        "token_ids": list(completion.token_ids),
        "logprobs": list(completion.logprobs),
        "version_spans": [{"version": s.version, "start": s.start, "end": s.end} for s in completion.version_spans],
        "finish_reason": completion.finish_reason,
        "delivered": turn.delivered,
        "skip": None if turn.skip is None else turn.skip.value,
        "next_state": None if record.next_state is None else [m.to_json() for m in record.next_state.messages],
        "feedback": [
            {"user": f.user, "given_at": f.given_at, "score": f.score, "text": f.text} for f in record.feedback
        ],
    }
