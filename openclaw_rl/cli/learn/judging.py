"""`openclaw-rl judge TURN` and `--replay`: stored turns judged again, now, beside what is stored. Stores nothing."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Group
from rich.text import Text

from openclaw_rl.cli.inspect.text import add_reaction, add_row, add_verdict, spoken
from openclaw_rl.cli.screen import ago, make_console, one_line, plain_table, print_json, progress
from openclaw_rl.config import Config
from openclaw_rl.errors import ConfigError, NotFound
from openclaw_rl.judge.evidence import build_evidence
from openclaw_rl.protocols import Judge, ReadStore
from openclaw_rl.types import Evidence, Json, Judgement, Session, Skip, Verdict
from openclaw_rl.views.lessons import LessonView, judgement_json, read_lessons, score_label, verdict_json, verdict_label
from openclaw_rl.views.rows import open_rows
from openclaw_rl.views.sessions import find_session, find_turn
from openclaw_rl.wiring.commands import open_judge

LABELS = ("+1", "0", "−1", "abstained", "failed")
_UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_LISTED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """One turn judged twice: as it is stored, and now."""

    lesson: LessonView
    stored: Judgement
    verdict: Verdict

    @property
    def is_equal(self) -> bool:
        return score_label(self.stored.verdict) == score_label(self.verdict)


def judge_turn(config: Config, name: str, *, as_json: bool) -> None:
    """Judge one stored turn and print what the judge says, uncut."""
    rows = open_rows(config.store)
    session, index = find_turn(rows, name)
    (lesson,) = read_lessons(rows, session.id, index)
    evidence = _evidence(config, lesson)
    if evidence is None:
        raise NotFound(f"nothing that counts as feedback has followed {lesson.record.turn.id} yet")
    _check_private(config, session, lesson)
    judge, verdict, seconds = asyncio.run(_ask_once(config, evidence))
    if as_json:
        print_json(_turn_json(lesson, judge, verdict))
        return
    console = make_console()
    console.print(_turn_text(lesson, judge, verdict, seconds, limit=None), soft_wrap=True)


def replay(
    config: Config,
    *,
    session: str | None,
    user: str | None,
    since: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Judge again what is judged, and print how far both agree."""
    lessons = _judged(open_rows(config.store), session=session, user=user, since=_since(since), limit=limit)
    if not lessons:
        raise NotFound("there is no judged turn in this range; `openclaw-rl inspect SESSION` shows what is judged")
    name, pairs = asyncio.run(_judge_all(config, lessons, show=not as_json))
    if not pairs:
        raise NotFound("nothing that followed these turns counts as feedback any more (rollout.message_classification)")
    if as_json:
        print_json(replay_json(name, pairs))
        return
    console = make_console()
    console.print(replay_text(name, pairs, width=console.width))


def replay_json(name: str, pairs: Sequence[Again]) -> dict[str, Json]:
    """`table[stored][new]` counts turns; `share_hint_equal` is about whether there is a hint at all."""
    table = _count(pairs)
    return {
        "judge": name,
        "num_turns": len(pairs),
        "share_equal": sum(pair.is_equal for pair in pairs) / len(pairs),
        "share_hint_equal": sum(_same_hint(pair) for pair in pairs) / len(pairs),
        "table": {_plain(stored): {_plain(new): table[stored, new] for new in LABELS} for stored in LABELS},
        "differences": [
            {
                "turn": pair.stored.turn_id,
                "stored": judgement_json(pair.stored),
                "new": verdict_json(pair.verdict),
            }
            for pair in pairs
            if not pair.is_equal
        ],
    }


def replay_text(name: str, pairs: Sequence[Again], *, width: int) -> Group:
    """How often each stored verdict became which one now, and where they differ."""
    counts, num_equal = _count(pairs), sum(pair.is_equal for pair in pairs)
    shown = [label for label in LABELS if any(label in key for key in counts)]
    table = plain_table("stored \\ now", *shown, right=shown)
    for stored in shown:
        cells = [(counts[stored, new], stored == new) for new in shown]
        table.add_row(stored, *(Text(str(n) if n else "·", _cell_style(n, same)) for n, same in cells))
    hints = sum(map(_same_hint, pairs)) / len(pairs)
    summary = Text.assemble(
        (f"\n{num_equal} of {len(pairs)} equal ({num_equal / len(pairs):.1%})", "bold"),
        (f"; a hint or none: {hints:.1%} equal. Judged now by {name}; nothing was stored.", "dim"),
    )
    return Group(table, summary, *_differences([pair for pair in pairs if not pair.is_equal], width=width))


def _differences(pairs: Sequence[Again], *, width: int) -> list[Text]:
    lines = []
    for pair in pairs[:_LISTED]:
        labels = f"{score_label(pair.stored.verdict)} → {score_label(pair.verdict)}"
        state = pair.lesson.record.next_state
        said = spoken(state.messages[-1]) if state else pair.lesson.record.feedback[-1].text
        head = f"{pair.stored.turn_id}  {labels}  "
        lines.append(Text.assemble((f"{pair.stored.turn_id}  ", "dim"), (f"{labels}  ", "yellow")))
        lines[-1].append(one_line(said, max(20, width - len(head))))
    if len(pairs) > _LISTED:
        lines.append(Text(f"… and {len(pairs) - _LISTED} more; --json has all", "dim"))
    return [Text(), *lines] if lines else []


def _plain(label: str) -> str:
    """A label as programs spell it."""
    return label.replace("−", "-")


def _cell_style(count: int, same: bool) -> str:
    return "dim" if not count else "green" if same else "yellow"


def _count(pairs: Sequence[Again]) -> Counter[tuple[str, str]]:
    return Counter((score_label(pair.stored.verdict), score_label(pair.verdict)) for pair in pairs)


def _same_hint(pair: Again) -> bool:
    return bool(pair.stored.verdict.hints) == bool(pair.verdict.hints)


def _judged(
    rows: ReadStore, *, session: str | None, user: str | None, since: float, limit: int | None
) -> list[LessonView]:
    """The judged turns of the range, the one judged last at the end."""
    sessions = [summary.session for summary in rows.sessions(user)]
    if session is not None:
        sessions = [find_session(rows, session, user=user)[0]]
    found = [
        (one.id, judgement.index, judgement.judged_at)
        for one in sessions
        if not one.opted_out
        for judgement in rows.judgements(one.id)
        if judgement.judged_at >= since
    ]
    wanted = sorted(found, key=lambda place: place[2])[-limit:] if limit else sorted(found, key=lambda place: place[2])
    by_turn = {
        (name, lesson.record.turn.index): lesson
        for name in {name for name, _, _ in wanted}
        for lesson in read_lessons(rows, name)
        if lesson.judgement is not None and lesson.record.turn.skip is not Skip.OPTED_OUT
    }
    return [by_turn[name, index] for name, index, _ in wanted if (name, index) in by_turn]


async def _ask_once(config: Config, evidence: Evidence) -> tuple[Judge, Verdict, float]:
    async with open_judge(config) as judge:
        started = time.perf_counter()
        verdict = await judge.judge(evidence)
        return judge, verdict, time.perf_counter() - started


async def _judge_all(config: Config, lessons: Sequence[LessonView], *, show: bool) -> tuple[str, list[Again]]:
    """As many at once as the settings allow, with a bar on standard error."""
    gate = asyncio.Semaphore(config.evaluation.judge_concurrency)
    async with open_judge(config) as judge:
        with progress(show=show) as bar:
            row = bar.add_task("judging", total=len(lessons))

            async def again(lesson: LessonView) -> Again | None:
                evidence = _evidence(config, lesson)
                if evidence is None or lesson.judgement is None:
                    return None  # the settings have changed since: what followed does not count any more
                async with gate:
                    verdict = await judge.judge(evidence)
                bar.advance(row)
                return Again(lesson=lesson, stored=lesson.judgement, verdict=verdict)

            async with asyncio.TaskGroup() as tasks:
                judged = [tasks.create_task(again(lesson)) for lesson in lessons]
        pairs = [task.result() for task in judged]
        return judge.name, [pair for pair in pairs if pair is not None]


def _evidence(config: Config, lesson: LessonView) -> Evidence | None:
    record = lesson.record
    return build_evidence(
        record.turn,
        record.next_state,
        record.feedback,
        main_line=config.rollout.message_classification.main_line,
        side=config.rollout.message_classification.side,
        max_chars=config.evaluation.judge_history_chars,
    )


def _check_private(config: Config, session: Session, lesson: LessonView) -> None:
    is_private = session.opted_out or lesson.record.turn.skip is Skip.OPTED_OUT
    if is_private and "endpoint" in config.evaluation.judge:
        turn = lesson.record.turn.id
        raise NotFound(f"{turn} is private: it is sent to no endpoint; judge it here, with --judge rules")


def _since(text: str | None) -> float:
    """`2h`, `3d` ago, or a date; in seconds since 1970."""
    if text is None:
        return 0.0
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)", text.strip()):
        return time.time() - float(match[1]) * _UNITS_S[match[2]]
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        raise ConfigError(f"--since {text!r} is no time; write 30min, 2h, 3d, or 2026-01-31") from None


def _turn_text(lesson: LessonView, judge: Judge, verdict: Verdict, seconds: float, *, limit: int | None) -> Text:
    record = lesson.record
    text = Text.assemble((record.turn.id, "bold"), (f"  judged now, in {seconds * 1000:.3g} ms; not stored", "dim"))
    add_row(text, record.turn.messages[-1].role, spoken(record.turn.messages[-1]), limit=limit)
    add_row(text, "assistant", spoken(record.turn.message), limit=limit, style="green")
    add_reaction(text, record, limit=limit)
    add_verdict(text, "judged", judge.name, judge.prompt_version, verdict, limit=limit)
    stored = lesson.judgement
    if stored is None:
        add_row(text, "stored", "nothing yet", limit=limit, style="yellow")
    else:
        same = score_label(stored.verdict) == score_label(verdict)
        told = Text.assemble(
            (verdict_label(stored.verdict), "" if same else "yellow"),
            (f"  by {stored.judge} ({stored.prompt_version}), {ago(time.time() - stored.judged_at)}", "dim"),
        )
        add_row(text, "stored", told, limit=limit)
    return text


def _turn_json(lesson: LessonView, judge: Judge, verdict: Verdict) -> dict[str, Json]:
    return {
        "turn": lesson.record.turn.id,
        "judge": judge.name,
        "prompt_version": judge.prompt_version,
        **verdict_json(verdict),
        "stored": None if lesson.judgement is None else judgement_json(lesson.judgement),
    }
