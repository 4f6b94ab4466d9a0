"""Views: each has one JSON form that JSON can hold, and only they open the store to be read."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.errors import NotFound, StoreError
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Judgement, Message, NextState, Step, Verdict, Version
from openclaw_rl.views.health import CheckResult, Health, read_backlog, read_unscored
from openclaw_rl.views.rows import has_store, open_rows
from openclaw_rl.views.sessions import find_turn, list_sessions, read_conversation
from openclaw_rl.views.tokens import TokenTexts
from openclaw_rl.views.upcoming import UnwrittenLog, next_steps, rehearse
from openclaw_rl.views.versions import find_version, list_steps, list_versions, live_number
from openclaw_rl.views.why import WhyTurn, WhyVersion, read_why
from tests.factories.lessons import HINT, SESSION, fill, settings
from tests.factories.orders import sample
from tests.factories.stored import put_samples, turn_of
from tests.factories.weights import folder_ref

PACKAGE = Path(__file__).parents[3] / "openclaw_rl"
TURN = f"{SESSION}.0"


@pytest.fixture
async def data_dir(tmp_path: Path) -> Path:
    """Version 1 of ann learned from the first turn, and answers."""
    await fill(tmp_path)
    async with await SqliteStore.open(tmp_path) as store:
        step = Step(line="ann", number=1, state="planned", planned_at=1.0, seed=0, parent=0, sample_ids=(TURN,))
        await store.lessons.plan_step(step)
        version = Version(
            line="ann", number=1, parent=0, state="candidate", created_at=1.0, weights=folder_ref("/v1/weights", "ab")
        )
        await store.lessons.finish_step(replace(step, state="done", metrics={"loss/total": 0.25}), version)
        await store.lessons.set_version_state("ann", 1, "live")
    return tmp_path


async def test_who_judged_how_sure_and_why(tmp_path: Path) -> None:
    reasons = (
        "heads: -1 at 0.90",
        "heads: +1 at 0.80",
        "rules: thanks; heads: +0 at 0.60",
        "heads: +1 at 0.50 only; rules: nothing to go by",
        "finding: shell was called again",
        "explicit feedback",
        "the votes tie",
        "rules: thanks; not by heads: they are being loaded",
    )
    async with await SqliteStore.open(tmp_path) as store:
        await put_samples(store, [sample(0)])
        for index, reason in enumerate(reasons, start=1):
            await store.put_turn(turn_of(sample(index)))
            is_sure = reason not in reasons[3:4]
            verdict = Verdict(outcome="scored" if is_sure else "abstained", score=1 if is_sure else None, reason=reason)
            await judge(store, index, verdict)
    found = read_unscored(open_rows(settings(tmp_path).store))
    # The sample's own turn was judged without a reason, as was the tie, by a judge of one part.
    assert found.judges == {"heads": 3, "rules": 3, "findings": 1, "the person": 1, "one": 1}
    assert found.reasons == {reasons[3]: 1}
    assert found.sureness == pytest.approx(0.85)
    assert found.missing == "heads: they are being loaded"


async def judge(store: SqliteStore, index: int, verdict: Verdict) -> None:
    await store.put_next_state(
        NextState(session="s", index=index, messages=(Message(role="user", content="hm"),), arrived_at=float(index))
    )
    (held,) = await store.lessons.lease("judge", limit=1, ttl_s=60.0)
    facts: dict[str, Any] = {"session": "s", "index": index, "num_evidence": 1, "judged_at": 1.0 + index}
    assert await store.lessons.put_judgement(held, Judgement(**facts, judge="one", prompt_version="1", verdict=verdict))


def test_only_views_and_the_store_itself_name_its_reader() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        if "StoreReader" in names:
            found.add(path.relative_to(PACKAGE).parts[0])
    assert found <= {"store", "views", "wiring.py"}


def test_views_know_no_terminal() -> None:
    for path in (PACKAGE / "views").glob("*.py"):
        imported = {
            alias.name.partition(".")[0] if isinstance(node, ast.Import) else (node.module or "").partition(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert not imported & {"rich", "typer", "prompt_toolkit", "sqlite3", "sqlalchemy"}, path.name


def test_every_view_is_json_as_it_is(data_dir: Path) -> None:
    config = settings(data_dir)
    rows = open_rows(config.store)
    why = [
        read_why(
            rows,
            name,
            user=None,
            tokens=TokenTexts(),
            score=lambda *_: {TURN: {"before": [-1.0] * 3, "after": [-0.5] * 3}},
        )
        for name in ("v1.ann", TURN)
    ]
    views = [
        *list_sessions(rows),
        read_conversation(rows, SESSION),
        read_backlog(rows),
        *list_versions(rows),
        *list_steps(rows, rows.steps("ann")),
        *why,
        rehearse(rows, config.training, num_samples=5),
        Health(checks=[CheckResult(name="disk", state="broken", text="full", remedy="free some")]),
    ]
    for view in views:
        told = view.to_json()
        assert json.loads(json.dumps(told)) == told, type(view).__name__
    assert isinstance(why[0], WhyVersion)
    assert isinstance(why[1], WhyTurn)
    assert len(why[0].lessons[0].moved) == len(why[1].moved[TURN]) == 3
    assert views[-1].to_json()["ok"] is False


def test_a_conversation_leads_from_the_answer_to_the_sample(data_dir: Path) -> None:
    rows = open_rows(settings(data_dir).store)
    told = read_conversation(rows, TURN).to_json()
    (turn,) = told["turns"]
    assert turn["judgement"]["hints"] == [HINT]
    assert turn["samples"][0]["response_ids"] == turn["token_ids"]
    assert live_number(rows, "ann") == find_version(rows, "v1.ann", user=None).version.number == 1


async def test_what_comes_next_is_planned_and_nothing_is_written(data_dir: Path) -> None:
    rows = open_rows(settings(data_dir).store)
    asked: list[str] = []

    async def plan(log: UnwrittenLog, line: str) -> Step | None:
        asked.append(line)
        return None

    assert next_steps(rows, plan, num_exercises=0) == []
    assert asked == [each.line for each in rows.waiting()] == []


def test_what_is_not_there_is_said_with_what_is(data_dir: Path, tmp_path: Path) -> None:
    rows = open_rows(settings(data_dir).store)
    with pytest.raises(NotFound, match=r"is a session; name one of its turns, such as s-1\.0"):
        find_turn(rows, SESSION)
    with pytest.raises(NotFound, match=r"no turn s-1\.9"):
        find_turn(rows, f"{SESSION}.9")
    with pytest.raises(NotFound, match=r"no version 'v7'; there are v1\.ann"):
        find_version(rows, "v7", user=None)
    empty = settings(tmp_path / "none").store
    assert not has_store(empty)
    with pytest.raises(StoreError, match="there is no store"):
        open_rows(empty)
