"""A whole demo on a tiny model: turns become steps, versions are measured as they go live, and nobody else's learns."""

from __future__ import annotations

import json
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
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("demo")
    settings = (
        "engine.type=embedded",
        f"model.name={build_tiny_model(folder / 'model')}",
        "training.batch_size=2",
        "training.max_wait_s=0.5",
        "training.truncated=score",  # a random model never comes to an end
        "evaluation.eval_frequency=1",
        *OPEN_GATE,
    )
    with Server(folder / "data", *settings) as running:
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
    assert found["points"][-1]["capability_items"] == 636
    assert found["comparison"]["after"] == last.label
    assert {"preference", "capability", "on_topic"} <= set(found["comparison"]["measures"])
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")

    table = run("eval", "--user", "demo-brief", "--num-items", "40", *measured, cwd=tmp_path)
    assert last.label in table.splitlines()[0]
    retired = next(version for version in reader.versions() if version.state == "retired" and version.path)
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
