"""`training.preset`: which defaults it moves, who is stronger, and what people see of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from openclaw_rl.config import Config, TrainingConfig, load_config
from openclaw_rl.config.keys import LEAVES
from openclaw_rl.config.presets import preset_defaults

REFERENCE = "training.preset=reference"


def training(*overrides: str, env: dict[str, str] | None = None) -> TrainingConfig:
    return load_config(env=env or {}, overrides=overrides).config.training


def test_the_published_recipe_of_adapters() -> None:
    found = training(REFERENCE)
    assert (found.use_lora, found.lora_rank, found.lora_alpha, found.num_epochs) == (True, 64, 64.0, 2)
    assert (found.learning_rate, found.batch_size, found.max_wait_s) == (1e-5, 16, None)
    assert (found.binary_weight, found.opd_weight) == (1.0, 1.0)
    assert (found.advantage, found.unhinted_opd, found.hint_placement) == ("raw", True, "last_user")
    assert (found.importance_clip, found.max_staleness, found.logprob_temperature) == (None, None, 0.6)
    assert (found.accepted_rewrites, found.replay_max_age, found.anchors) == (False, 0, 0)
    assert (found.adam_betas, found.weight_decay) == ((0.9, 0.98), 0.1)


@pytest.mark.parametrize("written", ["training.use_lora=false", "training.use_lora=False"])
def test_the_published_recipe_of_full_weights(written: str) -> None:
    found = training(REFERENCE, written)
    ours = TrainingConfig()
    assert (found.learning_rate, found.num_epochs) == (1e-5, 1)
    assert (found.lora_rank, found.lora_alpha) == (ours.lora_rank, ours.lora_alpha)
    assert training(REFERENCE, env={"USE_LORA": "0"}).num_epochs == 1


def test_without_an_adapter_steps_are_as_small_as_whole_weights_need() -> None:
    assert (training().learning_rate, training("training.use_lora=false").learning_rate) == (3e-4, 1e-5)
    assert (training().num_epochs, training("training.use_lora=false").num_epochs) == (3, 1)
    assert training("training.use_lora=false", "training.learning_rate=2e-5").learning_rate == 2e-5
    loaded = load_config(env={}, overrides=["training.use_lora=false"])
    assert loaded.sources["training.learning_rate"] == "preset default"


def test_what_both_have_in_common_stays_the_class_default() -> None:
    """Equal in both, says docs/algorithms.md: a preset that set these would hide a change of ours."""
    moved = preset_defaults({"training.preset": "reference"})
    for name in ("opd_weight", "ppo_clip_ratio", "ppo_clip_ratio_high", "top_k", "hint_selection"):
        assert f"training.{name}" not in moved
    for name in ("subset_mode", "adv_diff_clip", "teacher", "kl_coef", "loss_per_token", "method"):
        assert f"training.{name}" not in moved


def test_every_source_is_stronger_than_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("training: {preset: reference, batch_size: 4, importance_clip: 3.0}")
    env = {"LORA_RANK": "8", "OPENCLAW_RL__TRAINING__ANCHORS": "2"}
    loaded = load_config([file], env, ["training.max_wait_s=5"])
    found = loaded.config.training
    assert (found.batch_size, found.importance_clip, found.lora_rank) == (4, 3.0, 8)
    assert (found.anchors, found.max_wait_s, found.lora_alpha) == (2, 5.0, 64.0)
    assert loaded.sources["training.batch_size"] == f"file {file}"
    assert loaded.sources["training.lora_rank"] == "env LORA_RANK (alias)"
    assert loaded.sources["training.lora_alpha"] == "preset reference"


def test_each_value_says_that_the_preset_set_it() -> None:
    loaded = load_config(env={}, overrides=[REFERENCE])
    moved = {key for key, source in loaded.sources.items() if source == "preset reference"}
    assert moved == set(preset_defaults({"training.preset": "reference"})) <= set(LEAVES)
    assert loaded.sources["training.top_k"] == "default"
    assert load_config(env={}, overrides=["training.preset=default"]).config == Config()


def test_the_command_shows_it() -> None:
    command = [sys.executable, "-m", "openclaw_rl", "config", REFERENCE, "training.batch_size=2"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (rank,) = [line for line in shown.splitlines() if "training.lora_rank" in line]
    (size,) = [line for line in shown.splitlines() if line.split()[:1] == ["training.batch_size"]]
    assert "64" in rank
    assert "preset reference" in rank
    assert "preset reference" not in size
