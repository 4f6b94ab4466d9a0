"""Three lessons: one is undone, what came after it is learned again, and sessions are forgotten to the last byte."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.store import StoreReader
from openclaw_rl.types import Skip, Version
from tests.server import OPEN_GATE, Server
from tests.tiny import build_tiny_model

pytestmark = pytest.mark.timeout(300)

MARKER = "zanzibar-quetzal"


def command(server: Server, *words: str) -> Any:
    """A command in a terminal of its own, as JSON."""
    line = [sys.executable, "-m", "openclaw_rl", *words, "--data-dir", str(server.data_dir)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in words else done.stdout


def live(reader: StoreReader) -> Version | None:
    return next((one for one in reader.versions() if one.state == "live"), None)


def teach(server: Server, reader: StoreReader, session: str, question: str) -> str:
    """A question and a correction; the turn that taught, once a version has learned from it and answers."""
    before = len(reader.steps("local"))
    asked = [{"role": "user", "content": question}]
    first = server.chat(asked, max_tokens=8, session_id=session)
    said = {"role": "assistant", "content": first.json()["choices"][0]["message"]["content"]}
    correction = {"role": "user", "content": "no, shorter please"}
    server.chat([*asked, said, correction], max_tokens=8, session_id=session)
    server.wait_until(lambda: len(reader.steps("local")) > before, timeout_s=60.0)
    server.wait_until(lambda: (one := live(reader)) is not None and one.number == before + 1, timeout_s=60.0)
    return first.headers["X-OpenClaw-RL-Turn"]


def found_in(folder: Path, words: str) -> list[str]:
    """The files that hold these words. The settings of the test hold none."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and words.encode() in path.read_bytes()]


def test_a_lesson_is_undone_the_rest_learned_again_and_a_session_forgotten(tmp_path: Path) -> None:
    settings = (
        "engine.type=embedded",
        f"model.name={build_tiny_model(tmp_path / 'model')}",
        "training.batch_size=1",
        "training.max_wait_s=0.1",
        "training.lora_rank=2",
        "training.truncated=score",  # a random model never comes to an end
        "training.replay_max_age=0",
        "tracking.record_enabled=true",
        *OPEN_GATE,
    )
    data = tmp_path / "data"
    with Server(data, *settings) as server:
        reader = StoreReader.open(data)
        first = teach(server, reader, "one", "what is rain")
        second = teach(server, reader, "two", f"what is {MARKER}")
        third = teach(server, reader, "one-more", "what is ice")
        assert [step.sample_ids for step in reader.steps("local")] == [(first,), (second,), (third,)]

        told = command(server, "why", "v2", "--json", f"model.name={tmp_path / 'model'}")
        (lesson,) = told["lessons"]
        assert (lesson["sample"], lesson["lesson"]["judgement"]["score"], told["parent"]) == (second, -1, 1)
        assert any(abs(one["after"] - one["before"]) > 1e-6 for one in lesson["moved"]), told["notes"]
        assert "shorter" in json.dumps(lesson["lesson"]["next_state"])
        (use,) = command(server, "why", second, "--json")["uses"]
        assert (use["version"], use["version_state"], use["in_live"]) == ("v2", "retired", True)

        undone = command(server, "undo", second, "--json")
        assert (undone["answered"], undone["answers"], undone["undone"]) == ("v3", "v1", ["v2", "v3"])
        assert (undone["removed"], undone["returned"]) == (1, 1)
        assert server.chat("still there?", max_tokens=4).status_code == 200
        server.wait_until(lambda: (one := live(reader)) is not None and one.number == 4, timeout_s=60.0)
        rebuilt = reader.steps("local")[3]
        assert (rebuilt.parent, rebuilt.sample_ids) == (1, (third,)), "what was not undone is learned again"
        assert [one.state for one in reader.versions()] == ["retired", "rolled_back", "rolled_back", "live"]
        assert reader.turn("two", 0).skip == Skip.UNDONE  # type: ignore[union-attr]
        assert command(server, "why", second, "--json")["uses"][0]["version_state"] == "rolled_back"

        folder = tmp_path / "exported"
        command(server, "export", "v4", str(folder))
        assert sorted(path.name for path in folder.iterdir()) == [
            "README.md",
            "adapter_config.json",
            "adapter_model.safetensors",
        ]
        assert found_in(data, MARKER)
        forgotten = command(server, "forget", "two", "--json")
        assert (forgotten["answers"], forgotten["deleted"], forgotten["erased"]) == ("v4", ["v2", "v3"], True)
        assert found_in(data, MARKER) == []
        assert not (data / "versions" / "v2").exists()
        assert not (data / "versions" / "v3").exists()
        assert (reader.session("two"), reader.turn("one", 0) is None) == (None, False)

        forgotten = command(server, "forget", "one", "--json")
        assert (forgotten["answers"], forgotten["deleted"]) == ("v0", ["v1", "v2", "v3", "v4"])
        server.wait_until(lambda: (one := live(reader)) is not None and one.number == 5, timeout_s=60.0)
        assert (reader.steps("local")[4].parent, reader.steps("local")[4].sample_ids) == (0, (third,))

        taken = command(server, "import", str(folder), "--json")
        assert (taken["version"], taken["state"]) == ("v6", "live"), taken
        fourth = teach(server, reader, "four", "what is fog")
        assert (reader.steps("local")[6].parent, reader.steps("local")[6].sample_ids) == (6, (fourth,))
        assert live(reader).number == 7  # type: ignore[union-attr]
        assert command(server, "forget", "local", "--user", "--json")["answers"] == "v0"
        assert (reader.sessions(), live(reader), list((data / "versions").glob("v*"))) == ([], None, [])
        assert found_in(data, "shorter please") == []
        assert server.chat("and still there?", max_tokens=4).headers["X-OpenClaw-RL-Version"] == "v0"
