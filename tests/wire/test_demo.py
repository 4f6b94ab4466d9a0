"""`demo` and `eval` beside the running system: a user of its own, plain lines through a pipe, Ctrl-C, no trace left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest

from tests.server import Server
from tests.wire.asking import reader, replies

pytestmark = pytest.mark.timeout(180)

ESSAY = (
    "There is a lot to say about that, and people have said it. It begins long ago with wind and water. Then it goes "
    "on for many years in many places. After that it becomes what we see today. Scientists watch it patiently."
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    script = replies(("short sentence", "It is wind and water."), ("", ESSAY))
    with Server(tmp_path_factory.mktemp("demo") / "data", script) as running:
        yield running


def command(*arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "openclaw_rl", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", **(env or {})},
    )


def until_said(stream: IO[str] | None, words: str) -> None:
    assert stream is not None
    seen: list[str] = []
    while not (seen and words in seen[-1]):
        seen.append(stream.readline())
        assert seen[-1], "".join(seen)


def run(*arguments: str | Path, cwd: Path, status: int = 0) -> tuple[str, str]:
    """What the command wrote; it ends as it should."""
    process = command(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=150)
    assert process.returncode == status, f"{out}\n{err}"
    return out, err


def test_the_demo_talks_to_the_running_server_as_a_user_of_its_own(server: Server, tmp_path: Path) -> None:
    keys_before = len(reader(server).keys())
    out, _ = run("demo", "--turns", "3", "--num-questions", "4", "--data-dir", server.data_dir, cwd=tmp_path)
    lines = out.splitlines()
    assert f"using the server on {server.data_dir}" in lines[0]
    assert lines[1].startswith("measured v0 after 0 lessons: preference ")
    assert [line.split("  ")[0] for line in lines if " asks " in line] == ["turn 1", "turn 2", "turn 3"]
    assert sum(" judged " in line and "hint: " in line for line in lines) == 3
    assert "Nothing was learned: the base model still answers." in out
    sessions = reader(server).sessions("demo-brief")
    assert len(sessions) == 3, "what was measured left no conversation"
    assert not reader(server).sessions("local")
    keys = reader(server).keys()
    assert len(keys) == keys_before + 1
    assert keys[-1].revoked_at is not None
    assert server.is_ready(), "a server that was there before stays"


def test_the_next_demo_is_somebody_else(server: Server, tmp_path: Path) -> None:
    server.chat("hello", headers={"X-Session-Id": "mine"})
    arguments = (
        "demo",
        "--turns",
        "1",
        "--num-questions",
        "2",
        "--user",
        "plain",
        "--data-dir",
        server.data_dir,
        "--json",
    )
    lines = [json.loads(run(*arguments, cwd=tmp_path)[0])["line"] for _ in range(2)]
    assert lines == ["demo-plain", "demo-plain-2"]


def test_json_has_everything_and_the_view_goes_to_standard_error(server: Server, tmp_path: Path) -> None:
    arguments = ("demo", "--turns", "1", "--num-questions", "2", "--data-dir", server.data_dir, "--json")
    out, err = run(*arguments, cwd=tmp_path)
    found = json.loads(out)
    assert [(one["version"], one["capability_items"]) for one in found["points"]] == [("v0", 400)]
    (session,) = found["sessions"]
    assert session["exchanges"][0]["reply"] == ESSAY
    assert (found["comparison"], found["is_interrupted"], "turn 1" in err) == (None, False, True)


def test_a_demo_without_a_server_starts_one_and_leaves_nothing_running(tmp_path: Path) -> None:
    place = tmp_path / "data"
    out, _ = run("demo", "--turns", "1", "--data-dir", place, "engine.type=scripted", cwd=tmp_path)
    assert f"starting a server of its own in {place}" in out
    assert not (place / "run" / "address.json").exists()
    assert (place / "key").exists(), "a directory that was named stays"


def test_ctrl_c_shows_what_there_is_and_stops_the_server(tmp_path: Path) -> None:
    place = tmp_path / "data"
    slow = ("engine.type=scripted", "engine.scripted.tokens_per_s=8")
    process = command("demo", "--minutes", "30", "--num-questions", "1", "--data-dir", place, *slow, cwd=tmp_path)
    until_said(process.stdout, "turn 1")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Interrupted; this is how far it came." in out
    assert "v0" in out
    assert "Traceback" not in out + err
    assert not (place / "run" / "address.json").exists()
    assert "error" not in (place / "own-server.txt").read_text().lower()


def test_a_temporary_directory_is_removed_unless_it_is_to_be_kept(tmp_path: Path) -> None:
    arguments = ("demo", "--turns", "1", "--num-questions", "1", "engine.type=scripted")
    environment = {**os.environ, "TMPDIR": str(tmp_path), "HOME": str(tmp_path / "home")}
    cached = f"model.cache_dir={Path('~/.cache/openclaw-rl/models').expanduser()}"
    for options, left in (((), 0), (("--keep",), 1)):
        done = subprocess.run(
            [sys.executable, "-m", "openclaw_rl", *arguments, cached, *options],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert len(list(tmp_path.glob("openclaw-rl-demo-*"))) == left


def test_interrupted_before_anything_was_learned_nothing_is_left(tmp_path: Path) -> None:
    cached = f"model.cache_dir={Path('~/.cache/openclaw-rl/models').expanduser()}"
    slow = ("engine.type=scripted", "engine.scripted.tokens_per_s=8", cached)
    environment = {"TMPDIR": str(tmp_path), "HOME": str(tmp_path / "home")}
    process = command("demo", "--num-questions", "1", "--json", *slow, cwd=tmp_path, env=environment)
    until_said(process.stderr, "turn 1")
    (place,) = tmp_path.glob("openclaw-rl-demo-*")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    found = json.loads(out)
    assert (found["is_interrupted"], found["data_dir"], found["versions"]) == (True, None, [])
    assert not place.exists()


def test_settings_that_a_running_server_would_not_hear_are_refused(server: Server, tmp_path: Path) -> None:
    place = f"store.data_dir={server.data_dir}"
    keys_before = len(reader(server).keys())
    told = run("demo", "--turns", "1", place, "training.batch_size=2", "engine.type=scripted", cwd=tmp_path, status=2)[
        1
    ]
    assert f"a server runs on {server.data_dir}, with settings of its own" in " ".join(told.split())
    assert "engine.type, training.batch_size" in told
    assert "stop it, or leave them out" in " ".join(told.split())
    assert len(reader(server).keys()) == keys_before
    run("demo", "--turns", "1", "--num-questions", "1", place, cwd=tmp_path)


def test_a_demo_of_nothing_is_refused(tmp_path: Path) -> None:
    assert "--turns" in run("demo", "--turns", "0", cwd=tmp_path, status=2)[1]
    for minutes in ("0", "-1", "nan"):
        told = run("demo", "--minutes", minutes, cwd=tmp_path, status=2)[1]
        assert f"--minutes says for how long, and must be more than 0; got {minutes}" in told


def test_a_server_that_does_not_learn_is_no_good_for_a_demo(tmp_path: Path) -> None:
    with_typo = run("demo", "--user", "brieff", cwd=tmp_path, status=2)[1]
    assert "there is no user 'brieff'; one of brief, plain, friendly, steps" in with_typo
    both = run("demo", "--turns", "1", "--minutes", "1", cwd=tmp_path, status=2)[1]
    assert "--turns or --minutes" in both


def test_eval_compares_two_versions(server: Server, tmp_path: Path) -> None:
    small = ("--num-questions", "3", "--num-items", "20", "--data-dir", server.data_dir)
    base = (*small, "--version", "0")
    assert "nothing was learned yet; --version 0" in run("eval", *small, cwd=tmp_path, status=1)[1]
    out, _ = run("eval", *base, "--plot", "bars.png", cwd=tmp_path)
    rows = {line.split("  ")[0]: line for line in out.splitlines()}
    assert {"preference", "tokens", "on topic", "repetition", "refusals", "questions back", "capability"} <= set(rows)
    assert "0" in rows["capability"]
    assert (tmp_path / "bars.png").stat().st_size > 5000
    (tmp_path / "full.png").symlink_to("/dev/full")
    out, err = run("eval", *base, "--json", "--plot", "full.png", cwd=tmp_path, status=1)
    assert "error: the plot full.png cannot be written: No space left on device" in err
    found: dict[str, Any] = json.loads(out)
    assert found["plot"] is None
    assert (found["before"], found["after"], found["measures"]["capability"]["num"]) == ("v0", "v0", 20)
    assert found["measures"]["preference"]["change"]["value"] == 0
    missing = run("eval", *small, "--version", "7", cwd=tmp_path, status=1)[1]
    assert "the model that runs has no version 7" in missing
    assert "start it with" in run("eval", "--data-dir", tmp_path, "--version", "0", cwd=tmp_path, status=1)[1]


def test_leaving_an_examination_ends_it(tmp_path: Path) -> None:
    script = replies(("hello", "Hi."), ("", ESSAY))
    with Server(tmp_path / "data", script, "engine.scripted.tokens_per_s=2") as slow:
        arguments = ("--version", "0", "--num-questions", "48", "--data-dir", slow.data_dir)
        process = command("eval", *arguments, cwd=tmp_path)
        time.sleep(3.0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert process.returncode == 130, f"{out}\n{err}"
        assert "Traceback" not in out + err
        assert slow.chat("hello").status_code == 200
