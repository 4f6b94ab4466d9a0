"""What the store and the machine say of themselves -> findings: what `doctor` tells, and what the page shows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from openclaw_rl.views.health import Backlog, CheckResult, Unscored
from openclaw_rl.views.words import size

_UNREAD = "unknown language"
"""How the rules begin their reason for a message that it cannot read; the remedy follows."""


def ok(name: str, text: str, remedy: str = "") -> CheckResult:
    return CheckResult(name=name, state="ok", text=text, remedy=remedy)


def remark(name: str, text: str, remedy: str) -> CheckResult:
    return CheckResult(name=name, state="remark", text=text, remedy=remedy)


def broken(name: str, text: str, remedy: str) -> CheckResult:
    return CheckResult(name=name, state="broken", text=text, remedy=remedy)


def check_disk(name: str, path: Path, *, free: int, needed: int, setting: str) -> CheckResult:
    text = f"{size(free)} free in {path}"
    if free < needed:
        return broken(name, text, f"free {size(needed)} there, or move it with {setting}")
    if free < 2 * needed:
        return remark(name, text, f"it fills up soon; {setting} moves it")
    return ok(name, text)


def check_engines(engines: Sequence[tuple[str, str, str]]) -> CheckResult:
    """Name, health and reason of each of several engines that answer as one."""
    away = [(name, health, reason) for name, health, reason in engines if health != "answers" or reason]
    if not away:
        return ok("engines", f"all {len(engines)} answer")
    told = "; ".join(f"{name}: {health}{f' ({reason})' if reason else ''}" for name, health, reason in away)
    num = sum(health == "answers" for _, health, _ in engines)
    return remark("engines", f"{num} of {len(engines)} answer; {told}", "wait, or look into run/log.jsonl")


def check_judge(judges: Sequence[str], unscored: Unscored | None) -> CheckResult:
    """Who judges and who judged, and what they could not read; `unscored` None: there is no store yet."""
    names = ", ".join(judges)
    if unscored is None or not unscored.num_judged:
        return ok("judge", names)
    text = f"{names}; of the last {unscored.num_judged} judged turns"
    unread = {reason: count for reason, count in unscored.reasons.items() if f"{_UNREAD}: " in reason}
    if unread:
        remedy = next(iter(unread)).partition(f"{_UNREAD}: ")[2]
        return remark("judge", f"{text} {sum(unread.values())}: {_UNREAD}", remedy)
    by = ", ".join(f"{count} by {judge}" for judge, count in unscored.judges.items())
    by += "" if unscored.sureness is None else f"; heads are sure by {unscored.sureness:.2f} on average"
    missing = f"; not by {unscored.missing}" if unscored.missing else ""
    return ok("judge", f"{text} {by}{missing}" if by else names)


def check_store(damage: str, *, has_traces: bool) -> CheckResult:
    """`has_traces`: something was deleted, and its bytes are not all gone."""
    if damage:
        text, _, remedy = damage.rpartition(": ")
        return broken("store", text, remedy)
    if has_traces:
        text = "bytes of deleted conversations are left in its files"
        return remark(
            "store", text, "a running server erases them as soon as nobody reads; `openclaw-rl up` starts one"
        )
    return ok("store", "nothing of what was deleted is left in its files")


def check_learning(backlog: Backlog | None, problem: str = "") -> CheckResult:
    """`backlog` None: there is no store yet, or `problem` says why this release cannot read it, and what to do."""
    if problem:
        text, _, remedy = problem.rpartition(": ")
        return remark("learning", text, remedy)
    if backlog is None:
        return ok("learning", "nothing to learn from yet")
    if backlog.paused is not None:
        remedy = "`openclaw-rl judge --replay` compares the judge with what it said before; it is tried again"
        return remark("learning", f"paused: {backlog.paused}", f"look at the judge: {remedy}")
    if backlog.training_paused is not None:
        text = f"training is paused: {backlog.training_paused}"
        return remark("learning", text, "it is tried again; run/log.jsonl has more")
    return ok("learning", backlog.waiting or "every reaction is judged")
