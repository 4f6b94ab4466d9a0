"""Runs and snapshots over one base model in plain torch: no line of ours computes here, so that it is a second witness.

Axes: N positions, K targets of a position, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.func import functional_call
from transformers import LlamaForCausalLM

ATTENTION, MLP = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
ALPHA = 32.0


class Lora(nn.Module):
    """A frozen layer with a low-rank one beside it; whose it is is said by each call."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.zeros(1, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, 1))

    def forward(self, x: Tensor) -> Tensor:
        beside: Tensor = (ALPHA / self.down.shape[0]) * (x @ self.down.T) @ self.up.T
        whole: Tensor = self.base(x) + beside
        return whole


@dataclass(eq=False)
class Run:
    """An adapter that is being trained, with its optimiser."""

    rank: int
    weights: dict[str, Tensor]
    moments: dict[str, Tensor] = field(default_factory=dict)
    num_steps: int = 0

    def move(self, *, lr: float, beta1: float, beta2: float, eps: float, decay: float, clip: float) -> dict[str, float]:
        """One step of AdamW, written out."""
        grads = {name: one.grad for name, one in self.weights.items() if one.grad is not None}
        norm = float(torch.stack([one.norm() for one in grads.values()]).norm()) if grads else 0.0
        shorter = min(1.0, clip / (norm + 1e-6)) if clip > 0 else 1.0
        self.num_steps += 1
        with torch.no_grad():
            for name, one in self.weights.items():
                grad = grads.get(name, torch.zeros_like(one)) * shorter
                first = self.moments.setdefault(f"{name}.first", torch.zeros_like(one))
                second = self.moments.setdefault(f"{name}.second", torch.zeros_like(one))
                first.mul_(beta1).add_(grad, alpha=1 - beta1)
                second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                step = first / (1 - beta1**self.num_steps)
                scale = (second / (1 - beta2**self.num_steps)).sqrt() + eps
                one.mul_(1 - lr * decay).sub_(lr * step / scale)
                one.grad = None
        return {"unclipped_grad_l2:mean": norm}

    def save(self, folder: Path, *, whole: bool) -> None:
        folder.mkdir(parents=True)
        save_file({name: one.detach() for name, one in self.weights.items()}, folder / "weights.safetensors")
        if whole:
            save_file(self.moments or {"none": torch.zeros(1)}, folder / "moments.safetensors")
        facts = {"rank": self.rank, "num_steps": self.num_steps}
        (folder / "facts.json").write_text(json.dumps(facts))

    @classmethod
    def load(cls, folder: Path, *, whole: bool) -> Run:
        facts = json.loads((folder / "facts.json").read_text())
        weights = {name: one.requires_grad_() for name, one in load_file(folder / "weights.safetensors").items()}
        run = cls(rank=facts["rank"], weights=weights)
        if whole:
            run.moments = {k: v for k, v in load_file(folder / "moments.safetensors").items() if k != "none"}
            run.num_steps = facts["num_steps"]
        return run


class TinyModel:
    """The base model, and whatever adapter a call names."""

    def __init__(self, folder: Path) -> None:
        self._model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval().requires_grad_(False)
        self.window = int(self._model.config.max_position_embeddings)
        self._layers: dict[str, nn.Linear] = {}
        for name, module in list(self._model.named_modules()):
            last = name.rpartition(".")[2]
            if last in ATTENTION + MLP:
                assert isinstance(module, nn.Linear)
                parent = self._model.get_submodule(name.rpartition(".")[0])
                self._layers[name] = module
                setattr(parent, last, Lora(module))

    def new_run(self, *, rank: int, seed: int, attn: bool, mlp: bool) -> Run:
        made = torch.Generator().manual_seed(seed)
        wanted = (ATTENTION if attn else ()) + (MLP if mlp else ())
        weights: dict[str, Tensor] = {}
        for name, layer in self._layers.items():
            if name.rpartition(".")[2] in wanted:
                down = torch.randn(rank, layer.in_features, generator=made) / layer.in_features**0.5
                weights[f"{name}.down"] = down.requires_grad_()
                weights[f"{name}.up"] = torch.zeros(layer.out_features, rank).requires_grad_()
        return Run(rank=rank, weights=weights)

    def logits(self, ids: Sequence[int], weights: Mapping[str, Tensor] | None) -> Tensor:
        """[N, V], with the gradient of `weights`."""
        given = torch.tensor([list(ids)])
        said = functional_call(self._model, dict(weights or {}), (given,), {"use_cache": False})
        logits: Tensor = said.logits[0].float()
        return logits

    def logprobs(self, ids: Sequence[int], weights: Mapping[str, Tensor] | None) -> Tensor:
        return torch.log_softmax(self.logits(ids, weights), dim=-1)

    @torch.no_grad()
    def draw(
        self,
        ids: Sequence[int],
        weights: Mapping[str, Tensor] | None,
        *,
        max_tokens: int,
        temperature: float,
        top_k: int,
        top_p: float,
        seed: int | None,
        stop: Sequence[int],
        topk: int,
    ) -> tuple[list[int], list[float], list[list[tuple[int, float]]], str]:
        """Tokens, their log-probs under softmax(logits / T), the likeliest of each, and why it ended."""
        drawn = torch.Generator()
        drawn.manual_seed(seed) if seed is not None else drawn.seed()
        said: list[int] = []
        told: list[float] = []
        likely: list[list[tuple[int, float]]] = []
        while len(said) < max_tokens:
            logits = self.logits([*ids, *said], weights)[-1]
            logprobs = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
            kept = logprobs.clone()
            if top_k > 0:
                kept[kept < kept.topk(top_k).values[-1]] = -torch.inf
            if top_p < 1:
                ordered, at = kept.sort(descending=True)
                kept[at[ordered.exp().cumsum(0) - ordered.exp() >= top_p]] = -torch.inf
            token = int(kept.argmax()) if temperature == 0 else int(kept.exp().multinomial(1, generator=drawn))
            said.append(token)
            told.append(float(logprobs[token]))
            if topk:
                values, at = logprobs.topk(topk)
                likely.append(list(zip(at.tolist(), values.tolist(), strict=True)))
            if token in stop:
                return said, told, likely, "stop"
        return said, told, likely, "length"


def gathered(logprobs_NV: Tensor, targets: Tensor) -> Tensor:
    """Of the targets, in their shape [N] or [N, K]."""
    flat = targets if targets.dim() == 2 else targets.unsqueeze(-1)
    found = logprobs_NV.gather(-1, flat)
    return found if targets.dim() == 2 else found.squeeze(-1)


def loss_of(name: str, logprobs: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float]) -> Tensor:
    """The sum over tokens, as the service's documentation has it."""
    if name == "cross_entropy":
        return -(inputs["weights"] * logprobs).sum()
    ratio = (logprobs - inputs["logprobs"]).exp()
    if name == "importance_sampling":
        return -(ratio * inputs["advantages"]).sum()
    if name == "ppo":
        low, high = config.get("clip_low_threshold", 0.8), config.get("clip_high_threshold", 1.2)
        clipped = ratio.clamp(low, high) * inputs["advantages"]
        return -torch.minimum(ratio * inputs["advantages"], clipped).sum()
    raise ValueError(f"unknown loss_fn {name}")
