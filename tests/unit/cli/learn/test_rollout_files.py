"""Rollouts on disk: each turn once, whatever is repeated or cut off, and the structure that people read back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import openclaw_rl
from openclaw_rl.cli.learn.rollout_files import RolloutError, RolloutFiles, file_name
from tests.factories.lessons import SESSION, fill

FOLLOWED = [{"role": "user", "content": "thanks"}]


def line(name: str, *, followed: bool = True, kind: str = "main") -> dict[str, Any]:
    session, _, index = name.rpartition(".")
    state = FOLLOWED if followed else None
    return {"session_id": session, "type": kind, "id": name, "index": int(index), "next_state": state}


def read(path: Path) -> list[Any]:
    return [json.loads(text) for text in path.read_text().splitlines()]


def test_one_file_for_all_or_one_for_each_session(tmp_path: Path) -> None:
    lines = [line("a.0"), line("b.0"), line("a.1")]
    with RolloutFiles(tmp_path / "all", session_aware=False) as files:
        assert files.put(lines) == 3
    assert read(tmp_path / "all" / "rollouts.jsonl") == lines
    with RolloutFiles(tmp_path / "each", session_aware=True) as files:
        files.put(lines)
    assert read(tmp_path / "each" / "a.jsonl") == [lines[0], lines[2]]
    assert read(tmp_path / "each" / "b.jsonl") == [lines[1]]
    for path in (tmp_path / "each", *(tmp_path / "each").iterdir()):
        assert path.stat().st_mode & 0o077 == 0, "conversations are their owner's alone"


@pytest.mark.parametrize("session_aware", [True, False])
def test_what_is_repeated_is_written_once_and_what_follows_later_takes_its_place(
    tmp_path: Path, session_aware: bool
) -> None:
    with RolloutFiles(tmp_path, session_aware=session_aware) as files:
        files.put([line("a.0"), line("a.1", followed=False), line("b.0", followed=False)], "c1")
        assert files.put([line("a.0"), line("a.2")], "c2") == 1
    with RolloutFiles(tmp_path, session_aware=session_aware) as files:
        assert (files.cursor, files.num_turns) == ("c2", 4)
        assert files.put([line("a.1"), line("a.2", followed=False)]) == 0
        assert files.put([line("a.1")]) == 0
    found = openclaw_rl.inspect_sessions(tmp_path)
    assert {name: [turn["next_state"] for turn in turns] for name, turns in found.items()} == {
        "a": [FOLLOWED, FOLLOWED, FOLLOWED],
        "b": [None],
    }
    num_lines = sum(len(read(path)) for path in tmp_path.glob("*.jsonl"))
    assert num_lines == 4


def test_half_a_line_of_a_killed_writer_is_written_again(tmp_path: Path) -> None:
    with RolloutFiles(tmp_path, session_aware=False) as files:
        files.put([line("a.0"), line("a.1")])
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with RolloutFiles(tmp_path, session_aware=False) as files:
        assert files.num_turns == 1
        assert files.put([line("a.0"), line("a.1")]) == 1
    assert [each["id"] for each in read(path)] == ["a.0", "a.1"]


def test_two_collectors_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        RolloutFiles(tmp_path, session_aware=False),
        pytest.raises(RolloutError, match="another collector"),
        RolloutFiles(tmp_path, session_aware=True),
    ):
        pass
    with RolloutFiles(tmp_path, session_aware=True):
        pass


def test_names_of_sessions_stay_inside_the_folder(tmp_path: Path) -> None:
    names = ["../../etc/passwd", "..", ".", "a" * 300, "a" * 299 + "b", "ü:/\0"]
    with RolloutFiles(tmp_path / "in", session_aware=True) as files:
        files.put([line(f"{name}.0") for name in names])
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert len({file_name(name) for name in names}) == len(names)
    assert set(openclaw_rl.inspect_sessions(tmp_path / "in")) == set(names)


def test_what_is_no_rollout_is_named_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(RolloutError, match="rollouts collect"):
        openclaw_rl.inspect_sessions(tmp_path)
    (tmp_path / "x.jsonl").write_text(json.dumps(line("a.0")) + '\n{"a": 1}\n')
    with pytest.raises(RolloutError, match=r"x\.jsonl:2 is no turn"):
        openclaw_rl.inspect_sessions(str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(RolloutError, match="cannot be written"), RolloutFiles(tmp_path / "file", session_aware=True):
        pass


async def test_a_data_directory_has_the_same_structure(tmp_path: Path) -> None:
    turns = await fill(tmp_path)
    found = openclaw_rl.inspect_sessions(tmp_path)
    assert list(found) == [SESSION]
    assert [(turn["type"], turn["id"], turn["text"]) for turn in found[SESSION]] == [
        ("main", turn.id, turn.message.content) for turn in turns
    ]
    assert sum(1 for turn in found[SESSION] if turn["type"] == "main") == 4
    assert found[SESSION][0]["session_id"] == SESSION


def test_turns_are_in_order_and_sides_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in (line("a.2"), line("a.0"), line("a.1", kind="side"))))
    assert [turn["type"] for turn in openclaw_rl.inspect_sessions(path)["a"]] == ["main", "side", "main"]


def test_importing_the_package_stays_cheap() -> None:
    script = "import sys, openclaw_rl; print(*{m.partition('.')[0] for m in sys.modules} & {'sqlalchemy', 'aiohttp'})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
    script = "import sys, openclaw_rl; print(sum(m.startswith('openclaw_rl.') for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
