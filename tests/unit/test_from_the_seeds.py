"""docs/from-the-seeds.md is true: each name of both documented pages is set here, and what changes is looked at."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name

import pytest
import typer

from openclaw_combine.launch import CONFIGS, SCRIPTS, translate
from openclaw_rl import compat
from openclaw_rl.cli import app as cli
from openclaw_rl.config import ALIASES, Config, load_config, require_available
from openclaw_rl.config.keys import LEAVES, limit_of, resolve
from openclaw_rl.credit.measures import MEASURES
from openclaw_rl.credit.registry import CreditSettings
from openclaw_rl.errors import ConfigError
from openclaw_rl.judge.evidence import build_evidence
from openclaw_rl.judge.loop import JudgeSettings
from openclaw_rl.judge.registry import check_judge
from openclaw_rl.tracking.meanings import MEANINGS
from openclaw_rl.train.objective.settings import LossSettings
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.types import Message
from tests.unit.judge.test_evidence import followed_by, turn_of

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "from-the-seeds.md").read_text(encoding="utf-8")
REFUSED = "refused"

# Every name that the two pages use: the README of openclaw-combine, then the openclaw-rl-training skill.
FLAGS = """
    --eps-clip --eps-clip-high
    --rollout-function-path --num-rollout-workers --rollout-batch-size --max-turns --custom-rm-path --rm-checkpoint
    --reward-aggregation --lr --lr-warmup-samples --clip-grad --ppo-clip-ratio --num-epochs --nproc_per_node --nnodes
    --node_rank --master_addr --master_port --model-path --port --gpu-ids --checkpoint-dir --method --gpus --model
    --benchmark --lora --parallel-envs --async-collection"""
VARIABLES = """
    OPENCLAW_TOPK_W_RL OPENCLAW_TOPK_W_OPD OPENCLAW_TOPK_K OPENCLAW_TOPK_MAX_CAND PRM_M OPENCLAW_TOPK_HINT_SELECTION
    OPENCLAW_TOPK_SUBSET_MODE OPENCLAW_TOPK_ADV_DIFF_CLIP OPENCLAW_COMBINE_OPD_TEACHER_SOURCE OPENCLAW_RECORD_ENABLED
    NUM_GPUS ACTOR_GPUS ROLLOUT_GPUS PRM_GPUS PRM_TEACHER_GPUS HF_CKPT REF_LOAD SAVE_CKPT PRM_MODEL_PATH
    PRM_TEACHER_LOAD PRM_TEACHER_HF OPENCLAW_API_KEY WANDB_API_KEY HF_TOKEN MASTER_ADDR MASTER_PORT NNODES NODE_RANK
    GPUS_PER_NODE CKPT_PATH TOKENIZER_PATH TASK_TYPE MAX_STEPS TOOLS_CONFIG USE_LORA LORA_RANK LORA_ALPHA LORA_DROPOUT
    TINKER_API_KEY TINKER_PROJECT_ID FIREWORKS_API_KEY OPENCLAW_DEBUG ROLLOUT_LOG_LEVEL BATCH_SIZE GRAD_ACCUM_STEPS
    USE_GRADIENT_CHECKPOINTING LEARNING_RATE CLIP_GRAD_NORM PPO_CLIP_RATIO VALUE_CLIP"""
FILES = """
    openclaw_topk_select_loss.py openclaw_combine_select_api_server.py openclaw_combine_select_rollout.py
    prm_teacher_postprocess.py combine_loss.py results/ requirements.txt rollout_binary.py rollout_opd.py
    process_reward_model.py custom_opd_loss.py hybrid_loss.py terminal_rollout.py gui_rollout.py toolcall_trainer.py
    tools_config.json lora_config.py custom_reward.py session_processor.py wandb_logging.py"""
KEYS: dict[str, tuple[str, str]] = {
    "model.name": ("qwen3-4b", ""),
    "model.checkpoint_path": ("/m", ""),
    "model.tokenizer_path": ("/t", ""),
    "training.method": ("opd", ""),
    "training.batch_size": ("32", ""),
    "training.gradient_accumulation_steps": ("4", ""),
    "training.learning_rate": ("1e-6", ""),
    "training.warmup_steps": ("100", ""),
    "training.max_steps": ("10000", ""),
    "training.ppo_clip_ratio": ("0.1", ""),
    "training.value_clip_ratio": ("0.2", ""),
    "training.gae_lambda": ("0.95", ""),
    "training.teacher_temperature": ("2.0", ""),
    "training.hint_extraction_model": ("gpt-4", ""),
    "training.binary_weight": ("0.5", ""),
    "training.opd_weight": ("0.5", ""),
    "rollout.num_workers": ("16", ""),
    "rollout.max_turns": ("20", ""),
    "rollout.parallel_envs": ("32", ""),
    "rollout.session_aware": ("false", ""),
    "evaluation.judge_model": ("gpt-4", ""),
    "evaluation.majority_voting": ("false", ""),
    "evaluation.num_judges": ("5", ""),
    "evaluation.eval_frequency": ("100", ""),
    "evaluation.consensus_threshold": ("0.6", ""),
    "rollout_config.collection_mode": ("sync", REFUSED),
    "rollout_config.max_concurrent_sessions": ("100", ""),
    "rollout_config.session_timeout": ("60", ""),
    "rollout_config.trajectory_format": ("flat", REFUSED),
    "rollout_config.message_classification.main_line": ("user", ""),
    "rollout_config.message_classification.side": ("", ""),
    "rollout_config.reward_computation.type": ("outcome", REFUSED),
    "rollout_config.reward_computation.aggregation": ("mean", REFUSED),
    "rollout_config.reward_computation.num_samples": ("5", ""),
}
"""Every key of both settings files, with a value that is not the default, and whether that is refused."""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    ours: tuple[str, ...]

    @property
    def is_refused(self) -> bool:
        return not self.ours


def table(heading: str) -> list[Row]:
    """The rows of a table; a row that is refused has nothing of ours."""
    section = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [re.split(r" ?\| ?", line.strip("|"))[:2] for line in section.splitlines() if line.startswith("| `")]
    for _, ours in rows:
        assert ours.strip() == REFUSED or "`" in ours, f"{ours!r} is neither refused nor something of ours"
    return [Row(name.strip(" `"), tuple(re.findall("`([^`]+)`", ours))) for name, ours in rows]


def changed(config: Config) -> set[str]:
    tree, default = config.model_dump(), Config().model_dump()

    def at(where: object, key: str) -> object:
        for name in key.split("."):
            where = where[name]  # type: ignore[index]
        return where

    return {key for key in LEAVES if at(tree, key) != at(default, key)}


def is_there(place: str) -> bool:
    """Whether a setting, a path or a target of make is there."""
    key, equals, value = place.partition("=")
    if key in LEAVES:
        assert limit_of(key) is None
        if equals:
            load_config(env={}, overrides=[place])
        if key == "training.custom_loss":
            assert callable(resolve_name(value))
        return True
    if place.startswith("make "):
        return re.search(rf"^{place.removeprefix('make ')}:", (ROOT / "Makefile").read_text(), re.M) is not None
    return (ROOT / place).exists()


def test_every_documented_name_has_its_row() -> None:
    assert {row.name for row in table("Scripts")} == set(SCRIPTS)
    assert sorted(row.name.partition(" ")[0] for row in table("Flags")) == sorted(FLAGS.split())
    assert sorted(row.name.partition("=")[0] for row in table("Environment variables")) == sorted(VARIABLES.split())
    assert {alias.variable for alias in ALIASES} == set(VARIABLES.split())
    assert {row.name for row in table("Python names")} == set(FILES.split())


@pytest.mark.parametrize("row", table("Environment variables"), ids=lambda row: row.name)
def test_a_variable_does_what_its_row_says(row: Row) -> None:
    variable, _, text = row.name.partition("=")
    config = load_config(env={variable: text}).config
    if row.is_refused:
        with pytest.raises(ConfigError, match=rf"\(variable {variable}\)") as refusal:
            require_available(config)
        assert str(refusal.value).count("\n") == 0
    else:
        assert config == load_config(env={}, overrides=row.ours).config
        assert changed(config) >= {setting.partition("=")[0] for setting in row.ours}


@pytest.mark.parametrize("row", table("Flags"), ids=lambda row: row.name)
def test_a_flag_does_what_its_row_says(row: Row) -> None:
    _, _, file, *settings = translate("run_binary_rl.sh", shlex.split(row.name))
    if row.is_refused:
        with pytest.raises(ConfigError, match=settings[0].partition("=")[0]):
            require_available(load_config([Path(file)], {}, settings).config)
    else:
        config = load_config([Path(file)], {}, settings).config
        require_available(config)
        assert config == load_config([Path(file)], {}, row.ours).config
        only_value = row.name in ("--async-collection", "--reward-aggregation majority")
        assert (config == load_config([Path(file)], {}).config) == only_value


@pytest.mark.parametrize("row", table("Scripts"), ids=lambda row: row.name)
def test_a_script_runs_what_its_row_says(row: Row) -> None:
    if row.is_refused:
        with pytest.raises(ConfigError, match="comes? later"):
            require_available(load_config(env={}, overrides=translate(row.name, [])[1:]).config)
    else:
        (command,) = row.ours
        ours = [word.replace("configs/", f"{CONFIGS}/") for word in shlex.split(command)]
        assert ["openclaw-rl", *translate(row.name, [])] == ours


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_the_settings_files_has_an_effect(key: str) -> None:
    value, effect = KEYS[key]
    ours = resolve(key, "test")
    if effect == REFUSED:
        with pytest.raises(ConfigError, match=re.escape(ours)) as refusal:
            require_available(load_config(env={}, overrides=[f"{key}={value}"]).config)
        assert re.search("is the only value|leave it at", str(refusal.value))
        return
    chosen = {setting for row in table("Settings files") if row.name == key for setting in row.ours}
    found = load_config(env={}, overrides=[f"{key}={value}"])
    # What a key chooses counts as well: three documented values are our defaults.
    assert changed(found.config) | {ours} >= {ours, *(setting.partition("=")[0] for setting in chosen)}
    assert changed(found.config)
    assert found.config == load_config(env={}, overrides=[f"{key}={value}", *chosen]).config


def test_the_settings_files_load_unmodified_and_start() -> None:
    data = ROOT / "tests" / "data"
    require_available(load_config([data / "seed_training_config.yaml", data / "seed_rollout_config.json"], {}).config)


def test_the_training_file_makes_the_parts_that_it_names() -> None:
    config = load_config([ROOT / "tests" / "data" / "seed_training_config.yaml"], {}).config
    credit = CreditSettings.of(config.training, config.rollout)
    assert (credit.measure, credit.lam) == (MEASURES["session_gae"], 0.95)
    values = config.training.model_dump(mode="json")
    assert TrainSettings.from_training(values).critic
    loss = LossSettings.from_training(values)
    assert (loss.critic, loss.value_clip, loss.value_clip_ratio) == (True, True, 0.2)
    with pytest.raises(ConfigError, match="needs evaluation.judge_url; .* go on without it: evaluation.judge=rules"):
        check_judge(config.evaluation)


def test_with_the_rollout_file_tool_results_alone_are_judged() -> None:
    config = load_config([ROOT / "tests" / "data" / "seed_rollout_config.json"], {}).config
    settings = JudgeSettings.of(config)
    state = followed_by(Message(role="tool", content="exit 1"))
    evidence = build_evidence(turn_of(), state, (), main_line=settings.main_line, side=settings.side, max_chars=100)
    assert evidence is not None
    assert [message.role for message in evidence.following] == ["tool"]


@pytest.mark.parametrize("row", table("Python names"), ids=lambda row: row.name)
def test_a_file_of_the_seeds_leads_to_ours(row: Row) -> None:
    assert row.is_refused == (row.name == "gui_rollout.py")
    assert all(is_there(place) for place in row.ours)


def test_names_and_metrics_are_there() -> None:
    names = re.findall("`([^`]+)`", TEXT.partition("## Python names\n")[2].partition("\n| From")[0])
    assert set(compat.__all__) | {"loss/total", "reward/std"} <= set(names)
    for name in set(names) - {"openclaw_combine", "openclaw_rl/compat.py"}:
        assert name in MEANINGS or callable(resolve_name(f"openclaw_combine.{name}"))


def test_flags_that_belong_to_a_command_are_its_flags() -> None:
    group = typer.main.get_group(cli.app).commands
    rollouts = group["rollouts"].commands  # type: ignore[attr-defined]
    flags = {name: {o for p in command.params for o in p.opts} for name, command in rollouts.items()}
    assert {"--api-endpoint", "--output-dir", "--session-aware"} <= flags["collect"]
    assert {"--num-samples", "--output-dir"} <= flags["test"]
    assert "--rollout-dir" in {o for p in group["train"].params for o in p.opts}
