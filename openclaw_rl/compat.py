"""The Python names of the documented OpenClaw-RL, for code that was written against it.

    from openclaw_rl.compat import compute_gae, SessionAwareProcessor

Each does what its example does; nothing of ours uses them, except that `training.custom_loss` and
`evaluation.judge_function` may name one. torch, transformers and peft are imported where they are needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from openclaw_rl import inspect_sessions
from openclaw_rl.credit.advantages import session_gae

if TYPE_CHECKING:
    from torch import Tensor

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

Interaction = Mapping[str, Any]


def compute_gae(rewards: Any, values: Any = None, gamma: float = 0.99, lambda_: float = 0.95) -> Any:
    """Generalised advantages of the turns of a session, in order. A list gives a list, a tensor [..., T] a tensor."""
    if not hasattr(rewards, "new_tensor"):
        return session_gae(list(rewards), None if values is None else list(values), gamma=gamma, lam=lambda_)
    num_turns = rewards.shape[-1] if rewards.dim() else 1
    rows = rewards.detach().reshape(-1, num_turns).tolist()
    expected = [None] * len(rows) if values is None else values.detach().reshape(-1, num_turns).tolist()
    pairs = zip(rows, expected, strict=True)
    found = [session_gae(row, value, gamma=gamma, lam=lambda_) for row, value in pairs]
    return rewards.new_tensor(found).reshape(rewards.shape)


def compute_opd_loss(
    student_logprobs: Tensor, teacher_logprobs: Tensor, advantage_mask: Tensor, clip_ratio: float = 0.2
) -> Tensor:
    """On-policy distillation: the gap of teacher and student is each token's advantage; mean over the mask."""
    import torch

    ratio = torch.exp(student_logprobs - teacher_logprobs)
    advantages = teacher_logprobs - student_logprobs
    clipped = torch.clamp(ratio, 1 - clip_ratio, 1 + clip_ratio)
    loss = torch.max(-advantages * ratio, -advantages * clipped) * advantage_mask
    return loss.sum() / advantage_mask.sum()


def compute_hybrid_loss(
    student_logprobs: Tensor,
    teacher_logprobs: Tensor,
    scalar_rewards: Tensor,
    opd_weight: float = 0.5,
    binary_weight: float = 0.5,
    clip_ratio: float = 0.2,
) -> tuple[Tensor, dict[str, float]]:
    """A clipped policy gradient on the rewards and distillation on the tokens, weighted; and the parts as numbers."""
    import torch

    advantages = compute_gae(scalar_rewards)
    ratio = torch.exp(student_logprobs - student_logprobs.detach())
    clipped = torch.clamp(ratio, 1 - clip_ratio, 1 + clip_ratio)
    binary_loss = torch.max(-advantages * ratio, -advantages * clipped).mean()
    opd_loss = -(teacher_logprobs - student_logprobs).mean()
    total_loss = binary_weight * binary_loss + opd_weight * opd_loss
    parts = {"binary_loss": binary_loss, "opd_loss": opd_loss, "total_loss": total_loss}
    return total_loss, {name: part.item() for name, part in parts.items()}


class SessionAwareProcessor:
    """Collects interactions `{role, reward, value?, …}` by session and gives them advantages."""

    def __init__(self) -> None:
        self.sessions: defaultdict[str, list[Interaction]] = defaultdict(list)

    def add_interaction(self, session_id: str, interaction: Interaction) -> None:
        self.sessions[session_id].append(interaction)

    def get_training_trajectories(self, min_turns: int = 3) -> list[dict[str, Any]]:
        """The main line of every session with enough turns, with its advantages."""
        return [
            self.compute_trajectory_advantages([one for one in found if one["role"] in ("user", "assistant")])
            for found in self.sessions.values()
            if len(found) >= min_turns
        ]

    def compute_trajectory_advantages(self, interactions: Sequence[Interaction]) -> dict[str, Any]:
        rewards = [one["reward"] for one in interactions]
        values = [one.get("value", 0) for one in interactions]
        return {"interactions": list(interactions), "advantages": compute_gae(rewards=rewards, values=values)}


def setup_lora_model(base_model: Any, lora_rank: int = 16, lora_alpha: int = 32) -> Any:
    """The model with LoRA adapters on its attention, as PEFT makes them."""
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(
        base_model,
        LoraConfig(
            r=lora_rank,
            lora_alpha=lora_alpha,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
            lora_dropout=0.1,
            bias="none",
            task_type="CAUSAL_LM",
        ),
    )
    model.print_trainable_parameters()
    return model


def load_reward_model(checkpoint_path: str) -> Callable[[str], Tensor]:
    """A sequence classifier with one output, from a Hugging Face folder: a text in, its reward out."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint_path)
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint_path, num_labels=1).eval()

    def reward(text: str) -> Tensor:
        scores: Tensor = model(**tokenizer(text, return_tensors="pt", truncation=True)).logits
        return scores.squeeze()

    return reward


class CustomRewardModel:
    """A reward from prompt, response and what followed; override `tokenize` or `compute_reward` for one of your own.

    evaluation: {judge_function: "openclaw_rl.compat:CustomRewardModel", judge_path: /path/to/prm}
    """

    def __init__(self, checkpoint_path: str) -> None:
        self.model: Callable[[Any], Tensor] = load_reward_model(checkpoint_path)

    def tokenize(self, text: str) -> Any:
        """What the model is given; `load_reward_model` takes the text itself."""
        return text

    def compute_reward(self, prompt: str, response: str, next_feedback: str) -> float:
        import torch

        inputs = self.tokenize(f"Prompt: {prompt}\nResponse: {response}\nFeedback: {next_feedback}")
        with torch.no_grad():
            return float(self.model(inputs))

    def batch_compute_rewards(self, batch_data: Sequence[Mapping[str, str]]) -> Tensor:
        import torch

        return torch.tensor([self.compute_reward(it["prompt"], it["response"], it["feedback"]) for it in batch_data])
