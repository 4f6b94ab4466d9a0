"""docs/from-the-seeds.md is true: complete for both documented pages, and in step with settings and commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name

import pytest
import typer

from openclaw_rl import cli
from openclaw_rl.config import ALIASES, SHORTHANDS, load_config
from openclaw_rl.config.keys import LEAVES, is_later, resolve

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "from-the-seeds.md"


def leaf_commands() -> Iterator[tuple[str, typer.core.TyperCommand]]:
    for name, command in typer.main.get_group(cli.app).commands.items():
        inner = getattr(command, "commands", None)
        yield from ((f"{name} {sub}", each) for sub, each in inner.items()) if inner else [(name, command)]  # type: ignore[misc]


# Every name that the two pages use: the README of openclaw-combine, then the openclaw-rl-training skill.
DOCUMENTED = {
    "Scripts and files": """
        run_qwen3_4b_openclaw_topk_select.sh run_qwen*_openclaw_topk_select*.sh run_qwen*_openclaw_combine*.sh
        openclaw_topk_select_loss.py openclaw_combine_select_api_server.py openclaw_combine_select_rollout.py
        prm_teacher_postprocess.py combine_loss.py results/
        requirements.txt run_binary_rl.sh run_opd_training.sh run_combine_training.sh rollout_binary.py rollout_opd.py
        process_reward_model.py slime/train_grpo.py custom_opd_loss.py hybrid_loss.py serve_model.py
        collect_rollouts.py train_async.py run_terminal_agent.sh run_gui_agent.sh run_swe_agent.sh
        run_toolcall_agent.sh terminal_rollout.py gui_rollout.py toolcall_trainer.py tools_config.json lora_config.py
        deploy_to_tinker.sh deploy_to_fireworks.sh config/training_config.yaml config.json custom_reward.py
        session_processor.py wandb_logging.py openclaw_combine.test_rollout openclaw_combine.utils.inspect_sessions
        extensions/rl-training-headers torchrun""",
    "Flags": """
        --eps-clip --eps-clip-high
        --rollout-function-path --num-rollout-workers --rollout-batch-size --max-turns --custom-rm-path
        --rm-checkpoint --reward-aggregation --lr --lr-warmup-samples --clip-grad --ppo-clip-ratio --num-epochs
        --nproc_per_node --nnodes --node_rank --master_addr --master_port --model-path --port --gpu-ids
        --api-endpoint --output-dir --session-aware --rollout-dir --checkpoint-dir --method --gpus --model
        --benchmark --lora --num-samples --parallel-envs --async-collection""",
    "Keys of settings files": """
        model.name model.checkpoint_path model.tokenizer_path
        training.method training.batch_size training.gradient_accumulation_steps training.learning_rate
        training.warmup_steps training.max_steps training.ppo_clip_ratio training.value_clip_ratio
        training.gae_lambda training.teacher_temperature training.hint_extraction_model training.binary_weight
        training.opd_weight rollout.num_workers rollout.max_turns rollout.session_aware rollout.parallel_envs
        evaluation.judge_model evaluation.majority_voting evaluation.num_judges evaluation.eval_frequency
        evaluation.consensus_threshold
        rollout_config.collection_mode rollout_config.max_concurrent_sessions rollout_config.session_timeout
        rollout_config.trajectory_format rollout_config.message_classification.main_line
        rollout_config.message_classification.side rollout_config.reward_computation.type
        rollout_config.reward_computation.aggregation rollout_config.reward_computation.num_samples
        extensions.config.rollout_endpoint extensions.config.training_mode extensions.config.session_tracking""",
    "Environment variables": """
        OPENCLAW_TOPK_W_RL OPENCLAW_TOPK_W_OPD OPENCLAW_TOPK_K OPENCLAW_TOPK_MAX_CAND PRM_M
        OPENCLAW_TOPK_HINT_SELECTION OPENCLAW_TOPK_SUBSET_MODE OPENCLAW_TOPK_ADV_DIFF_CLIP
        OPENCLAW_COMBINE_OPD_TEACHER_SOURCE OPENCLAW_RECORD_ENABLED NUM_GPUS ACTOR_GPUS ROLLOUT_GPUS PRM_GPUS
        PRM_TEACHER_GPUS HF_CKPT REF_LOAD SAVE_CKPT PRM_MODEL_PATH PRM_TEACHER_LOAD PRM_TEACHER_HF
        OPENCLAW_API_KEY WANDB_API_KEY HF_TOKEN MASTER_ADDR MASTER_PORT NNODES NODE_RANK GPUS_PER_NODE CKPT_PATH
        TOKENIZER_PATH TASK_TYPE MAX_STEPS TOOLS_CONFIG USE_LORA LORA_RANK LORA_ALPHA LORA_DROPOUT TINKER_API_KEY
        TINKER_PROJECT_ID FIREWORKS_API_KEY OPENCLAW_DEBUG ROLLOUT_LOG_LEVEL BATCH_SIZE GRAD_ACCUM_STEPS
        USE_GRADIENT_CHECKPOINTING LEARNING_RATE CLIP_GRAD_NORM PPO_CLIP_RATIO VALUE_CLIP""",
    "Names in the code examples": """
        ROLLOUT_ARGS REWARD_ARGS OPTIMIZER_ARGS MAX_GUI_STEPS clip_ratio gamma lambda_ min_turns lora_rank lora_alpha
        lora_dropout target_modules project_name
        loss/total loss/binary loss/opd reward/mean reward/std gradient/norm learning_rate""",
}

LATER_COMMANDS = {"env"}
FLAGS = {*SHORTHANDS, "--config"}
COMMANDS = dict(leaf_commands())


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    table: str
    name: str
    ours: tuple[str, ...]
    when: str


def read_rows() -> list[Row]:
    rows: list[Row] = []
    table = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            table = line.removeprefix("## ")
        elif line.startswith("| `"):
            name, ours, when, _remark = (cell.strip() for cell in line.strip("|").split("|"))
            rows.append(
                Row(
                    table=table,
                    name=name.strip("`").removeprefix("python -m "),
                    ours=tuple(re.findall("`([^`]+)`", ours)),
                    when=when,
                )
            )
    return rows


ROWS = read_rows()


@pytest.mark.parametrize("table", DOCUMENTED)
def test_every_documented_name_has_a_row_and_every_row_a_name(table: str) -> None:
    assert {row.name for row in ROWS if row.table == table} == set(DOCUMENTED[table].split())


def test_no_row_stands_outside_a_known_table() -> None:
    assert {row.table for row in ROWS} == set(DOCUMENTED)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name} {row.when}")
def test_what_a_row_promises_is_there(row: Row) -> None:
    """What is said to work now does, all of it; of what comes later, something is not there yet."""
    assert row.when in {"now", "later"}
    assert row.ours, f"{row.name} points nowhere"
    missing = [ours for ours in row.ours if not is_there(ours)]
    if row.when == "now":
        assert not missing, f"{missing} come later"
    else:
        assert missing or any(ours.endswith("/") for ours in row.ours), f"{row.name} works now"


def is_there(ours: str) -> bool:
    """Whether this release has it; fails for what is no name of ours at all."""
    key, equals, _ = ours.partition("=")
    if key in LEAVES:
        if equals:
            load_config(env={}, overrides=[ours])
        return not is_later(key)
    if ours.startswith("openclaw-rl "):
        words, _, rest = ours.removeprefix("openclaw-rl ").partition(" --")
        flag, _, value = rest.partition(" ")
        found = COMMANDS.get(words) or next((c for name, c in COMMANDS.items() if name.split()[0] == words), None)
        assert found or words.split()[0] in LATER_COMMANDS, f"there is no command {words}"
        assert not flag or (found and f"--{flag}" in [o for p in found.params for o in p.opts]), f"no flag {ours}"
        if flag == "config":
            load_config([ROOT / value], env={})
        return found is not None
    if ours.startswith("--"):
        assert ours in FLAGS, f"there is no flag {ours}"
        return True
    if ours.startswith("make "):
        target = ours.removeprefix("make ")
        return re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M) is not None
    if ours.startswith("openclaw_rl."):
        return callable(resolve_name(ours))
    assert ours.startswith(("openclaw_rl/", "extensions/")), f"{ours!r} is no key, command, flag or place"
    return (ROOT / ours).exists()


def test_commands_called_later_are_not_there_yet() -> None:
    assert not LATER_COMMANDS & {name.split()[0] for name in COMMANDS}


def test_the_variables_and_the_alias_table_are_the_same() -> None:
    documented = {row.name: row.ours for row in ROWS if row.table == "Environment variables"}
    assert documented == {alias.variable: (alias.key,) for alias in ALIASES}


def test_keys_of_settings_files_are_understood_as_they_are_written() -> None:
    for row in ROWS:
        if row.table == "Keys of settings files" and not row.name.startswith("extensions."):
            assert (resolve(row.name, "test"),) == row.ours
