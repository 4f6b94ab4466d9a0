"""A whole demo on a tiny model: turns become steps, versions are measured as they go live, and nobody else's learns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from openclaw_rl.store import StoreReader
from tests.server import OPEN_GATE, Server
from tests.tiny import build_tiny_model

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    return (
        "engine.type=embedded",
        f"model.name={build_tiny_model(tmp_path_factory.mktemp('model'))}",
        "training.batch_size=2",
        "training.max_wait_s=0.5",
        "evaluation.eval_frequency=1",
        *OPEN_GATE,
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, settings: tuple[str, ...]) -> Any:
    with Server(tmp_path_factory.mktemp("demo") / "data", *settings) as running:
        yield running


def run(*arguments: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "openclaw_rl", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_demo_learns_and_shows_it(server: Server, tmp_path: Path) -> None:
    measured = ("--num-questions", "2", "--data-dir", server.data_dir)
    found = json.loads(
        run("demo", "--turns", "4", "--max-tokens", "24", *measured, "--plot", "curve.png", "--json", cwd=tmp_path)
    )
    reader = StoreReader.open(server.data_dir)
    assert found["line"] == "demo-brief"
    assert {version.line for version in reader.versions()} == {"demo-brief"}, "a person's own line is untouched"
    assert sum(step["samples"] for step in found["steps"]) == 4
    assert found["points"][0]["version"] == "v0"
    last = next(version for version in reversed(reader.versions()) if version.state == "live")
    assert (found["points"][-1]["version"], found["points"][-1]["lessons"]) == (last.label, 4)
    assert found["points"][-1]["capability_items"] == 400
    assert len(found["comparison"]["answers"]) == 6, "three times the questions at the end"
    assert found["comparison"]["after"] == last.label
    assert {"preference", "capability", "on_topic"} <= set(found["comparison"]["measures"])
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")

    table = run("eval", "--user", "demo-brief", "--num-items", "40", *measured, cwd=tmp_path)
    assert last.label in table.splitlines()[0]
    retired = next(version for version in reader.versions() if version.state == "retired" and version.weights)
    other = (
        "--user",
        "demo-brief",
        "--version",
        str(retired.number),
        "--compare",
        str(last.number),
        "--num-items",
        "20",
    )
    assert json.loads(run("eval", *other, *measured, "--json", cwd=tmp_path))["after"] == retired.label


def test_versions_are_evaluated_in_the_background_where_that_is_wished(server: Server) -> None:
    def metrics() -> dict[str, float]:
        reader = StoreReader.open(server.data_dir)
        return {name: value for step in reader.steps("demo-brief") for name, value in step.metrics.items()}

    server.wait_until(lambda: "eval/capability" in metrics())
    assert 0.0 <= metrics()["eval/capability"] <= 1.0
    assert "openclaw_rl_eval_on_topic" in httpx.get(f"{server.url}/metrics", headers=server.headers).text


def test_ctrl_c_leaves_what_was_learned_where_it_is(settings: tuple[str, ...], tmp_path: Path) -> None:
    arguments = ("--minutes", "30", "--num-questions", "1", "--max-tokens", "24", "--json")
    process = subprocess.Popen(
        [sys.executable, "-m", "openclaw_rl", "demo", *arguments, *settings],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "HOME": str(tmp_path / "home")},
    )
    assert process.stderr is not None
    seen = ""
    while "v1.demo-brief " not in seen:  # a candidate may be live before anybody looks
        line = process.stderr.readline()
        assert line, seen
        seen += line
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    found = json.loads(out)
    (place,) = tmp_path.glob("openclaw-rl-demo-*")
    assert (found["is_interrupted"], found["data_dir"]) == (True, str(place))
    (first, *_) = StoreReader.open(place).versions(every_model=True)
    assert (first.label, Path(str(first.folder)).is_dir()) == ("v1.demo-brief", True)
    assert not (place / "run" / "address.json").exists(), "its server is stopped"
