"""The package name of the documented OpenClaw-RL: a thin door to `openclaw_rl`. See docs/from-the-seeds.md."""

from openclaw_rl.compat import (
    CustomRewardModel,
    SessionAwareProcessor,
    compute_gae,
    compute_hybrid_loss,
    compute_opd_loss,
    inspect_sessions,
    load_reward_model,
    setup_lora_model,
)

__all__ = [
    "CustomRewardModel",
    "SessionAwareProcessor",
    "compute_gae",
    "compute_hybrid_loss",
    "compute_opd_loss",
    "inspect_sessions",
    "load_reward_model",
    "setup_lora_model",
]
