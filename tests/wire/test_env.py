"""`env run` beside the running system: a group that teaches, what the server hears of, and how it goes on.

What takes a server of its own, or many commands, is in `tests/envs/test_commands.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.boxes import sandbox_or_skip
from tests.pages import DOCS, blocks
from tests.server import Server
from tests.wire.asking import reader, replies
from tests.wire.test_demo import run

pytestmark = pytest.mark.timeout(180)

SOLVES = replies(
    ("Say tiger backwards", "It is regit."),
    (r"directory called (\w+)", r"mkdir \1"),
    (".", "ls"),
)
TWO = ("--num-episodes", "2", "--group-size", "2")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    sandbox_or_skip(tmp_path_factory.mktemp("boxes"))
    with Server(tmp_path_factory.mktemp("env") / "data", SOLVES) as running:
        yield running


def test_a_group_is_attempted_and_what_the_command_uses_itself_is_no_setting_of_the_server(
    server: Server, tmp_path: Path
) -> None:
    ours = ("--parallel-envs", "3", "--num-rollout-workers", "1", "--benchmark", "commands", "--async-collection")
    words = ("env", "run", "terminal", "--task", "mkdir-12", *TWO, *ours, "--json", "--data-dir", server.data_dir)
    told = json.loads(run(*words, cwd=tmp_path)[0])
    assert [one["grade"]["reward"] for one in told["attempts"]] == [1.0, 1.0]
    assert [one["ended"] for one in told["attempts"]] == ["finished", "finished"]
    tried = [summary.session.episode for summary in reader(server).sessions()]
    assert sorted(one.attempt for one in tried if one is not None) == [0, 1]

    on = ("--run", told["run"])
    assert "nothing is left to attempt" in run(*[one for one in words if one != "--json"], *on, cwd=tmp_path)[0]

    _, err = run(*words, "rollout.max_turns=3", cwd=tmp_path, status=2)
    assert "would not hear of rollout.max_turns:" in err


LACKING = """
from openclaw_rl.errors import EnvError


class Lacking:
    name = "lacking"

    def __init__(self, means): ...

    def programs(self):
        raise EnvError("it is not here; run `openclaw-rl env install codex`")
"""


def test_an_agent_that_is_not_installed_is_told_before_anything_is_attempted(server: Server, tmp_path: Path) -> None:
    (tmp_path / "lacking.py").write_text(LACKING)
    harness = f"{tmp_path / 'lacking.py'}:Lacking"
    words = ("env", "run", "terminal", *TWO, "--harness", harness, "--data-dir", server.data_dir)
    out, err = run(*words, cwd=tmp_path, status=1)
    assert "attempts" not in out
    assert err.count("\n") == 1
    assert err.endswith("run `openclaw-rl env install codex`\n")


def test_an_unknown_track_is_one_line(server: Server, tmp_path: Path) -> None:
    _, err = run("env", "run", "nosuch", "--data-dir", server.data_dir, cwd=tmp_path, status=1)
    assert err.startswith("error: there is no environment 'nosuch'")
    assert err.count("\n") == 1


TRACK = next(block for block in blocks(DOCS / "environments.md", "python") if block.startswith("# my_track.py"))


@pytest.fixture
def track(tmp_path: Path) -> str:
    """As a person in that folder names it."""
    (tmp_path / "my_track.py").write_text(TRACK)
    return "my_track.py:Backwards"


def test_the_track_on_the_page_is_checked_attempted_and_compared(server: Server, tmp_path: Path, track: str) -> None:
    assert len(TRACK.splitlines()) <= 40
    out, _ = run("env", "check", "--track", track, "", "--task", "lemon", cwd=tmp_path)
    assert out.splitlines()[-1] == "1 of 1 tasks are fit to train on"

    at = ("--data-dir", server.data_dir, "--json")
    told = json.loads(run("env", "run", track, "--task", "tiger", *TWO, *at, cwd=tmp_path)[0])
    assert [one["grade"]["reward"] for one in told["attempts"]] == [1.0, 1.0]
    tried = [summary.session.episode for summary in reader(server).sessions()]
    assert sum(one is not None and (one.environment, one.task) == ("backwards", "tiger") for one in tried) == 2

    compared = json.loads(run("env", "eval", track, "--num-tasks", "2", *at, cwd=tmp_path)[0])
    assert list(compared["solved"]) == ["v0"], "of its own line, which has no version yet"
    asked = json.loads(reader(server).flag("tasks of env:backwards") or "{}")
    assert asked["environment"] == f"{tmp_path}/my_track.py:Backwards", "its gate finds it wherever the server runs"
