"""The opponent of `trainer.py`: the same step as somebody would write it with transformers and peft, in one screen.

A LoRA by peft on `AutoModelForCausalLM`; one sample after the other, the adapter switched off for its teachers, each of
which reads its whole prompt; log-probs by `log_softmax`, the clipped surrogate and top-k distillation with the hint of
the largest overlap; one forward and backward pass per sample, then AdamW. The same precision and threads as ours.

Axes: R response tokens, V vocabulary, K top-k.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from openclaw_rl.types import Sample

TOP_K, GAP_CLIP, LOW, HIGH, MAX_WEIGHT = 4, 1.0, 0.2, 0.28, 2.0


class PlainStep:
    """A model with its adapter and its optimiser."""

    def __init__(self, folder: Path, *, device: torch.device, dtype: torch.dtype) -> None:
        # Here: a machine without peft measures our side alone.
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        base: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        config = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        self._model: Any = get_peft_model(base.to(device), config)
        self._device = device
        self._learning = [tensor for tensor in self._model.parameters() if tensor.requires_grad]
        self._optimiser = torch.optim.AdamW(self._learning, lr=3e-4, weight_decay=0.0)

    def take(self, samples: Sequence[Sample]) -> float:
        """One step; its loss."""
        total = 0.0
        for sample in samples:
            loss = self._loss(sample) / len(samples)
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(self._learning, 1.0)
        self._optimiser.step()
        self._optimiser.zero_grad()
        return total

    def _logprobs(self, prompt: Sequence[int], sample: Sample) -> Tensor:
        ids = torch.tensor([[*prompt, *sample.response_ids]], device=self._device)
        logits_RV = self._model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
        return torch.log_softmax(logits_RV / sample.temperature, dim=-1)

    def _loss(self, sample: Sample) -> Tensor:
        with torch.no_grad(), self._model.disable_adapter():
            teachers = [self._logprobs(sample.teacher_prompt(one), sample) for one in sample.candidates]
        new_RV = self._logprobs(sample.prompt_ids, sample)
        old_RV = new_RV.detach()
        loss_R = torch.zeros(len(sample.response_ids), device=self._device)
        if sample.w_rl:
            said = torch.tensor(sample.response_ids, device=self._device).unsqueeze(-1)
            new_R, old_R = (rows.gather(-1, said).squeeze(-1) for rows in (new_RV, old_RV))
            sampled_R = torch.tensor(sample.logprobs, device=self._device)
            weight_R = (old_R - sampled_R).exp().clamp(max=MAX_WEIGHT)
            advantage_R = torch.tensor(sample.advantages, device=self._device)
            loss_R = loss_R + sample.w_rl * weight_R * _clipped((new_R - old_R).exp(), advantage_R)
        if teachers:
            student_RK = old_RV.topk(TOP_K).indices
            overlaps = [
                (student_RK.unsqueeze(-1) == rows.topk(TOP_K).indices.unsqueeze(-2)).any(-1).sum() for rows in teachers
            ]
            teacher_RV = teachers[int(torch.stack(overlaps).argmax())]
            new_RK, old_RK, teacher_RK = (rows.gather(-1, student_RK) for rows in (new_RV, old_RV, teacher_RV))
            gap_RK = (teacher_RK - old_RK).clamp(-GAP_CLIP, GAP_CLIP)
            advantage_RK = torch.softmax(old_RK, dim=-1) * gap_RK
            loss_R = loss_R + sample.w_opd * _clipped((new_RK - old_RK).exp(), advantage_RK).sum(-1)
        return loss_R.mean()


def _clipped(ratio: Tensor, advantage: Tensor) -> Tensor:
    return torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - LOW, 1 + HIGH))
