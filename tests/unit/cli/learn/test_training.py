"""`openclaw-rl train`: what waits is judged and learned from, alone or through a running server, and nothing twice."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.judge_server import JudgeServer
from openclaw_rl.cli import app as cli
from openclaw_rl.cli.learn.importing import import_rollouts, read_rollouts
from openclaw_rl.cli.learn.training import INTERRUPTED, TrainBar, _for_rollouts, _judge, keep_newest
from openclaw_rl.cli.screen import progress
from openclaw_rl.config import load_config
from openclaw_rl.gateway.api.metrics import Metrics
from openclaw_rl.gateway.api.rollouts import rollout_json
from openclaw_rl.release.keeping import NUM_NEWEST
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.train.local import LocalWeights
from openclaw_rl.types import Skip, Step, Version
from tests.factories.turns import make_session, make_turn
from tests.factories.weights import folder_ref
from tests.server import OPEN_GATE, Server
from tests.tiny import build_tiny_model
from tests.unit.cli.recorded import SAID, make_turns, record

pytestmark = pytest.mark.timeout(300)
CAPS = pytest.CaptureFixture[str]
SMALL = ("training.batch_size=1", "training.lora_rank=2", "training.anchors=0")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("train") / "model")


def command(data_dir: Path, model: Path, *arguments: str) -> list[str]:
    given = ["train", "--data-dir", str(data_dir), "--model", str(model), "evaluation.judge=rules", *SMALL, *arguments]
    return [sys.executable, "-m", "openclaw_rl", *given]


def train(data_dir: Path, model: Path, *arguments: str) -> tuple[int, str, str]:
    ended = subprocess.run(command(data_dir, model, *arguments), capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def here(capsys: CAPS, data_dir: Path, *arguments: str) -> tuple[int, str, str]:
    """The same in this process: for what is shown or refused before anything heavy is loaded."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "--data-dir", str(data_dir), *arguments])
    shown = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, shown.out, shown.err


def refused(capsys: CAPS, data_dir: Path, *arguments: str) -> tuple[int, str]:
    status, _, error = here(capsys, data_dir, *arguments)
    return status, error


def digest(folder: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.rglob("*.sqlite3*")))).hexdigest()


def test_what_waits_is_judged_and_trained_step_upon_step(tmp_path: Path, model: Path, capsys: CAPS) -> None:
    data = tmp_path / "data"
    asyncio.run(record(data, make_turns(model, 3)))
    status, out, error = train(data, model, "--once")
    assert (status, error) == (0, "")
    assert "v1" in out
    assert "2 samples wait for a later step" in out
    assert "the next `openclaw-rl up`" in out

    before = digest(data)
    status, out, error = here(capsys, data, "--dry-run", "training.replay_max_age=2", "training.batch_size=3")
    assert (status, error) == (0, "")
    assert "Step 2 of local, from v1" in out
    rows = [line.split() for line in out.splitlines() if line.startswith("s-1.")]
    assert [(row[0], row[1], row[2], row[-1]) for row in rows] == [
        ("s-1.1", "turn", "−1", "v0"),
        ("s-1.2", "turn", "−1", "v0"),
        ("s-1.0", "turn", "−1", "replayed"),
    ]
    status, out, _ = here(capsys, data, "--dry-run", "--json", "training.batch_size=1")
    (next_step,) = json.loads(out)["next_steps"]
    assert (status, [one["id"] for one in next_step["samples"]], next_step["later"]) == (0, ["s-1.1"], 1)
    status, out, _ = here(capsys, data, "--dry-run", "--json", "training.max_staleness=0")
    assert status == 1, "all that waits is too old, so no step is next"
    assert digest(data) == before, "looking writes nothing"

    status, out, _ = train(data, model, "--json")
    assert status == 0
    told = json.loads(out)
    assert [(step["number"], step["parent"], step["samples"]) for step in told["steps"]] == [
        (2, "v1", ["s-1.1"]),
        (3, "v2", ["s-1.2"]),
    ]
    assert (told["waiting"], told["interrupted"], told["imported"]) == (0, False, None)
    reader = StoreReader.open(data)
    assert [(one.number, one.parent, one.state) for one in reader.versions()] == [
        (1, 0, "candidate"),
        (2, 1, "candidate"),
        (3, 2, "candidate"),
    ]
    assert len({one.sha256 for one in reader.versions()}) == 3
    status, out, error = here(capsys, data, "--dry-run")
    assert (status, out) == (1, "")
    assert error.startswith("error: nothing waits to be trained on")


def test_a_dry_run_tells_what_would_be_practised(tmp_path: Path, model: Path, capsys: CAPS) -> None:
    data = tmp_path / "data"
    for session in ("s-1", "s-2"):
        asyncio.run(record(data, make_turns(model, 2, session=session)))
    assert train(data, model, "--once")[0] == 0
    status, out, _ = here(capsys, data, "--dry-run", "training.exercises=3")
    assert (status, "3 exercises besides" in out) == (0, True), "two conversations wish for shorter answers"
    for alone in ("training.batch_size=1", "training.exercises=0"):
        _, out, _ = here(capsys, data, "--dry-run", "--json", "training.replay_max_age=0", alone)
        assert json.loads(out)["next_steps"][0]["exercises"] == 0


def test_ctrl_c_ends_cleanly_and_the_step_is_taken_again(tmp_path: Path, model: Path, capsys: CAPS) -> None:
    data = tmp_path / "data"
    asyncio.run(record(data, make_turns(model, 1)))
    running = subprocess.Popen(
        command(data, model, "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    reader, end = StoreReader.open(data), time.monotonic() + 100
    while not reader.planned_steps() and running.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    running.send_signal(signal.SIGINT)
    out, error = running.communicate(timeout=100)
    assert (running.returncode, error) == (INTERRUPTED, "")
    assert (json.loads(out)["interrupted"], json.loads(out)["steps"]) == (True, [])
    (planned,) = reader.planned_steps()
    status, out, _ = here(capsys, data, "--dry-run")
    assert (status, "Step 1 of local, from v0, begun before" in out) == (0, True)
    status, out, _ = train(data, model, "--json")
    (step,) = json.loads(out)["steps"]
    assert (status, step["number"], tuple(step["samples"])) == (0, planned.number, planned.sample_ids)


def test_a_running_server_takes_what_waits_when_it_is_asked(tmp_path: Path, model: Path, capsys: CAPS) -> None:
    data = tmp_path / "data"
    settings = (
        *("engine.type=embedded", f"model.name={model}", "training.batch_size=99", "training.max_wait_s=null"),
        *("training.truncated=score", *OPEN_GATE),
    )
    with Server(data, *settings) as server:
        asked = [{"role": "user", "content": "what is rain"}]
        said = server.chat(asked, max_tokens=8).json()["choices"][0]["message"]["content"]
        answer = {"role": "assistant", "content": said}
        server.chat([*asked, answer, {"role": "user", "content": SAID.content}], max_tokens=8)
        reader = StoreReader.open(data)
        server.wait_until(lambda: reader.waiting_samples(None, 1))
        status, error = refused(capsys, data)
        assert (status, "trains by itself; `openclaw-rl train --once` makes it take" in error) == (1, True)
        rollouts = tmp_path / "rollouts.jsonl"
        rollouts.write_bytes(json.dumps(rollout_json(reader.records(reader.sessions()[0].session.id)[0])).encode())
        status, error = refused(capsys, data, "--rollout-dir", str(rollouts))
        assert (status, "stop it, then train" in error) == (1, True)
        status, out, error = train(data, model, "--once", "--json")
        assert (status, error) == (0, "")
        (step,) = json.loads(out)["steps"]
        assert (step["number"], step["version_state"]) == (1, "live")
        assert server.chat("what is snow", max_tokens=4).headers["X-OpenClaw-RL-Version"] == "v1"


def test_a_server_that_only_serves_is_named(tmp_path: Path, model: Path, capsys: CAPS) -> None:
    server = Server(tmp_path / "data")
    try:
        server.start(command="serve")
        status, error = refused(capsys, tmp_path / "data", "--once")
    finally:
        server.close()
    assert (status, "does not train; stop it, then train" in error) == (1, True)


def test_rollouts_of_another_directory_become_versions_here(tmp_path: Path, model: Path) -> None:
    turns = make_turns(model, 2, version="v40")
    asyncio.run(record(tmp_path / "elsewhere", turns))
    reader = StoreReader.open(tmp_path / "elsewhere")
    folder = tmp_path / "rollouts"
    folder.mkdir()
    lines = [rollout_json(one) for one in reader.records("s-1")]
    (folder / "s-1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    data, checkpoints = tmp_path / "data", tmp_path / "checkpoints"
    given = ("--rollout-dir", str(folder), "--checkpoint-dir", str(checkpoints), "--method", "binary")
    status, out, error = train(data, model, *given, "--num-epochs", "2", "--gpus", "0", "--json", "engine.device=cpu")
    assert (status, error) == (0, "")
    told = json.loads(out)
    assert told["imported"] == {"read": 2, "new": 2, "known": 0, "not_exact": 0, "refused": 0}
    assert [step["path"] for step in told["steps"]] == [str(checkpoints / name / "weights") for name in ("v1", "v2")]
    assert all("loss/opd" not in step["metrics"] for step in told["steps"]), "the method is binary"
    status, out, error = train(data, model, *given)
    assert (status, "nothing waits" in error) == (1, True), "each turn is learned from once"
    assert len(StoreReader.open(data).sessions()) == 1


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path / "data") as opened:
        yield opened


def write(folder: Path, *lines: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "rollouts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


async def exported(folder: Path, model: Path, count: int) -> list[dict[str, Any]]:
    await record(folder, make_turns(model, count))
    return [rollout_json(one) for one in StoreReader.open(folder).records("s-1")]


async def test_imported_turns_are_the_recorded_ones_and_come_once(
    tmp_path: Path, model: Path, store: SqliteStore
) -> None:
    lines = await exported(tmp_path / "elsewhere", model, 2)
    open_turn = {**lines[1], "next_state": None}
    folder = write(tmp_path / "rollouts", lines[0], open_turn)
    first = await import_rollouts(store, read_rollouts(folder))
    assert (first.read, first.new, first.known) == (2, 2, 0)
    turn = await store.get_turn("s-1", 0)
    (original, *_) = StoreReader.open(tmp_path / "elsewhere").turns("s-1")
    assert turn is not None
    for name in ("prompt_ids", "completion", "messages", "message", "sampling", "model", "created_at", "kind", "skip"):
        assert getattr(turn, name) == getattr(original, name), name
    unfollowed = await store.get_turn("s-1", 1)
    assert unfollowed is not None
    assert unfollowed.skip is Skip.NO_NEXT_STATE
    session = await store.lessons.get_session("s-1")
    assert session is not None
    assert (session.user, session.closed_at is not None) == ("local", True)
    assert await store.lessons.num_open("judge") == 1

    again = await import_rollouts(store, read_rollouts(write(folder, *lines)))
    assert (again.new, again.known) == (0, 2)
    assert await store.lessons.num_open("judge") == 2, "what has followed since is news"
    other = {**lines[0], "token_ids": lines[1]["token_ids"], "logprobs": lines[1]["logprobs"]}
    other["version_spans"] = lines[1]["version_spans"]
    refused = await import_rollouts(store, read_rollouts(write(folder, other)))
    assert (refused.refused, refused.known) == (1, 0), "another turn under this name does not replace it"
    assert await store.get_turn("s-1", 0) == turn


async def test_what_is_imported_belongs_to_the_importer_whatever_a_file_says(
    tmp_path: Path, model: Path, store: SqliteStore
) -> None:
    lines = await exported(tmp_path / "elsewhere", model, 2)
    await store.put_session(make_session("ann/diary", user="ann", key="diary"))
    await store.put_turn(make_turn(session="ann/diary", text="between ann and me"))
    said = [{"user": "ann", "given_at": 1.0, "score": 1, "text": "good"}]
    foreign = [
        {**line, "session_id": name, "id": f"{name}.{index}", "index": index, "feedback": said}
        for name, index in (("ann/diary", 0), ("ann/diary", 1), ("bob/notes", 0), ("s-1", 0))
        for line in lines[:1]
    ]
    imported = await import_rollouts(store, read_rollouts(write(tmp_path / "rollouts", *foreign)))
    assert (imported.new, imported.refused) == (4, 0)
    owners = {}
    for name in ("ann/diary", "local/ann/diary", "bob/notes", "local/bob/notes", "s-1"):
        session = await store.lessons.get_session(name)
        owners[name] = None if session is None else session.user
    assert owners == {
        "ann/diary": "ann",
        "local/ann/diary": "local",
        "bob/notes": None,
        "local/bob/notes": "local",
        "s-1": "local",
    }
    assert [turn.message.content for turn in await store.lessons.turns("ann/diary")] == ["between ann and me"]
    assert await store.find_session("bob", "notes") is None, "whoever names it later begins it"
    record = await store.record("local/ann/diary", 1)
    assert record is not None
    assert [given.user for given in record.feedback] == ["local"]
    again = await import_rollouts(store, read_rollouts(tmp_path / "rollouts"))
    assert (again.new, again.known) == (0, 4)


@pytest.mark.parametrize(
    "change",
    [
        {"logprobs": None},
        {"logprobs": [-0.5]},
        {"token_ids": None},
        {"prompt_ids": []},
        {"version_spans": [{"version": "latest", "start": 0, "end": 6}]},
        {"sampling": {"max_tokens": 9}},
        {"model": ""},
        {"token_ids": [1.5] * 6},
        {"logprobs": ["x"] * 6},
    ],
    ids=str,
)
async def test_a_line_without_exact_ids_is_kept_as_a_conversation(
    tmp_path: Path, model: Path, store: SqliteStore, change: dict[str, Any]
) -> None:
    (line,) = await exported(tmp_path / "elsewhere", model, 1)
    imported = await import_rollouts(store, read_rollouts(write(tmp_path / "rollouts", {**line, **change})))
    assert (imported.new, imported.not_exact) == (1, 1)
    turn = await store.get_turn("s-1", 0)
    assert turn is not None
    assert (turn.skip, turn.completion.token_ids, turn.prompt_ids) == (Skip.NOT_EXACT, (), ())
    assert turn.message.content == "rain is water 0"


def test_bad_input_is_one_line_with_a_remedy(tmp_path: Path, model: Path, capsys: CAPS) -> None:
    nowhere, empty = tmp_path / "nowhere", tmp_path / "empty"
    empty.mkdir()
    assert refused(capsys, nowhere) == (
        1,
        f"error: there is no store in {nowhere}: start `openclaw-rl up` once, or check --data-dir\n",
    )
    assert not nowhere.exists()
    for folder in (nowhere, empty):
        status, error = refused(capsys, nowhere, "--rollout-dir", str(folder))
        assert (status, "`openclaw-rl rollouts collect` makes some" in error) == (1, True)
    status, error = refused(capsys, nowhere, "--method", "magic")
    assert (status, "binary" in error) == (2, True)
    status, error = refused(capsys, nowhere, "--gpus", "0,1")
    assert (status, "training.backend=local trains on one GPU" in error) == (2, True)
    status, error = refused(capsys, nowhere, "engine.type=scripted")
    assert (status, "engine.type=embedded" in error) == (2, True)
    asyncio.run(record(tmp_path / "data", make_turns(model, 1)))
    status, error = refused(capsys, nowhere, "--rollout-dir", str(tmp_path / "data"))
    assert (status, f"train on it with --data-dir {tmp_path / 'data'}" in error) == (1, True)
    status, error = refused(capsys, tmp_path / "data", "--dry-run")
    assert (status, "Turns that wait: 1 for the judge" in error) == (1, True)
    line = {"id": "a.0", "session_id": "a", "index": 0, "next_state": None, "request": [], "text": "", "kind": "odd"}
    status, error = refused(capsys, nowhere, "--rollout-dir", str(write(tmp_path / "odd", line)))
    assert (status, "turn a.0 is no turn of a rollout" in error, "odd" in error) == (1, True, True)
    assert not nowhere.exists()


async def test_a_judge_that_fails_its_known_cases_ends_the_judging_not_never(
    tmp_path: Path, model: Path, store: SqliteStore
) -> None:
    lines = await exported(tmp_path / "elsewhere", model, 1)
    await import_rollouts(store, read_rollouts(write(tmp_path / "rollouts", *lines)))
    async with JudgeServer(always=1).listening() as url:
        chosen = ["evaluation.judge=endpoint", f"evaluation.judge_url={url}", "evaluation.judge_model=liar"]
        with progress(show=False) as bars:
            async with asyncio.timeout(60):
                await _judge(load_config(env={}, overrides=chosen).config, store, TrainBar(bars), Metrics())
    assert await store.lessons.num_open("judge") == 1, "nothing that it said is believed"
    assert "got a known case wrong" in (await store.lessons.flag("judge.paused") or "")


def test_recorded_answers_are_not_too_old_unless_somebody_says_so() -> None:
    assert load_config(env={}).config.training.max_staleness is not None
    assert _for_rollouts(load_config(env={})).training.max_staleness is None
    assert _for_rollouts(load_config(env={}, overrides=["training.max_staleness=3"])).training.max_staleness == 3


async def test_of_a_long_chain_the_newest_candidates_are_kept(tmp_path: Path, store: SqliteStore) -> None:
    for number in range(1, 10):
        folder = tmp_path / f"v{number}" / "weights"
        folder.mkdir(parents=True)
        step = Step(line="ann", number=number, state="done", planned_at=1.0, seed=0, parent=number - 1, sample_ids=())
        version = Version(
            line="ann",
            number=number,
            parent=number - 1,
            state="candidate",
            created_at=1.0,
            weights=folder_ref(str(folder), "ab"),
        )
        await store.lessons.plan_step(Step(line="ann", number=number, state="planned", planned_at=1.0, seed=0,
                                           parent=number - 1, sample_ids=()))  # fmt: skip
        assert await store.lessons.finish_step(step, version)
        await keep_newest(store.lessons, LocalWeights(tmp_path), "ann", save_every=3)
    versions = await store.lessons.versions("ann")
    assert [one.number for one in versions if one.state == "candidate"] == list(range(9 - NUM_NEWEST + 1, 10))
    assert [one.number for one in versions if one.weights] == [3, 4, 5, 6, 7, 8, 9], (
        "every third, and a parent, besides"
    )
    assert not (tmp_path / "v1").exists()
