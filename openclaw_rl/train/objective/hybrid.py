"""One sample's rows become its loss per token: w_rl · L_GRPO + w_opd · L_OPD, and the penalties that are on.

A step goes through a sample like this; with more than one epoch the last two lines are repeated:

    loss = HybridLoss(settings)
    teachers = [forward(c) for c in candidates[:loss.num_teachers(sample)]]     no pass that nothing asks for
    target = loss.target(rows, sample, teachers=teachers, base=...)             fixed from here on
    loss_R, metrics = loss(rows, sample, target)                                values=critic(hidden), where needed
    batch_mean.share(loss_R, sample.mask).backward()

"Old" is the policy before the step: in the first epoch the same rows, so that every ratio is 1 there and no pass is
paid for it. How samples make a batch is aggregate.py's business, what the weights and advantages are the credit rule's.

Axes: H hint candidates, R response tokens, K top-k width, J tokens of the subset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from openclaw_rl.train.objective.aggregate import sample_mean
from openclaw_rl.train.objective.distillation import forward_kl, reverse_kl_with_tail, token_loss, topk_loss
from openclaw_rl.train.objective.hints import overlap_sizes, select_hints, subset, whole
from openclaw_rl.train.objective.penalties import kl_to_base, value_loss
from openclaw_rl.train.objective.policy import clipped_surrogate, importance_weights, sequence_log_ratio
from openclaw_rl.train.objective.rows import Rows
from openclaw_rl.train.objective.sample import Expected, Guidance, SampleTensors, Target
from openclaw_rl.train.objective.settings import Distillation, LossSettings
from openclaw_rl.train.objective.values import expectation
from openclaw_rl.types.checks import require

Metrics = Mapping[str, Tensor]
"""Numbers without axes and without gradient. What was not computed has no entry."""

LossFunction = Callable[[Rows, SampleTensors, Target, LossSettings], tuple[Tensor, Metrics]]
"""(rows, sample, target, settings) -> the loss of each response token [R] with its gradient, and metrics."""


def hybrid_loss(
    rows: Rows, sample: SampleTensors, target: Target, settings: LossSettings
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of each token; a term that is off leaves no operation behind."""
    new_R, new_RJ = _new_logprobs(rows, sample, target.guidance)
    weights_R = importance_weights(
        target.old, sample.sampled, max_weight=settings.importance_clip, on_policy=sample.on_policy
    )
    loss_R = torch.zeros_like(new_R)
    per_token: dict[str, Tensor] = {}
    if sample.sampled is not None:
        per_token["sampler_gap"] = (target.old - sample.sampled).abs()
    if settings.importance_clip is not None:
        per_token["importance"] = weights_R
    if sample.w_rl:
        rl_R, per_token["clipped_rl"] = _policy_term(new_R, sample, target, settings)
        per_token["loss_rl"] = weights_R * rl_R
        loss_R = loss_R + sample.w_rl * per_token["loss_rl"]
    if target.guidance is not None:
        per_token["loss_opd"], found = _distillation_term(
            new_RJ, target.guidance, weights_R, settings, _way(sample, settings)
        )
        per_token.update(found)
        loss_R = loss_R + sample.w_opd * per_token["loss_opd"]
    if target.base is not None:
        per_token["kl"] = kl_to_base(new_R, target.base, settings.kl_type)
        loss_R = loss_R + settings.kl_coef * per_token["kl"]
    if settings.entropy_coef:
        per_token["entropy"] = rows.entropy()
        loss_R = loss_R - settings.entropy_coef * per_token["entropy"]
    means = {name: sample_mean(value.detach().to(new_R.dtype), sample.mask) for name, value in per_token.items()}
    return loss_R, means


def _new_logprobs(rows: Rows, sample: SampleTensors, guidance: Guidance | None) -> tuple[Tensor, Tensor]:
    """Of the response [R] and of the subset [R, J], in one question."""
    ids_RJ = sample.response_ids.unsqueeze(-1)
    if guidance is not None:
        ids_RJ = torch.cat((ids_RJ, guidance.ids), dim=-1)
    logprobs_RJ = rows.logprob(ids_RJ)
    return logprobs_RJ[:, 0], logprobs_RJ[:, 1:]


def _policy_term(new_R: Tensor, sample: SampleTensors, target: Target, settings: LossSettings) -> tuple[Tensor, Tensor]:
    if settings.sequence_ratio:
        log_ratio_R = sequence_log_ratio(new_R, target.old, sample.mask)
    else:
        log_ratio_R = new_R - target.old
    return clipped_surrogate(
        log_ratio_R,
        sample.advantages,
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        dual_clip=settings.dual_clip,
    )


def _way(sample: SampleTensors, settings: LossSettings) -> Distillation:
    """How the teacher of a sample is distilled."""
    return "forward_kl" if sample.is_demonstration else settings.distillation


def _distillation_term(
    new_RJ: Tensor, guidance: Guidance, weights_R: Tensor, settings: LossSettings, way: Distillation
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of each token before w_opd, and what there is to see of it."""
    loss_R, found = _distil(new_RJ, guidance, weights_R, settings, way)
    names = {"clipped": "clipped_opd", "gap": "teacher_gap", "size": "subset_size"}
    seen = {"overlap": guidance.overlap, "hint": guidance.chosen}
    return loss_R, seen | {names[name]: value for name, value in found.items()}


def _distil(
    new_RJ: Tensor, guidance: Guidance, weights_R: Tensor, settings: LossSettings, way: Distillation
) -> tuple[Tensor, dict[str, Tensor]]:
    """Importance weights are for the token that was drawn: of the four ways only token-level OPD rests on it."""
    old_RJ, teacher_RJ, valid_RJ = guidance.old, guidance.teacher, guidance.valid
    limits = {"gap_clip": settings.adv_diff_clip, "clip_low": settings.clip_low, "clip_high": settings.clip_high}
    match way:
        case "topk":
            return topk_loss(new_RJ, old_RJ, teacher_RJ, valid_RJ, **limits)
        case "token":
            loss_R, found = token_loss(new_RJ[:, 0], old_RJ[:, 0], teacher_RJ[:, 0], **limits)
            return weights_R * loss_R, found
        case "reverse_kl":
            return reverse_kl_with_tail(new_RJ, teacher_RJ, valid_RJ), {"size": valid_RJ.sum(-1)}
        case "forward_kl":
            gap_R = (teacher_RJ.exp() * (teacher_RJ - old_RJ).abs()).sum(-1)
            return forward_kl(new_RJ, teacher_RJ), {"gap": gap_R, "size": valid_RJ.sum(-1)}


def _value_term(
    values_R: Tensor, expected: Expected, mask_R: Tensor, settings: LossSettings
) -> tuple[Tensor, dict[str, Tensor]]:
    """The critic's loss of each token before value_coef, and what there is to see of it."""
    clip = settings.value_clip_ratio if settings.value_clip else None
    loss_R, clipped_R = value_loss(values_R, expected.old, expected.returns, clip=clip)
    per_token = {"loss_value": loss_R, "value": values_R}
    if clip is not None:
        per_token["clipped_value"] = clipped_R
    return loss_R, {name: sample_mean(value.detach().to(values_R.dtype), mask_R) for name, value in per_token.items()}


class HybridLoss:
    """The loss of a step, and which passes it needs. `function` is `hybrid_loss` or one of your own (custom.py)."""

    def __init__(self, settings: LossSettings, function: LossFunction = hybrid_loss) -> None:
        self.settings = settings
        self._function = function

    @property
    def needs_base(self) -> bool:
        """Whether the base model has to read the response behind its own prompt."""
        return self.settings.kl_coef > 0

    @property
    def needs_entropy(self) -> bool:
        """Whether `Rows.entropy` will be asked for."""
        return self.settings.entropy_coef > 0

    def needs_values(self, sample: SampleTensors) -> bool:
        """Whether the critic has to say what it expects of a sample."""
        return self.settings.critic and sample.w_rl != 0 and sample.has_tokens

    def num_teachers(self, sample: SampleTensors) -> int:
        """How many candidates, from the first on, the teacher has to read."""
        if sample.w_opd == 0 or not sample.has_tokens:
            return 0
        return 1 if self.settings.hint_selection == "shortest" else sample.num_candidates

    def needs_student(self, sample: SampleTensors) -> bool:
        """Whether a sample can move anything; if not it keeps its place in the denominator without a pass."""
        # A reward of 0 is still news to a critic that expected something else.
        rewarded = sample.w_rl != 0 and (sample.has_advantage or self.settings.critic)
        return sample.has_tokens and (rewarded or sample.w_opd != 0 or self.needs_base or self.needs_entropy)

    @torch.no_grad()
    def target(
        self,
        rows: Rows,
        sample: SampleTensors,
        *,
        teachers: Sequence[Rows] = (),
        base: Rows | None = None,
        values: Tensor | None = None,
    ) -> Target:
        """What the step holds fixed. `rows` are the student's before the step, `teachers` those it was asked for,
        `values` [R] the critic's."""
        asked = self.num_teachers(sample)
        require(len(teachers) == asked, f"{asked} candidates have to be read by the teacher, got {len(teachers)}")
        require(self.needs_base == (base is not None), f"needs_base is {self.needs_base}, got {base}")
        self._require_values(sample, values)
        response_R1 = sample.response_ids.unsqueeze(-1)
        return Target(
            guidance=self._guidance(rows, sample, teachers) if teachers else None,  # first: `Rows.top_k` wants that
            old=rows.logprob(response_R1).squeeze(-1),
            base=None if base is None else base.logprob(response_R1).squeeze(-1),
            expected=None if values is None else self._expected(values.detach(), sample),
        )

    def _expected(self, old_R: Tensor, sample: SampleTensors) -> Expected:
        return expectation(old_R, sample.advantages, sample.mask, lam=self.settings.gae_lambda)

    def _require_values(self, sample: SampleTensors, values: Tensor | None) -> None:
        needed = self.needs_values(sample)
        require(needed == (values is not None), f"needs_values is {needed}, got {values}")

    def _guidance(self, rows: Rows, sample: SampleTensors, teachers: Sequence[Rows]) -> Guidance:
        settings, way = self.settings, _way(sample, self.settings)
        width = settings.teacher_top_k if way == "forward_kl" else settings.top_k
        student_RK, _ = rows.top_k(settings.top_k)
        likely_HRJ = torch.stack([teacher.top_k(max(width, settings.top_k))[0] for teacher in teachers])
        teacher_HRK = likely_HRJ[..., : settings.top_k]
        overlap_HR = overlap_sizes(student_RK, teacher_HRK)
        chosen_R = select_hints(overlap_HR, sample.mask, settings.hint_selection)
        if way == "token":
            ids_RJ, valid_RJ = whole(sample.response_ids.unsqueeze(-1))
        elif way == "forward_kl":
            ids_RJ, valid_RJ = whole(_at(likely_HRJ, chosen_R)[:, :width])
        else:
            ids_RJ, valid_RJ = subset(student_RK, _at(teacher_HRK, chosen_R), settings.subset_mode)
        return Guidance(
            ids=ids_RJ,
            valid=valid_RJ,
            old=rows.logprob(ids_RJ),
            teacher=_at(torch.stack([teacher.logprob(ids_RJ) for teacher in teachers]), chosen_R),
            chosen=chosen_R,
            overlap=_at(overlap_HR, chosen_R),
        )

    def __call__(
        self, rows: Rows, sample: SampleTensors, target: Target, *, values: Tensor | None = None
    ) -> tuple[Tensor, Metrics]:
        """The loss of each token [R], the critic's included, and metrics of the sample."""
        self._require_values(sample, values)
        if target.expected is not None:
            sample = replace(sample, advantages=target.expected.advantages)
        loss_R, metrics = self._function(rows, sample, target, self.settings)
        require(
            loss_R.shape == sample.mask.shape,
            f"a loss has one number for each of {len(sample.mask)} response tokens, got shape {tuple(loss_R.shape)}",
        )
        if values is None or target.expected is None:
            return loss_R, metrics
        value_R, found = _value_term(values, target.expected, sample.mask, self.settings)
        return loss_R + self.settings.value_coef * value_R, {**metrics, **found}


def _at(values_HR: Tensor, chosen_R: Tensor) -> Tensor:
    """[H, R, ...] -> [R, ...]: what each token's chosen candidate says."""
    return values_HR[chosen_R, torch.arange(len(chosen_R), device=chosen_R.device)]
