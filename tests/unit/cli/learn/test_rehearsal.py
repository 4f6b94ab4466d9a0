"""`rollouts test`: what waits, what the next batch takes of it, and why the rest is not learned from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from openclaw_rl.cli.learn.rehearsal import run_rehearsal
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.types import Credit, Judgement, Message, NextState, Verdict
from openclaw_rl.views.upcoming import rehearse
from tests.factories.lessons import HINT, fill, make_sample, settings
from tests.factories.turns import make_conversation, make_session

CAPS = pytest.CaptureFixture[str]


async def add_samples(data_dir: Path, count: int) -> None:
    """As many waiting samples of one other session."""
    async with await SqliteStore.open(data_dir) as store:
        await store.put_session(make_session("s-2", user="bob"))
        for turn in make_conversation(count, session="s-2", words=3):
            await store.put_turn(turn)
            said = (Message(role="user", content="no"),)
            await store.put_next_state(NextState(session="s-2", index=turn.index, messages=said, arrived_at=1.0))
            judged = [
                lease for lease in await store.lessons.lease("judge", limit=9, ttl_s=60) if lease.session == "s-2"
            ]
            verdict = Verdict(outcome="scored", score=-1)
            judgement = Judgement(
                session="s-2", index=turn.index, num_evidence=1, judge="rules", prompt_version="1", judged_at=2.0,
                verdict=verdict,
            )  # fmt: skip
            await store.lessons.put_judgement(judged[0], judgement)
            (lease,) = await store.lessons.lease("credit", limit=9, ttl_s=60)
            sample = replace(make_sample(turn, created_at=130.0 + turn.index), line="bob")
            await store.lessons.put_credit(
                lease,
                Credit(session="s-2", index=turn.index, num_evidence=1, rule="x", credited_at=3.0, samples=(sample,)),
            )


async def test_the_next_batch_of_each_line_under_the_caps(tmp_path: Path) -> None:
    await fill(tmp_path)
    await add_samples(tmp_path, 4)
    reader = StoreReader.open(tmp_path)
    found = rehearse(reader, settings(tmp_path).training, num_samples=10)
    assert [each.sample.id for each in found.waiting] == ["s-1.0", "s-2.0", "s-2.1", "s-2.2", "s-2.3"]
    assert [each.user for each in found.waiting] == ["ann", *["bob"] * 4]
    assert all(each.is_next for each in found.waiting), "four of a line fit into a batch"
    capped = rehearse(reader, settings(tmp_path, "training.max_session_share=0.25").training, num_samples=10)
    assert [each.sample.id for each in capped.waiting if each.is_next] == ["s-1.0", "s-2.0", "s-2.1"]
    assert len(rehearse(reader, settings(tmp_path).training, num_samples=2).waiting) == 2


async def test_files_hold_every_number_and_can_be_read(tmp_path: Path, capsys: CAPS) -> None:
    await fill(tmp_path / "data")
    folder = tmp_path / "out"
    config = settings(tmp_path / "data")
    run_rehearsal(config, num_samples=10, folder=folder, as_json=False)
    shown = capsys.readouterr().out
    assert "s-1.0" in shown
    assert "1 of these 1 in the next batch of 8" in shown
    assert shown.split("Not learned from")[1].split()[:2] == ["1", "abstained"]
    assert "Turns that wait: 1 for the judge" in shown
    assert sorted(path.name for path in folder.iterdir()) == ["001-s-1.0.json", "001-s-1.0.txt", "summary.json"]
    sample = json.loads((folder / "001-s-1.0.json").read_text())
    assert (sample["reward"], sample["loss_mask"], sample["in_next_batch"]) == (-1.0, [0, 1, 1], True)
    text = (folder / "001-s-1.0.txt").read_text()
    assert f"hint 1: {HINT}" in text
    assert "--- prompt, 3 tokens\n0 1 2" in text
    assert "--- teacher's prompt with hint 1: 2 tokens as in the prompt, then\n5 6 7" in text
    masks = text.split("--- mask")[1].splitlines()[1:]
    assert [mask.split()[:2] for mask in masks] == [["·", "500000"], ["−0.8", "500001"], ["−0.8", "500002"]]
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["skips"], summary["rewards"], summary["next_batch"]) == ({"abstained": 1}, {"-1": 1}, ["s-1.0"])
    for path in (folder, *folder.iterdir()):
        assert path.stat().st_mode & 0o077 == 0


async def test_files_of_an_earlier_run_go_and_others_stay(tmp_path: Path, capsys: CAPS) -> None:
    await fill(tmp_path / "data")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "mine.txt").write_text("notes")
    (folder / "summary.json").write_text('{"files": ["007-old.json", "../data/key"]}')
    (folder / "007-old.json").write_text("{}")
    (tmp_path / "data" / "key").write_text("secret")
    run_rehearsal(settings(tmp_path / "data"), num_samples=1, folder=folder, as_json=True)
    assert json.loads(capsys.readouterr().out)["samples"][0]["id"] == "s-1.0"
    names = {path.name for path in folder.iterdir()}
    assert names == {"mine.txt", "001-s-1.0.json", "001-s-1.0.txt", "summary.json"}
    assert (tmp_path / "data" / "key").exists()


async def test_nothing_waits(tmp_path: Path, capsys: CAPS) -> None:
    async with await SqliteStore.open(tmp_path):
        pass
    run_rehearsal(settings(tmp_path), num_samples=1, folder=None, as_json=False)
    assert capsys.readouterr().out.strip() == "Nothing waits to be trained on."
