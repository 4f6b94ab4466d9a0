"""What people see of the settings: the dump, the rows, and no secrets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from openclaw_rl.config import Config, dump, explain, load_config
from openclaw_rl.config.keys import LEAVES
from openclaw_rl.config.sources import _nest
from openclaw_rl.errors import ConfigError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.sampled_from(
    ["1e-6", "010", "yes", "null", "~", "2026-01-01", "0x1f", "true", " padded ", "a: b", "# no comment", "1:30", "<<"]
)
FLOATS = st.floats(min_value=1e-12, max_value=1e12)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "model.name": TEXT,
    "model.served_name": st.none() | TEXT,
    "model.checkpoint_path": st.none() | TEXT.filter(lambda text: "\0" not in text).map(lambda text: f"/m/{text}"),
    "gateway.port": st.integers(0, 65535),
    "gateway.require_key": st.booleans(),
    "gateway.allowed_hosts": st.lists(TEXT, max_size=3),
    "gateway.default_max_tokens": st.none() | st.integers(1, 10**9),
    "gateway.keepalive_s": FLOATS,
    "engine.type": st.sampled_from(["embedded", "scripted", "vllm"]),
    "engine.scripted.replies": st.lists(st.fixed_dictionaries({"match": st.just("a.*"), "reply": TEXT}), max_size=2),
    "rollout.message_classification.side": st.lists(st.just("system")),
    "training.learning_rate": FLOATS,
    "training.gpu_ids": st.lists(st.integers(0, 15), max_size=4),
    "tracking.wandb_run_name": st.none() | TEXT,
}


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(values={"model.name": "a\x85b\u2028c"})
@given(values=st.fixed_dictionaries({}, optional=VALUES))
def test_a_dump_loads_as_the_same_tree(tmp_path: Path, values: dict[str, Any]) -> None:
    config = Config.model_validate(_nest(values))
    file = tmp_path / "dump.yaml"
    file.write_text(dump(config), encoding="utf-8")
    loaded = load_config([file], {})
    assert loaded.config == config
    assert set(loaded.sources.values()) == {f"file {file}"}


NO_SECRETS = ("gateway.require_key", "training.loss_per_token")
SECRETS = [key for key in LEAVES if key.endswith(("_key", "_token")) and key not in NO_SECRETS]


def test_secrets_never_show(tmp_path: Path) -> None:
    assert len(SECRETS) == 9
    overrides = [f"{key}=hunter2" for key in SECRETS]
    urls = ["store.url=postgresql://me:hunter2@db/x", "evaluation.judge_url=https://h/v1?api_key=hunter2&a=1"]
    loaded = load_config(env={}, overrides=[*overrides, *urls])
    shown = dump(loaded.config)
    rows = {row.key: row.value for row in explain(loaded)}
    for text in (shown, repr(loaded), str(rows)):
        assert "hunter2" not in text
    assert rows["gateway.api_key"] == "***"
    assert rows["store.url"] == "postgresql://me:***@db/x"
    assert rows["evaluation.judge_url"] == "https://h/v1?api_key=***&a=1"
    assert loaded.config.store.url == "postgresql://me:hunter2@db/x"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:a/b@c@db/x", "postgresql://me:***@db/x"),
        ("https://host:8080/v1", "https://host:8080/v1"),
        ("sqlite:////data/store.sqlite3", "sqlite:////data/store.sqlite3"),
        ("postgresql:///x?host=db&password=p", "postgresql:///x?host=db&password=***"),
    ],
)
def test_only_the_password_of_a_url_is_hidden(url: str, shown: str) -> None:
    rows = explain(load_config(env={}, overrides=[f"store.url={url}"]))
    assert [row.value for row in rows if row.key == "store.url"] == [shown]


@pytest.mark.parametrize("override", ["gateway.api_key=***", "store.url=postgresql://me:***@db/x"])
def test_a_hidden_secret_is_not_a_secret(override: str) -> None:
    with pytest.raises(ConfigError, match="hidden in a dump; give the secret or remove the line"):
        load_config(env={}, overrides=[override])


def test_an_error_does_not_repeat_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("gateway: {api_key: 31337}")
    with pytest.raises(ConfigError) as error:
        load_config([file], {})
    assert str(error.value) == f"gateway.api_key = *** (file {file}): Input should be a valid string"


def test_a_config_never_changes() -> None:
    config = Config()
    with pytest.raises(ValidationError, match="frozen"):
        config.gateway.port = 1
    with pytest.raises(ValidationError, match="frozen"):
        config.gateway = config.gateway


def test_every_setting_is_explained() -> None:
    loaded = load_config(env={}, overrides=["gateway.port=8000", "training.gpu_ids=2,3"])
    rows = {row.key: row for row in explain(loaded)}
    assert list(rows) == list(LEAVES)
    for row in rows.values():
        assert row.doc.endswith("."), f"{row.key} needs a one-line description"
        assert "\n" not in row.doc
    assert (rows["gateway.port"].value, rows["gateway.port"].source) == ("8000", "command line")
    assert rows["training.gpu_ids"].value == "[2, 3]"
    assert rows["model.served_name"].value == "null"
    assert rows["gateway.require_key"].value == "true"


def test_the_settings_are_read_without_heavy_imports() -> None:
    script = (
        "import sys, openclaw_rl.config; print(sorted({'torch','transformers','numpy','aiohttp'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
