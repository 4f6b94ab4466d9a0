"""`env run`, `env check` and `env serve` as a person types them: Ctrl-C, words that are wrong, a track for others.

`tests/wire/test_env.py` is the short form, which runs with all tests.
"""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest

from tests.fakes.boxes import sandbox_or_skip
from tests.wire.test_demo import command, run, until_said
from tests.wire.test_env import SOLVES, TRACK, TWO

pytestmark = [pytest.mark.envs, pytest.mark.timeout(180)]


@pytest.fixture
def track(tmp_path: Path) -> str:
    """As a person in that folder names it."""
    (tmp_path / "my_track.py").write_text(TRACK)
    return "my_track.py:Backwards"


@pytest.mark.parametrize("words", [("run", "nosuch", "--demo"), ("check", "--track", "nosuch", "x")])
def test_an_unknown_track_is_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    _, err = run("env", *words, cwd=tmp_path, status=2)
    assert err.startswith("error: there is no environment 'nosuch'")
    assert err.count("\n") == 1


def test_episodes_that_make_no_group_are_one_line(tmp_path: Path) -> None:
    words = ("env", "run", "terminal", "--num-episodes", "4", "--data-dir", tmp_path / "data")
    _, err = run(*words, cwd=tmp_path, status=2)
    assert err.startswith("error: 4 episodes are less than one group of 8: ask for more episodes")
    assert err.count("\n") == 1


def test_ctrl_c_says_how_to_go_on_and_that_goes_on(tmp_path: Path) -> None:
    sandbox_or_skip(tmp_path / "boxes")
    place = tmp_path / "data"
    slow = ("engine.type=scripted", "engine.scripted.tokens_per_s=4", SOLVES)
    words = ("env", "run", "terminal", "--task", "mkdir-12", *TWO, "--parallel-envs", "1", "--data-dir", str(place))
    process = command(*words, "--show", *slow, cwd=tmp_path)
    until_said(process.stdout, "task: ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    last = out.splitlines()[-1]
    before, _, again = last.partition(": openclaw-rl ")
    assert before == "stopped; go on with"
    for word in words:
        assert word in again
    assert " --run terminal-" in again


def test_a_track_is_served_to_whoever_speaks_openenv(tmp_path: Path, track: str) -> None:
    words = ("env", "serve", "--openenv", track, "--port", "0", "rollout.env_key=s3cret")
    serving = command(*words, cwd=tmp_path, env={"PYTHONUNBUFFERED": "1"})
    try:
        assert serving.stdout is not None
        line = serving.stdout.readline()
        assert line.startswith("backwards as an OpenEnv server at http://127.0.0.1:"), line
        url = line.split()[6].rstrip(",")
        assert httpx.get(f"{url}/metadata").status_code == 401
        told = httpx.get(f"{url}/metadata", headers={"Authorization": "Bearer s3cret"}).json()
        assert told["name"] == "backwards"
    finally:
        serving.send_signal(signal.SIGINT)
        serving.communicate(timeout=30)
    assert serving.returncode == 0
