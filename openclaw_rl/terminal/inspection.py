"""`openclaw-rl inspect`: the turns of one session and what was learned from them, as text or as JSON. Only looks."""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from rich.text import Text

from openclaw_rl.config import Config
from openclaw_rl.errors import OpenClawError
from openclaw_rl.gateway.rollouts import turn_json
from openclaw_rl.store import StoreReader
from openclaw_rl.terminal.backlog import backlog_text, read_backlog
from openclaw_rl.terminal.lesson_text import (
    add_credit,
    add_sample,
    add_verdict,
    credit_json,
    judgement_json,
    sample_json,
)
from openclaw_rl.terminal.listing import session_json
from openclaw_rl.terminal.screen import make_console, print_json
from openclaw_rl.terminal.tokens import TokenTexts
from openclaw_rl.terminal.turn_text import add_row, room, session_text, turn_text
from openclaw_rl.types import Credit, Json, Judgement, Session, TurnRecord, split_turn_id, turn_id


class NotFound(OpenClawError):
    """What was asked for is not in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A turn, what followed it, and what became of that."""

    record: TurnRecord
    judgement: Judgement | None
    credit: Credit | None


def show_session(config: Config, name: str, *, index: int | None, as_json: bool) -> None:
    """Print a session's turns, or one of them. `name` is a session, the start of one, or a turn (`SESSION.INDEX`)."""
    reader = StoreReader.open(config.store.data_dir, config.store.url)
    session, named_index = find_session(name, [summary.session for summary in reader.sessions()])
    index = named_index if index is None else index
    lessons = read_lessons(reader, session.id, index)
    backlog = read_backlog(reader)
    if as_json:
        turns = [lesson_json(each) for each in lessons]
        print_json({**session_json(session), "learning": backlog.to_json(), "turns": turns})
        return
    console, now = make_console(), time.time()
    console.print(session_text(session, now=now), soft_wrap=True)
    console.print(backlog_text(backlog), soft_wrap=True, end="")
    limit = room(console.width if index is None else None)
    tokens = TokenTexts.find(config.model) if any(each.credit and each.credit.samples for each in lessons) else None
    for each in lessons:
        console.print(lesson_text(each, tokens or TokenTexts(), now=now, limit=limit), soft_wrap=True)


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


def read_lessons(reader: StoreReader, session: str, index: int | None) -> list[Lesson]:
    """All turns of a session with what became of them, or the one at `index`."""
    records = [record for record in reader.records(session) if index in (None, record.turn.index)]
    if index is not None and not records:
        raise NotFound(f"there is no turn {turn_id(session, index)}; `openclaw-rl inspect {session}` shows all")
    judgements = {judgement.index: judgement for judgement in reader.judgements(session)}
    came_to = {credit.index: credit for credit in reader.credits(session)}
    return [
        Lesson(
            record=record,
            judgement=judgements.get(record.turn.index),
            credit=came_to.get(record.turn.index),
        )
        for record in records
    ]


def lesson_text(lesson: Lesson, tokens: TokenTexts, *, now: float, limit: int | None) -> Text:
    """A turn, its next state, the votes and hints, and the sample or the reason why there is none."""
    record, judgement, credit = lesson.record, lesson.judgement, lesson.credit
    text = turn_text(record, now=now, limit=limit)
    if judgement is not None:
        add_verdict(text, "judged", judgement.judge, judgement.prompt_version, judgement.verdict, limit=limit)
    elif record.turn.skip is None and (record.next_state is not None or record.feedback):
        add_row(text, "judged", "not yet", limit=limit, style="yellow")
    if credit is not None:
        add_credit(text, credit, limit=limit)
        for sample in credit.samples:
            add_sample(text, sample, tokens.texts(sample.response_ids, record.turn.model), limit=limit)
    elif judgement is not None:
        add_row(text, "sample", "not yet", limit=limit, style="yellow")
    return text


def lesson_json(lesson: Lesson) -> dict[str, Json]:
    """A turn as `inspect --json` writes it; what is not there yet is null."""
    credit = lesson.credit
    return {
        **turn_json(lesson.record),
        "judgement": None if lesson.judgement is None else judgement_json(lesson.judgement),
        "credit": None if credit is None else credit_json(credit),
        "samples": [] if credit is None else [sample_json(sample) for sample in credit.samples],
    }
