"""The variables that people already have in their scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from openclaw_rl.config import ALIASES, SHORTHANDS, Alias, Config, load_config
from openclaw_rl.config.keys import LEAVES
from openclaw_rl.errors import ConfigError

DOCUMENTED: dict[str, tuple[str, object]] = {
    "HF_CKPT": ("/m", Path("/m")),
    "CKPT_PATH": ("/m", Path("/m")),
    "TOKENIZER_PATH": ("/t", Path("/t")),
    "HF_TOKEN": ("hf_1", SecretStr("hf_1")),
    "OPENCLAW_API_KEY": ("your_api_key_here", SecretStr("your_api_key_here")),
    "TASK_TYPE": ("bash_commands", "bash_commands"),
    "MAX_STEPS": ("51", 51),
    "TOOLS_CONFIG": ("/tools_config.json", Path("/tools_config.json")),
    "PRM_M": ("5", 5),
    "PRM_MODEL_PATH": ("/prm", Path("/prm")),
    "OPENCLAW_TOPK_MAX_CAND": ("2", 2),
    "OPENCLAW_TOPK_W_RL": ("0", 0.0),
    "OPENCLAW_TOPK_W_OPD": ("0", 0.0),
    "OPENCLAW_TOPK_K": ("8", 8),
    "OPENCLAW_TOPK_HINT_SELECTION": ("token_optimal", "token_optimal"),
    "OPENCLAW_TOPK_SUBSET_MODE": ("overlap", "overlap"),
    "OPENCLAW_TOPK_ADV_DIFF_CLIP": ("2.0", 2.0),
    "OPENCLAW_COMBINE_OPD_TEACHER_SOURCE": ("inference", "engine"),
    "PRM_TEACHER_HF": ("/teacher", Path("/teacher")),
    "PRM_TEACHER_LOAD": ("/teacher_dist", Path("/teacher_dist")),
    "PPO_CLIP_RATIO": ("0.1", 0.1),
    "VALUE_CLIP": ("true", True),
    "REF_LOAD": ("/ref", Path("/ref")),
    "SAVE_CKPT": ("/save", Path("/save")),
    "BATCH_SIZE": ("6", 6),
    "GRAD_ACCUM_STEPS": ("8", 8),
    "LEARNING_RATE": ("5e-7", 5e-7),
    "CLIP_GRAD_NORM": ("0.5", 0.5),
    "USE_GRADIENT_CHECKPOINTING": ("true", True),
    "USE_LORA": ("false", False),
    "LORA_RANK": ("8", 8),
    "LORA_ALPHA": ("16", 16.0),
    "LORA_DROPOUT": ("0.1", 0.1),
    "NUM_GPUS": ("8", 8),
    "ACTOR_GPUS": ("4", 4),
    "ROLLOUT_GPUS": ("2", 2),
    "PRM_GPUS": ("1", 1),
    "PRM_TEACHER_GPUS": ("1", 1),
    "MASTER_ADDR": ("10.0.0.1", "10.0.0.1"),
    "MASTER_PORT": ("6001", 6001),
    "NNODES": ("2", 2),
    "NODE_RANK": ("1", 1),
    "GPUS_PER_NODE": ("8", 8),
    "TINKER_API_KEY": ("tk", SecretStr("tk")),
    "TINKER_PROJECT_ID": ("0042", "0042"),
    "FIREWORKS_API_KEY": ("fw", SecretStr("fw")),
    "OPENCLAW_DEBUG": ("true", "debug"),
    "ROLLOUT_LOG_LEVEL": ("DEBUG", "debug"),
    "OPENCLAW_RECORD_ENABLED": ("1", True),
    "WANDB_API_KEY": ("wb", SecretStr("wb")),
}

CHOSEN = {
    "PRM_MODEL_PATH": {"evaluation.judge"},
    "PRM_TEACHER_HF": {"training.teacher"},
    "PRM_TEACHER_LOAD": {"training.teacher", "training.teacher_path"},
    "VALUE_CLIP": {"training.critic"},
    "REF_LOAD": {"model.checkpoint_path"},
    "WANDB_API_KEY": {"tracking.wandb_mode"},
    "BATCH_SIZE": {"training.task_batch_size"},
    "LEARNING_RATE": {"training.task_learning_rate"},
}
"""What these choose beside their own key."""


def at(config: Config, key: str) -> object:
    value: object = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def test_the_table_is_complete_and_points_at_settings() -> None:
    assert {alias.variable for alias in ALIASES} == set(DOCUMENTED)
    assert len(ALIASES) == len(DOCUMENTED)
    assert {alias.key for alias in ALIASES} <= set(LEAVES)
    assert set(SHORTHANDS.values()) <= set(LEAVES)


@pytest.mark.parametrize("alias", ALIASES, ids=lambda alias: str(alias.variable))
def test_a_documented_variable_sets_its_key_and_what_that_chooses(alias: Alias) -> None:
    text, value = DOCUMENTED[alias.variable]
    loaded = load_config(env={alias.variable: text})
    assert at(loaded.config, alias.key) == value != at(Config(), alias.key)
    changed = {key: source for key, source in loaded.sources.items() if not source.endswith("default")}
    chosen = {key for key, source in changed.items() if source.startswith("chosen by ")}
    assert {key: changed[key] for key in changed.keys() - chosen} == {alias.key: f"env {alias.variable} (alias)"}
    assert chosen == CHOSEN.get(alias.variable, set())


def test_the_launcher_defaults_load_together() -> None:
    launcher = {
        "NUM_GPUS": "8", "ACTOR_GPUS": "4", "ROLLOUT_GPUS": "2", "PRM_GPUS": "1", "PRM_TEACHER_GPUS": "1",
        "OPENCLAW_COMBINE_OPD_TEACHER_SOURCE": "megatron", "OPENCLAW_TOPK_W_RL": "1.0", "OPENCLAW_TOPK_W_OPD": "1.0",
        "OPENCLAW_TOPK_K": "4", "OPENCLAW_TOPK_MAX_CAND": "3", "PRM_M": "3",
        "OPENCLAW_TOPK_HINT_SELECTION": "sequence_optimal", "OPENCLAW_TOPK_SUBSET_MODE": "student",
        "OPENCLAW_TOPK_ADV_DIFF_CLIP": "1.0",
    }  # fmt: skip
    config = load_config(env=launcher).config
    named = {"num_gpus": 8, "actor_gpus": 4, "teacher_gpus": 1, "binary_weight": 1.0}
    assert config.training == Config().training.model_copy(update=named)
    assert config.evaluation == Config().evaluation.model_copy(update={"judge_gpus": 1, "num_judges": 3})


def test_an_empty_variable_is_unset() -> None:
    loaded = load_config(env=dict.fromkeys(DOCUMENTED, ""))
    assert loaded.config == Config()


def test_two_variables_for_one_key_must_agree() -> None:
    assert load_config(env={"HF_CKPT": "/a", "CKPT_PATH": "/a"}).config.model.checkpoint_path == Path("/a")
    with pytest.raises(ConfigError, match=r"HF_CKPT and CKPT_PATH set model\.checkpoint_path to different values"):
        load_config(env={"HF_CKPT": "/a", "CKPT_PATH": "/b"})


def test_both_ways_to_ask_for_debug_agree() -> None:
    loaded = load_config(env={"OPENCLAW_DEBUG": "true", "ROLLOUT_LOG_LEVEL": "DEBUG"})
    assert loaded.config.tracking.log_level == "debug"
    with pytest.raises(ConfigError, match="OPENCLAW_DEBUG and ROLLOUT_LOG_LEVEL set tracking.log_level to different"):
        load_config(env={"OPENCLAW_DEBUG": "1", "ROLLOUT_LOG_LEVEL": "ERROR"})


def test_debug_switched_off_sets_nothing() -> None:
    loaded = load_config(env={"OPENCLAW_DEBUG": "false", "ROLLOUT_LOG_LEVEL": "WARNING"})
    assert loaded.config.tracking.log_level == "warning"


def test_the_cache_follows_xdg_but_a_file_is_stronger(tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": "/cache"}
    assert load_config(env=env).config.model.cache_dir == Path("/cache/openclaw-rl/models")
    assert load_config(env={"XDG_CACHE_HOME": "relative"}).config == Config()
    file = tmp_path / "a.yaml"
    file.write_text("model: {cache_dir: /mine}")
    assert load_config([file], env).config.model.cache_dir == Path("/mine")
