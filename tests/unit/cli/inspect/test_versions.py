"""`versions`: what was learned, which of it answers, and a word where training stands still."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from openclaw_rl.cli.admin import NoServer
from openclaw_rl.cli.doctor.checks import check_learning
from openclaw_rl.cli.inspect.versions import roll_back, show_version, show_versions
from openclaw_rl.errors import ConfigError
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.types import TRAINING_PAUSED, Step, Version, VersionSpan
from openclaw_rl.views.health import read_backlog
from tests.factories.lessons import settings
from tests.factories.orders import sample
from tests.factories.stored import put_samples
from tests.factories.weights import folder_ref

CAPS = pytest.CaptureFixture[str]


async def add(store: SqliteStore, number: int, *, state: str = "candidate") -> None:
    planned = Step(line="local", number=number, state="planned", planned_at=1.0, seed=0, parent=0, sample_ids=())
    await store.lessons.plan_step(planned)
    step = Step(
        line="local",
        number=number,
        state="done",
        planned_at=1.0,
        seed=0,
        parent=0,
        sample_ids=(),
        metrics={"loss/total": 0.25},
    )
    version = Version(
        line="local",
        number=number,
        parent=0,
        state="candidate",
        created_at=1.0,
        weights=folder_ref(f"/v{number}", "ab"),
    )
    assert await store.lessons.finish_step(step, version)
    await store.lessons.set_version_state("local", number, state, reason="too far" if state == "rejected" else "")  # type: ignore[arg-type]


async def test_every_version_is_listed_the_newest_first(tmp_path: Path, capsys: CAPS) -> None:
    async with await SqliteStore.open(tmp_path) as store:
        await add(store, 1, state="live")
        await add(store, 2, state="rejected")
    config = settings(tmp_path).store
    show_versions(config, user=None, as_json=False)
    shown = capsys.readouterr()
    rows = [line.split() for line in shown.out.splitlines()]
    assert [(row[0], row[2]) for row in rows[1:]] == [("v2", "rejected"), ("v1", "live")]
    assert ("too far" in shown.out, "+0.250" in shown.out, shown.err) == (True, True, "")
    show_versions(config, user="local", as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [(one["version"], one["state"], one["metrics"]) for one in found] == [
        ("v1", "live", {"loss/total": 0.25}),
        ("v2", "rejected", {"loss/total": 0.25}),
    ]


async def test_versions_of_another_model_say_whose_they_are(tmp_path: Path, capsys: CAPS) -> None:
    async with await SqliteStore.open(tmp_path) as store:
        await store.lessons.run_with("one#1")
        await add(store, 1, state="live")
        await store.lessons.run_with("two#2")
        await add(store, 2, state="no_effect")
    config = settings(tmp_path).store
    show_versions(config, user=None, as_json=False)
    rows = capsys.readouterr().out.splitlines()
    assert ["no effect" in rows[1], "live for one" in rows[2], "two" in rows[1]] == [True, True, False]
    show_versions(config, user=None, as_json=True)
    assert [one["model"] for one in json.loads(capsys.readouterr().out)] == ["one#1", "two#2"]


async def test_why_training_stands_still_is_said_wherever_somebody_looks(tmp_path: Path, capsys: CAPS) -> None:
    async with await SqliteStore.open(tmp_path) as store:
        await store.lessons.set_flag(TRAINING_PAUSED, "the disk is \x1b[31mfull")
        show_versions(settings(tmp_path).store, user=None, as_json=False)
        shown = capsys.readouterr().err
        assert "Nothing was learned yet" in shown
        assert "Training is paused: the disk is [31mfull. Nothing is lost" in shown
        show_versions(settings(tmp_path).store, user=None, as_json=True)
        shown_as_json = capsys.readouterr()
        assert (json.loads(shown_as_json.out), "Training is paused" in shown_as_json.err) == ([], True)
        finding = check_learning(read_backlog(StoreReader.open(tmp_path)))
        assert (finding.state, finding.text) == ("remark", "training is paused: the disk is \x1b[31mfull")
        await store.lessons.set_flag(TRAINING_PAUSED, None)
        show_versions(settings(tmp_path).store, user=None, as_json=False)
        assert "paused" not in capsys.readouterr().err
        assert check_learning(read_backlog(StoreReader.open(tmp_path))).state == "ok"


async def test_a_version_shows_how_people_fare_with_it(tmp_path: Path, capsys: CAPS) -> None:
    config = settings(tmp_path)
    async with await SqliteStore.open(tmp_path) as store:
        await add(store, 1, state="live")
        await put_samples(store, [sample(0)])  # by v0, disliked
        capsys.readouterr()
        show_version(config, 1, user="local", as_json=True)
        assert json.loads(capsys.readouterr().out)["served"] == [], "nobody has met it"
        await put_samples(store, [replace(sample(1), version_spans=(VersionSpan("v1", 0, 6),))])
    show_version(config, 1, user="local", as_json=True)
    kinds = {count.pop("kind"): count for count in json.loads(capsys.readouterr().out)["served"]}
    assert list(kinds) == ["disliked", "failed", "repetition", "repeated_calls", "length"]
    assert kinds["disliked"] == {
        "answers": 1,
        "of": 1,
        "parent_answers": 1,
        "parent_of": 1,
        "odds": 1.3,
        "alarm_odds": 1000.0,
        "alarm": False,
    }
    show_version(config, 1, user="local", as_json=False)
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "what the user wanted" in line)
    assert " ".join(row.split()) == "were not what the user wanted 1 of 1 1 of 1 1 to 1 (1,000 is an alarm)"


def test_only_a_running_server_goes_back(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="`openclaw-rl up`"):
        roll_back(settings(tmp_path).store, 1, user="local")


def test_a_line_that_nobody_can_have_is_not_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'a b' is neither a user name"):
        roll_back(settings(tmp_path).store, 1, user="a b")
