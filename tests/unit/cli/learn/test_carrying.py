"""`openclaw-rl rollouts export` and `import`: a store's conversations as trajectories, and in another store again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli import app as cli
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.types import (
    Completion,
    Episode,
    Feedback,
    Message,
    NextState,
    Outcome,
    Session,
    Skip,
    ToolCall,
    Turn,
    TurnRecord,
    VersionSpan,
)
from tests.factories.turns import make_session, make_turn

CAPS = pytest.CaptureFixture[str]
CALL = Message(
    role="assistant", reasoning="Look.", tool_calls=(ToolCall(id="c1", name="ls", arguments='{"all":true}'),)
)
LISTED = Message(role="tool", content="notes.txt", tool_call_id="c1")
THANKS = Message(role="user", content="Thanks!")
EPISODE = Episode(id="e-1", environment="terminal", task="count", group="g-1", attempt=0)


def run(capsys: CAPS, data_dir: Path, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["rollouts", *arguments, "--data-dir", str(data_dir)])
    shown = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, shown.out, shown.err


def told(capsys: CAPS, data_dir: Path, *arguments: str) -> dict[str, Any]:
    status, out, error = run(capsys, data_dir, *arguments, "--json")
    assert status == 0, error
    answer: dict[str, Any] = json.loads(out)
    return answer


def turns(session: str) -> list[Turn]:
    """A call and its answer, a title beside them, another try, one that was kept private, and one without ids."""
    ask = (Message(role="user", content="What is here?"),)
    history = (*ask, CALL, LISTED)
    again = Completion(
        token_ids=(5, 6),
        logprobs=(-0.123456789012345, -1e-12),
        finish_reason="length",
        version_spans=(VersionSpan("v1.ann", 0, 1), VersionSpan("v2.ann", 1, 2)),
    )
    return [
        make_turn(0, session=session, messages=ask, message=CALL, finish_reason="tool_calls"),
        make_turn(1, session=session, parent=0, messages=history, text="A file."),
        make_turn(2, session=session, kind="side", messages=ask, text="Files", skip=Skip.SIDE_TURN),
        make_turn(3, session=session, parent=0, messages=history, text="notes.txt", completion=again, num_prefill=2),
        make_turn(4, session=session, messages=ask, text="secret", skip=Skip.OPTED_OUT),
        make_turn(5, session=session, messages=ask, text="gist", token_ids=(), prompt_ids=(), skip=Skip.NOT_EXACT),
    ]


async def fill(data_dir: Path) -> None:
    async with await SqliteStore.open(data_dir) as store:
        for session in (make_session("s-1", episode=EPISODE), make_session("s-2", opted_out=True), make_session("s/3")):
            if session.episode is not None:
                assert await store.lessons.put_episode(session.episode)
            await store.put_session(session)
            for turn in turns(session.id):
                await store.put_turn(turn)
            for index, messages in ((0, (LISTED,)), (3, (THANKS,))):
                await store.put_next_state(
                    NextState(session=session.id, index=index, messages=messages, arrived_at=300.0)
                )
            await store.put_feedback(Feedback(session=session.id, index=3, user="ann", given_at=301.0, score=1))
        assert await store.lessons.put_outcome(Outcome(episode="e-1", ended_at=400.0, reward=0.25))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    asyncio.run(fill(tmp_path / "data"))
    return tmp_path / "data"


def content(records: Sequence[TurnRecord]) -> list[tuple[Any, ...]]:
    """All that a trajectory holds of turns."""
    return [
        (
            *(turn.index, turn.parent, turn.kind, turn.model, turn.messages, turn.message, turn.tools, turn.skip),
            *(turn.prompt_ids, turn.num_prefill, turn.completion, turn.sampling, turn.stop, turn.dialect),
            *(turn.created_at, turn.finished_at, turn.delivered, turn.label),
            None if record.next_state is None else record.next_state.messages,
            [(one.score, one.text) for one in record.feedback],
        )
        for record in records
        for turn in [record.turn]
    ]


def test_what_is_exported_as_atif_is_imported_as_it_was(tmp_path: Path, data: Path, capsys: CAPS) -> None:
    folder, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    exported = told(capsys, data, "export", str(folder))
    assert exported == {"sessions": 2, "turns": 10, "files": 8, "without_ids": 0, "private": 8}
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted([f"{stem}{number}.json" for stem in ("s-1", "s%2F3") for number in ("", "+2", "+3", "+4")])
    for path in (folder, *folder.iterdir()):
        assert path.stat().st_mode & 0o077 == 0, "conversations are their owner's alone"
        assert "secret" not in (path.read_text() if path.is_file() else "")
        assert '"ann"' not in (path.read_text() if path.is_file() else ""), "whose they are is not told"
    first = json.loads((folder / "s-1.json").read_text())
    assert first["extra"]["openclaw_rl"]["outcome"]["reward"] == 0.25

    imported = told(capsys, elsewhere, "import", str(folder))
    assert imported == {"read": 10, "new": 10, "known": 0, "not_exact": 2, "refused": 0}
    kept = [record for record in StoreReader.open(data).records("s-1") if record.turn.skip is not Skip.OPTED_OUT]
    there = StoreReader.open(elsewhere)
    # Of the second answer nobody knew yet what follows it; elsewhere its session is over.
    expected = content(kept)
    assert expected[1][7] is None
    expected[1] = (*expected[1][:7], Skip.NO_NEXT_STATE, *expected[1][8:])
    assert content(there.records("s-1")) == expected
    session = there.session("s-1")
    assert session is not None
    assert (session.user, session.closed_at is not None, session.episode) == ("local", True, None)
    assert [one.user for one in there.feedback("s-1")] == ["local"]
    assert told(capsys, elsewhere, "import", str(folder)) == {**imported, "new": 0, "known": 10}
    chain = there.turns("s-1")[0].chain
    assert len(chain) > 60, "a conversation is recognised by it when it goes on"

    again = tmp_path / "again"
    told(capsys, elsewhere, "export", str(again), "--session", "s-1")
    third = tmp_path / "third"
    told(capsys, third, "import", str(again / "s-1.json"))
    assert content(StoreReader.open(third).records("s-1")) == content(there.records("s-1"))[:2]


def test_a_training_trace_has_the_turns_with_ids(tmp_path: Path, data: Path, capsys: CAPS) -> None:
    folder, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    exported = told(capsys, data, "export", str(folder), "--format", "training-trace", "--session", "s-1")
    assert exported == {"sessions": 1, "turns": 4, "files": 1, "without_ids": 1, "private": 1}
    imported = told(capsys, elsewhere, "import", str(folder))
    assert imported == {"read": 4, "new": 4, "known": 0, "not_exact": 0, "refused": 0}
    there = StoreReader.open(elsewhere).records("s-1")
    assert [record.turn.index for record in there] == [0, 1, 2, 3]
    assert [one.turn.completion for one in there] == [one.completion for one in StoreReader.open(data).turns("s-1")[:4]]


def test_people_are_told_what_was_done(tmp_path: Path, data: Path, capsys: CAPS) -> None:
    status, out, error = run(capsys, data, "export", str(tmp_path / "out"), "--format", "training-trace")
    words = " ".join(error.split())
    assert (status, out) == (0, "")
    assert f"8 turns of 2 sessions are in {tmp_path / 'out'}, in 2 files." in words
    assert "2 more have no exact ids" in words
    assert "8 were kept private" in words
    status, _, error = run(capsys, tmp_path / "elsewhere", "import", str(tmp_path / "out"))
    assert (status, "8 turns read: 8 new, 0 known, 0 refused" in " ".join(error.split())) == (0, True)
    assert told(capsys, data, "export", str(tmp_path / "none"), "--user", "bob")["sessions"] == 0


FOREIGN: dict[str, Any] = {
    "schema_version": "ATIF-v1.6",
    "session_id": "run-7",
    "agent": {"name": "terminus-2", "version": "2.0", "model_name": "qwen"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "Count."},
        {
            "step_id": 2,
            "source": "agent",
            "message": "3",
            "metrics": {"prompt_token_ids": [1], "completion_token_ids": [2], "logprobs": [-0.5]},
        },
    ],
}


def test_answers_of_versions_that_nobody_names_are_not_learned_from(tmp_path: Path, capsys: CAPS) -> None:
    (tmp_path / "t.json").write_text(json.dumps(FOREIGN))
    imported = told(capsys, tmp_path / "data", "import", str(tmp_path / "t.json"))
    assert (imported["new"], imported["not_exact"]) == (1, 1)
    (turn,) = StoreReader.open(tmp_path / "data").turns("run-7")
    assert (turn.skip, turn.prompt_ids, turn.completion.token_ids) == (Skip.NOT_EXACT, (), ())
    assert turn.message.content == "3"


def test_a_session_of_another_user_is_not_touched_by_a_file(tmp_path: Path, capsys: CAPS) -> None:
    async def anns() -> None:
        async with await SqliteStore.open(tmp_path / "data") as store:
            await store.put_session(Session(id="ann/7", user="ann", client="x", opened_at=1.0, last_seen_at=1.0))

    asyncio.run(anns())
    (tmp_path / "t.json").write_text(json.dumps({**FOREIGN, "session_id": "ann/7"}))
    told(capsys, tmp_path / "data", "import", str(tmp_path / "t.json"))
    rows = StoreReader.open(tmp_path / "data")
    assert rows.turns("ann/7") == []
    assert [turn.message.content for turn in rows.turns("local/ann/7")] == ["3"]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"a.json": "{"}, "is no JSON"),
        ({"a.json": json.dumps({**FOREIGN, "schema_version": 3})}, "a.json: schema_version"),
        ({"a.json": json.dumps({**FOREIGN, "steps": []})}, "a.json: steps"),
        ({"a.json": "{}"}, "neither rollouts"),
        ({"a.json": json.dumps({"schema_version": 1, "turns": []})}, "a.json: turns: there is none"),
        ({}, "neither rollouts"),
    ],
    ids=str,
)
def test_files_that_are_none_are_named(tmp_path: Path, capsys: CAPS, files: dict[str, str], reason: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    status, _, error = run(capsys, tmp_path / "data", "import", str(folder))
    assert (status, reason in " ".join(error.split())) == (1, True), error
    assert not (tmp_path / "data").exists(), "nothing is begun with a broken file"


def test_one_session_in_two_formats_is_refused(tmp_path: Path, data: Path, capsys: CAPS) -> None:
    folder = tmp_path / "out"
    told(capsys, data, "export", str(folder), "--session", "s-1")
    told(capsys, data, "export", str(tmp_path / "traces"), "--session", "s-1", "--format", "training-trace")
    (tmp_path / "traces" / "s-1.json").rename(folder / "trace.json")
    status, _, error = run(capsys, tmp_path / "elsewhere", "import", str(folder))
    assert (status, "tells of session s-1 in two files" in " ".join(error.split())) == (1, True)
    (folder / "trace.json").unlink()
    line = {
        "id": "s-1.0",
        "session_id": "s-1",
        "index": 0,
        "kind": "main",
        "request": [],
        "text": "",
        "next_state": None,
    }
    (folder / "rollouts.jsonl").write_text(json.dumps(line) + "\n")
    status, _, error = run(capsys, tmp_path / "elsewhere", "import", str(folder))
    assert (status, "in lines and in trajectories" in " ".join(error.split())) == (1, True)


def test_trajectories_are_read_beside_lines_and_other_json_is_left_alone(tmp_path: Path, capsys: CAPS) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    line = {
        "id": "s-1.0",
        "session_id": "s-1",
        "index": 0,
        "kind": "main",
        "request": [],
        "text": "",
        "next_state": None,
    }
    (folder / "rollouts.jsonl").write_text(json.dumps(line) + "\n")
    (folder / "t.json").write_text(json.dumps(FOREIGN))
    (folder / "summary.json").write_text("[1]")
    (folder / ".collect.json").write_text("{")
    assert told(capsys, tmp_path / "data", "import", str(folder))["new"] == 2
    (folder / "summary.json").unlink()
    status, _, error = run(capsys, tmp_path / "data", "import", str(folder / ".collect.json"))
    assert (status, "is no JSON" in error) == (1, True)


def test_a_folder_that_has_something_or_a_format_that_is_none_is_refused(
    tmp_path: Path, data: Path, capsys: CAPS
) -> None:
    status, _, error = run(capsys, data, "export", str(data))
    assert (status, "is not empty; choose a new folder" in " ".join(error.split())) == (1, True)
    status, _, error = run(capsys, data, "export", str(tmp_path / "out"), "--format", "atiff")
    assert (status, "expected atif, training-trace" in " ".join(error.split())) == (2, True)
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    status, _, error = run(capsys, data, "export", str(tmp_path / "file"))
    assert (status, "choose another folder" in " ".join(error.split())) == (1, True)


def test_a_running_server_has_the_store(tmp_path: Path, data: Path, capsys: CAPS) -> None:
    (tmp_path / "t.json").write_text(json.dumps(FOREIGN))

    async def beside() -> tuple[int, str, str]:
        async with await SqliteStore.open(data):
            return await asyncio.to_thread(run, capsys, data, "import", str(tmp_path / "t.json"))

    status, _, error = asyncio.run(beside())
    assert (status, error.startswith("error: ")) == (1, True)
