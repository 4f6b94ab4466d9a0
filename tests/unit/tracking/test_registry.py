"""Settings become observers, and what cannot be is said at the start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from openclaw_rl.config import load_config
from openclaw_rl.errors import ConfigError
from openclaw_rl.tracking import check_tracking, make_observers
from openclaw_rl.tracking.registry import _facts
from tests.factories.events import credited, step, version


def test_nothing_but_console_and_prometheus_unless_it_is_asked_for(tmp_path: Path) -> None:
    said: list[str] = []
    registry = CollectorRegistry()
    config = load_config(env={}, overrides=[f"store.data_dir={tmp_path}"]).config
    observers = make_observers(config, registry=registry, say=said.append, known=[version(1)])
    observers.credited(*credited())
    observers.stepped(step(3))
    observers.changed(version(3))
    observers.close()
    assert len(said) == 1
    assert registry.get_sample_value("openclaw_rl_loss_total") == 0.41
    assert registry.get_sample_value("openclaw_rl_versions", {"state": "retired"}) == 1
    assert list(tmp_path.iterdir()) == []


def test_files_are_where_the_settings_say(tmp_path: Path) -> None:
    overrides = [f"store.data_dir={tmp_path / 'data'}", f"tracking.tensorboard_dir={tmp_path / 'board'}"]
    config = load_config(env={"OPENCLAW_RECORD_ENABLED": "1"}, overrides=overrides).config
    observers = make_observers(config, registry=CollectorRegistry())
    observers.credited(*credited())
    observers.stepped(step(3))
    observers.close()
    assert {path.name for path in (tmp_path / "data" / "records").iterdir()} == {"turns.jsonl", "steps.jsonl"}
    assert [path.name for path in (tmp_path / "board").iterdir()] == ["local"]


def test_online_needs_a_key() -> None:
    config = load_config(env={}, overrides=["tracking.wandb_mode=online"]).config
    with pytest.raises(ConfigError, match="WANDB_API_KEY"):
        check_tracking(config.tracking)
    check_tracking(load_config(env={"WANDB_API_KEY": "k"}, overrides=["tracking.wandb_mode=online"]).config.tracking)


@pytest.mark.parametrize(
    ("package", "setting"), [("wandb", "tracking.wandb_mode=offline"), ("tensorboard", "tracking.tensorboard_dir=b")]
)
def test_a_package_that_is_missing_is_named_with_the_remedy(package: str, setting: str) -> None:
    program = f"""
import sys
sys.modules["{package}"] = None
from openclaw_rl.config import load_config
from openclaw_rl.tracking import check_tracking
check_tracking(load_config(env={{}}).config.tracking)
check_tracking(load_config(env={{}}, overrides=["{setting}"]).config.tracking)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (
        f"needs the package {package}; install it (pip install openclaw-rl[tracking]), or go on without"
        in result.stderr
    )


def test_no_path_key_or_address_leaves_with_the_settings(tmp_path: Path) -> None:
    private = ("save_path", "teacher_path", "tinker_api_key", "tinker_project_id", "master_addr", "custom_loss")
    overrides = [f"training.{name}=/home/me/{name}" for name in private]
    facts = _facts(load_config(env={}, overrides=overrides).config.training)
    assert (facts["learning_rate"], facts["method"]) == (3e-4, "combine")
    assert not [value for value in facts.values() if isinstance(value, str) and "/" in value]
    assert not set(private) & set(facts)
