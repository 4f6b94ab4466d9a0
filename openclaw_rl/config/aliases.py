"""The environment variables that people already have in their scripts, and the settings they stand for.

One table, complete for both documented ancestors (docs/from-the-seeds.md). An alias is weaker than
`OPENCLAW_RL__SECTION__KEY` and stronger than a file. Some names are as general as BATCH_SIZE: `openclaw-rl config`
shows which variable a value came from, and a start that is refused names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from openclaw_rl.config.text import parse_for


@dataclass(frozen=True, slots=True)
class Alias:
    """A variable that sets `key`; `convert` translates its text where the two speak differently (None = unset)."""

    variable: str
    key: str
    convert: Callable[[str], Any] | None = None

    def value(self, text: str) -> Any:
        """What the variable's text means for the setting."""
        return self.convert(text) if self.convert else parse_for(self.key, text)


def _debug_level(text: str) -> str | None:
    return "debug" if text.strip().lower() in {"1", "true", "yes", "on"} else None


def _teacher_source(text: str) -> str:
    return {"megatron": "trainer", "inference": "engine"}.get(text, text)


def _below_cache(text: str) -> str | None:
    # The XDG specification says that a relative path is to be ignored.
    return str(PurePath(text) / "openclaw-rl" / "models") if PurePath(text).is_absolute() else None


ALIASES: tuple[Alias, ...] = (
    # model and gateway
    Alias("HF_CKPT", "model.checkpoint_path"),
    Alias("CKPT_PATH", "model.checkpoint_path"),
    Alias("TOKENIZER_PATH", "model.tokenizer_path"),
    Alias("HF_TOKEN", "model.hub_token"),
    Alias("OPENCLAW_API_KEY", "gateway.api_key"),
    # environments
    Alias("TASK_TYPE", "rollout.task_type"),
    Alias("MAX_STEPS", "rollout.max_steps"),
    Alias("TOOLS_CONFIG", "rollout.tools_config"),
    # judge
    Alias("PRM_M", "evaluation.num_judges"),
    Alias("PRM_MODEL_PATH", "evaluation.judge_path"),
    Alias("OPENCLAW_TOPK_MAX_CAND", "evaluation.max_candidates"),
    # objective
    Alias("OPENCLAW_TOPK_W_RL", "training.binary_weight"),
    Alias("OPENCLAW_TOPK_W_OPD", "training.opd_weight"),
    Alias("OPENCLAW_TOPK_K", "training.top_k"),
    Alias("OPENCLAW_TOPK_HINT_SELECTION", "training.hint_selection"),
    Alias("OPENCLAW_TOPK_SUBSET_MODE", "training.subset_mode"),
    Alias("OPENCLAW_TOPK_ADV_DIFF_CLIP", "training.adv_diff_clip"),
    Alias("OPENCLAW_COMBINE_OPD_TEACHER_SOURCE", "training.teacher_source", _teacher_source),
    Alias("PRM_TEACHER_HF", "training.teacher_path"),
    Alias("PRM_TEACHER_LOAD", "training.teacher_load_path"),
    Alias("PPO_CLIP_RATIO", "training.ppo_clip_ratio"),
    Alias("VALUE_CLIP", "training.value_clip"),
    # optimiser
    Alias("REF_LOAD", "training.load_path"),
    Alias("SAVE_CKPT", "training.save_path"),
    Alias("BATCH_SIZE", "training.batch_size"),
    Alias("GRAD_ACCUM_STEPS", "training.gradient_accumulation_steps"),
    Alias("LEARNING_RATE", "training.learning_rate"),
    Alias("CLIP_GRAD_NORM", "training.clip_grad_norm"),
    Alias("USE_GRADIENT_CHECKPOINTING", "training.use_gradient_checkpointing"),
    Alias("USE_LORA", "training.use_lora"),
    Alias("LORA_RANK", "training.lora_rank"),
    Alias("LORA_ALPHA", "training.lora_alpha"),
    Alias("LORA_DROPOUT", "training.lora_dropout"),
    # machines
    Alias("NUM_GPUS", "training.num_gpus"),
    Alias("ACTOR_GPUS", "training.actor_gpus"),
    Alias("ROLLOUT_GPUS", "engine.num_gpus"),
    Alias("PRM_GPUS", "evaluation.judge_gpus"),
    Alias("PRM_TEACHER_GPUS", "training.teacher_gpus"),
    Alias("MASTER_ADDR", "training.master_addr"),
    Alias("MASTER_PORT", "training.master_port"),
    Alias("NNODES", "training.nnodes"),
    Alias("NODE_RANK", "training.node_rank"),
    Alias("GPUS_PER_NODE", "training.gpus_per_node"),
    Alias("TINKER_API_KEY", "training.tinker_api_key"),
    Alias("TINKER_PROJECT_ID", "training.tinker_project_id"),
    Alias("FIREWORKS_API_KEY", "training.fireworks_api_key"),
    # logs and tracking
    Alias("OPENCLAW_DEBUG", "tracking.log_level", _debug_level),
    Alias("ROLLOUT_LOG_LEVEL", "tracking.log_level", str.lower),
    Alias("OPENCLAW_RECORD_ENABLED", "tracking.record_enabled"),
    Alias("WANDB_API_KEY", "tracking.wandb_api_key"),
)

SYSTEM_ALIASES: tuple[Alias, ...] = (Alias("XDG_CACHE_HOME", "model.cache_dir", _below_cache),)
"""Conventions of the operating system, read the same way."""

SHORTHANDS: dict[str, str] = {
    "--host": "gateway.host",
    "--port": "gateway.port",
    "--data-dir": "store.data_dir",
    "--model": "model.name",
    "--engine": "engine.type",
    "--method": "training.method",
    "--backend": "training.backend",
    "--checkpoint-dir": "training.save_path",
    "--gpus": "training.gpu_ids",
    "--num-epochs": "training.num_epochs",
    "--judge": "evaluation.judge",
    "--parallel-envs": "rollout.parallel_envs",
    "--num-rollout-workers": "rollout.num_workers",
    "--benchmark": "rollout.benchmark",
}
"""Command-line flags that stand for a key; `--port 8000` is `gateway.port=8000`."""
