"""configs/: one file for each documented launcher; each loads, says what decides, and is taken at start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.config import LoadedConfig, load_config, require_available

FOLDER = Path(__file__).parents[3] / "configs"
EQUAL_PARTS = {"method": "combine", "binary_weight": 0.5, "opd_weight": 0.5, "batch_size": 32, "gae_lambda": 0.95}
DECISIVE: dict[str, dict[str, Any]] = {
    "binary": {
        "method": "binary",
        "use_lora": False,
        "batch_size": 32,
        "learning_rate": 1e-6,
        "clip_grad_norm": 1.0,
        "ppo_clip_ratio": 0.2,
        "ppo_clip_ratio_high": None,
        "num_epochs": 1,
    },
    "opd": {"method": "opd", "distillation": "token", "teacher": "current", "ppo_clip_ratio": 0.2},
    "combine": {
        **EQUAL_PARTS,
        "use_lora": False,
        "gradient_accumulation_steps": 4,
        "learning_rate": 1e-6,
        "warmup_steps": 100,
        "max_steps": 10000,
    },
    "combine-lora": {
        **EQUAL_PARTS,
        "use_lora": True,
        "lora_rank": 16,
        "lora_alpha": 32.0,
        "lora_dropout": 0.1,
        "lora_target_modules": ("q_proj", "k_proj", "v_proj", "o_proj"),
    },
    "qwen3-4b-topk-select": {
        "method": "combine",
        "preset": "reference",
        "use_lora": False,
        "batch_size": 16,
        "max_wait_s": None,
        "learning_rate": 1e-5,
        "adam_betas": (0.9, 0.98),
        "weight_decay": 0.1,
        "advantage": "raw",
        "binary_weight": 1.0,
        "opd_weight": 1.0,
        "top_k": 4,
        "hint_selection": "sequence_optimal",
        "subset_mode": "student",
        "adv_diff_clip": 1.0,
        "ppo_clip_ratio": 0.2,
        "ppo_clip_ratio_high": 0.28,
        "num_epochs": 1,
    },
}


def loaded(name: str) -> LoadedConfig:
    return load_config([FOLDER / f"{name}.yaml"], env={})


def test_every_launcher_has_its_file() -> None:
    assert {path.name for path in FOLDER.glob("*.yaml")} == {f"{name}.yaml" for name in DECISIVE}


@pytest.mark.parametrize("name", DECISIVE)
def test_a_file_sets_what_decides_and_a_start_takes_it(name: str) -> None:
    read = loaded(name)
    assert {key: getattr(read.config.training, key) for key in DECISIVE[name]} == DECISIVE[name]
    require_available(read.config)
    assert (FOLDER / f"{name}.yaml").read_text().startswith("# run_"), "says which launcher it stands for"


def test_policy_judge_and_teacher_of_the_published_launcher_are_one_model() -> None:
    config = loaded("qwen3-4b-topk-select").config
    assert (config.model.name, config.evaluation.judge) == ("Qwen/Qwen3-4B-Thinking-2507", ("self",))
    assert (config.evaluation.num_judges, config.evaluation.max_candidates) == (3, 3)
    assert config.training.teacher == "base"
