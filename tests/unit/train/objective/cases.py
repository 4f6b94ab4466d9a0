"""Random samples, once as lists for plain.py and once as tensors for the real thing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from openclaw_rl.train.objective.hybrid import HybridLoss
from openclaw_rl.train.objective.rows import DenseRows
from openclaw_rl.train.objective.sample import SampleTensors, Target
from openclaw_rl.train.objective.settings import LossSettings
from tests.unit.train.objective import plain

F64 = torch.float64


def settings(**changes: Any) -> LossSettings:
    """The numbers of the published recipe, with changes."""
    published = LossSettings(
        ppo_clip_ratio=0.2,
        ppo_clip_ratio_high=0.28,
        top_k=4,
        teacher_top_k=6,
        hint_selection="sequence_optimal",
        subset_mode="student",
        adv_diff_clip=1.0,
        kl_coef=0.0,
    )
    return replace(published, **changes)


class CountingRows:
    """Rows over logits that remember what they were asked."""

    def __init__(self, logits_RV: Tensor) -> None:
        self.asked: list[str] = []
        self._rows = DenseRows(logits_RV)

    def logprob(self, ids_RJ: Tensor) -> Tensor:
        self.asked.append(f"logprob {ids_RJ.shape[-1]}")
        return self._rows.logprob(ids_RJ)

    def top_k(self, k: int) -> tuple[Tensor, Tensor]:
        self.asked.append(f"top_k {k}")
        return self._rows.top_k(k)

    def entropy(self) -> Tensor:
        self.asked.append("entropy")
        return self._rows.entropy()


def log_rows(logits_RV: Tensor) -> list[list[float]]:
    return [plain.log_softmax(row) for row in logits_RV.tolist()]


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One random sample with the logits [R, V] of everybody who reads it, those of the teachers [H, R, V]."""

    tensors: SampleTensors
    new: Tensor
    old: Tensor
    teachers: Tensor
    base: Tensor

    @property
    def plain(self) -> plain.Case:
        sample = self.tensors
        return plain.Case(
            response=sample.response_ids.tolist(),
            mask=sample.mask.tolist(),
            advantages=sample.advantages.tolist(),
            sampled=None if sample.sampled is None else sample.sampled.tolist(),
            on_policy=sample.on_policy,
            w_rl=sample.w_rl,
            w_opd=sample.w_opd,
            new=log_rows(self.new),
            old=log_rows(self.old),
            teachers=[log_rows(logits) for logits in self.teachers],
            base=log_rows(self.base),
        )

    def target(self, loss: HybridLoss) -> Target:
        teachers = [DenseRows(logits) for logits in self.teachers[: loss.num_teachers(self.tensors)]]
        base = DenseRows(self.base) if loss.needs_base else None
        return loss.target(DenseRows(self.old), self.tensors, teachers=teachers, base=base)

    def loss(self, chosen: LossSettings) -> tuple[Tensor, dict[str, float]]:
        loss = HybridLoss(chosen)
        loss_R, metrics = loss(DenseRows(self.new), self.tensors, self.target(loss))
        return loss_R, {name: value.item() for name, value in metrics.items()}

    def expected(self, chosen: LossSettings) -> list[float]:
        return plain.hybrid(
            self.plain,
            low=chosen.clip_low,
            high=chosen.clip_high,
            k=chosen.top_k,
            selection=chosen.hint_selection,
            mode=chosen.subset_mode,
            gap_clip=chosen.adv_diff_clip,
            distillation=chosen.distillation,
            teacher_k=chosen.teacher_top_k,
            importance_clip=chosen.importance_clip,
            sequence_ratio=chosen.sequence_ratio,
            dual=chosen.dual_clip,
            kl_coef=chosen.kl_coef,
            kl_type=chosen.kl_type,
            entropy_coef=chosen.entropy_coef,
        )


def draw(
    seed: int,
    *,
    num_tokens: int = 7,
    num_hints: int = 3,
    vocab_size: int = 12,
    w_rl: float = 1.0,
    w_opd: float = 1.0,
    is_sampled: bool = True,
    on_policy: bool = True,
    mask: Sequence[bool] | None = None,
) -> Drawn:
    """New, old and teachers differ enough for every clip to bite somewhere."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(*shape, generator=generator, dtype=F64)

    old_RV = normal(num_tokens, vocab_size, scale=1.5)
    response = torch.randint(vocab_size, (num_tokens,), generator=generator).tolist()
    sampled_R = torch.log_softmax(old_RV + normal(num_tokens, vocab_size, scale=0.7), -1)
    drawn_mask = (torch.rand(num_tokens, generator=generator) < 0.7).tolist()
    return Drawn(
        tensors=SampleTensors.of(
            response_ids=response,
            loss_mask=drawn_mask if mask is None else mask,
            advantages=normal(num_tokens).tolist(),
            logprobs=[sampled_R[i, y].item() for i, y in enumerate(response)] if is_sampled else None,
            on_policy=on_policy,
            w_rl=w_rl,
            w_opd=w_opd,
            num_candidates=num_hints,
            dtype=F64,
        ),
        old=old_RV,
        new=old_RV + normal(num_tokens, vocab_size, scale=0.3),
        teachers=old_RV + normal(num_hints, num_tokens, vocab_size, scale=1.2),
        base=old_RV + normal(num_tokens, vocab_size, scale=0.5),
    )
