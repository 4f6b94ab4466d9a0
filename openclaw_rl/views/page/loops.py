"""The loop as stages with a light each, the judge, the environments, and what `doctor` would remark: from the store.

What runs (engine, trainer, disk) is told by whoever has it.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.config import Config
from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import TRACES_LEFT, Judgement, StageTally, Step, Version, Waiting
from openclaw_rl.views.checks import check_judge, check_learning, check_store
from openclaw_rl.views.health import Backlog, CheckResult, Unscored, read_backlog, unscored_of
from openclaw_rl.views.page.machine import EnvironmentTold, JudgeTold, Light, LoopStage, Remark

HOUR_S = 3600.0
_JUDGED = 100
"""Turns that were talked about last, whose verdicts tell of the judge."""


def read_stages(
    rows: ReadStore, line: str | None, config: Config, *, now: float, learns: bool
) -> tuple[LoopStage, ...]:
    """Of a line, or of all."""
    since, backlog = now - HOUR_S, read_backlog(rows)
    versions = rows.versions(line)
    waiting = [one for one in rows.waiting() if line in (None, one.line)]
    steps = rows.steps_since(line, since)
    return (
        LoopStage(
            name="captured",
            light="ok",
            words="every turn is recorded",
            num_waiting=0,
            oldest_s=None,
            num_last_hour=rows.captured(line, since=since),
        ),
        _worked("judged", rows.tally("judge", line, since=since), backlog.paused, now=now, learns=learns),
        _worked("credited", rows.tally("credit", line, since=since), None, now=now, learns=learns),
        _trained(waiting, steps, backlog, config, now=now, learns=learns),
        _checked(versions, now=now),
        _live(versions, now=now),
    )


def read_judge(
    rows: ReadStore, config: Config, *, learns: bool, num_spent: int | None = None
) -> tuple[JudgeTold, Unscored]:
    """Who judges, and how of late; and what `doctor` makes its remark of. `num_spent`: of the daily budget."""
    places = rows.heard_part(None, after=None, limit=_JUDGED)
    traces = rows.traces([(one.session, one.index) for one in places])
    judgements = [one.judgement for one in traces.values() if one.judgement is not None]
    unscored, settings = unscored_of(judgements), config.evaluation
    finding = check_judge(settings.judge, unscored)
    paused = rows.flag("judge.paused")
    light: Light = "off" if not learns else "broken" if paused is not None else "ok"
    told = JudgeTold(
        light=light,
        words=paused or finding.text,
        judge=", ".join(settings.judge),
        judges=dict(unscored.judges),
        num_judged=unscored.num_judged,
        agreement=agreement(judgements),
        sureness=unscored.sureness,
        budget=settings.judge_daily_budget,
        spent=num_spent,
    )
    return told, unscored


def agreement(judgements: Sequence[Judgement]) -> float | None:
    """The share of votes for a score that are the verdict, where a verdict has at least two of them."""
    fitting = votes = 0
    for one in judgements:
        scores = [vote.score for vote in one.verdict.votes if vote.question == "score" and vote.score is not None]
        if len(scores) > 1 and one.verdict.score is not None:
            votes += len(scores)
            fitting += scores.count(one.verdict.score)
    return fitting / votes if votes else None


def read_environments(rows: ReadStore) -> tuple[EnvironmentTold, ...]:
    return tuple(
        EnvironmentTold(
            name=one.environment,
            num_episodes=one.num_episodes,
            num_failed=one.num_failed,
            success=one.reward,
            last_at=one.last_at,
        )
        for one in rows.episode_tallies()
    )


def read_remarks(rows: ReadStore, config: Config, unscored: Unscored) -> list[CheckResult]:
    """Of the store, the judge and learning, as `doctor` tells them."""
    return [
        check_store("", has_traces=rows.flag(TRACES_LEFT) is not None),
        check_judge(config.evaluation.judge, unscored),
        check_learning(read_backlog(rows)),
    ]


def remark_of(found: CheckResult) -> Remark:
    return Remark(name=found.name, state=found.state, text=found.text, remedy=found.remedy)


def _worked(name: str, tally: StageTally, paused: str | None, *, now: float, learns: bool) -> LoopStage:
    light: Light = "busy" if tally.num_waiting else "ok"
    words = f"{tally.num_waiting} at work or waiting" if tally.num_waiting else "nothing waits"
    if paused is not None:
        light, words = "broken", f"paused: {paused}"
    elif not learns:
        light, words = "off", "this server does not learn; the next `openclaw-rl up` takes it up"
    return LoopStage(
        name="judged" if name == "judged" else "credited",
        light=light,
        words=words,
        num_waiting=tally.num_waiting,
        oldest_s=None if tally.since is None else max(0.0, now - tally.since),
        num_last_hour=tally.num_done,
    )


def _trained(
    waiting: Sequence[Waiting], steps: Sequence[Step], backlog: Backlog, config: Config, *, now: float, learns: bool
) -> LoopStage:
    num, oldest = sum(one.num_samples for one in waiting), min((one.since for one in waiting), default=None)
    planned = [one for one in steps if one.state == "planned"]
    light: Light = "waits" if num else "ok"
    words = f"{num} samples wait for a batch of {config.training.batch_size}, or a pause" if num else "nothing waits"
    if backlog.training_paused is not None:
        light, words = "broken", f"paused: {backlog.training_paused}"
    elif not learns:
        light, words = "off", "this server does not learn"
    elif planned:
        light, words = (
            "busy",
            f"step {planned[0].number} of {planned[0].line} with {len(planned[0].sample_ids)} samples",
        )
    return LoopStage(
        name="trained",
        light=light,
        words=words,
        num_waiting=num,
        oldest_s=None if oldest is None else max(0.0, now - oldest),
        num_last_hour=sum(one.state == "done" for one in steps),
    )


def _checked(versions: Sequence[Version], *, now: float) -> LoopStage:
    candidates = [one for one in versions if one.state == "candidate"]
    probation = [one for one in versions if one.state == "live" and one.on_probation]
    oldest = min((one.created_at for one in (*candidates, *probation)), default=None)
    words = "nothing waits"
    if candidates:
        words = f"{candidates[-1].label} is being checked"
    elif probation:
        words = f"{probation[-1].label} answers on probation, until the full check ends"
    return LoopStage(
        name="checked",
        light="busy" if candidates or probation else "ok",
        words=words,
        num_waiting=len(candidates) + len(probation),
        oldest_s=None if oldest is None else max(0.0, now - oldest),
        num_last_hour=sum(
            one.state != "candidate" and one.gate is not None and one.created_at >= now - HOUR_S for one in versions
        ),
    )


def _live(versions: Sequence[Version], *, now: float) -> LoopStage:
    live = [one for one in versions if one.state == "live"]
    times = [one.gate["live_at"] for one in versions if isinstance(one.gate, dict) and "live_at" in one.gate]
    words = ", ".join(one.label for one in live[:5]) + (" …" if len(live) > 5 else "")
    return LoopStage(
        name="live",
        light="ok",
        words=f"{words} answers" if live else "the base model answers",
        num_waiting=0,
        oldest_s=None,
        num_last_hour=sum(float(at) >= now - HOUR_S for at in times),
    )
