"""`config`: every setting with its value and source."""

from __future__ import annotations

import json

import pytest

from openclaw_rl.cli.doctor.settings import show_settings
from openclaw_rl.config import LoadedConfig, load_config
from openclaw_rl.config.keys import LEAVES
from openclaw_rl.errors import ConfigError

CAPS = pytest.CaptureFixture[str]


@pytest.fixture
def loaded() -> LoadedConfig:
    env = {"OPENCLAW_API_KEY": "hush", "OPENCLAW_RL__GATEWAY__PORT": "31000"}
    return load_config(env=env, overrides=["engine.scripted.tokens_per_s=5", "training.nnodes=8"])


def test_the_whole_tree_as_json(loaded: LoadedConfig, capsys: CAPS) -> None:
    show_settings(loaded, [], as_json=True)
    text = capsys.readouterr().out
    rows = json.loads(text)
    assert list(rows) == list(LEAVES)
    assert rows["gateway.port"]["value"] == 31000
    assert rows["gateway.port"]["source"] == "env OPENCLAW_RL__GATEWAY__PORT"
    assert rows["engine.scripted.tokens_per_s"]["value"] == 5.0
    assert rows["model.name"]["source"] == "default"
    assert "hush" not in text


def test_only_what_is_asked_for_and_then_with_its_purpose(loaded: LoadedConfig, capsys: CAPS) -> None:
    show_settings(loaded, ["gateway.port", "engine.scripted"], as_json=True)
    assert list(json.loads(capsys.readouterr().out)) == [
        "gateway.port",
        "engine.scripted.script",
        "engine.scripted.replies",
        "engine.scripted.tokens_per_s",
    ]
    show_settings(loaded, ["gateway.port"], as_json=False)
    head, row, doc = capsys.readouterr().out.splitlines()
    assert head.split() == ["setting", "value", "from"]
    assert row.split() == ["gateway.port", "31000", "env", "OPENCLAW_RL__GATEWAY__PORT"]
    assert doc.strip() == LEAVES["gateway.port"].description


def test_the_whole_tree_is_a_line_each_and_limits_are_told(loaded: LoadedConfig, capsys: CAPS) -> None:
    show_settings(loaded, [], as_json=False)
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(LEAVES)
    show_settings(loaded, ["evaluation.judge_gpus"], as_json=True)
    doc = json.loads(capsys.readouterr().out)["evaluation.judge_gpus"]["doc"]
    assert doc.endswith("or on a CPU (engine.device=cpu); leave it unset, or at 1.")


def test_an_unknown_key_names_the_nearest(loaded: LoadedConfig) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.port"):
        show_settings(loaded, ["gateway.prt"], as_json=False)
