"""One step on a service: samples in, a moved adapter and metrics out; or nothing moved, and the reason.

    read        student's likely tokens and the teachers' words, by samplers       once
    forward     log-probs of the tokens that the loss is of                        each epoch
    loss        ours (objective/), on those log-probs; its slope goes back         here
    backward    the slope through the model                                        each epoch
    move        AdamW                                                              each epoch

The mathematics are the local trainer's: the same loss, targets fixed before the first move, the same shares of a batch.
Log-probs are those at temperature 1. From the second epoch on, two kinds of sample need one pass instead of two: a
policy loss alone is the service's own, and a forward KL alone is linear, so that its slope is known before.

Axes: N tokens of a sequence, R of its response, C tokens known at a place, K likely ones.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev

import numpy as np
import torch
from torch import Tensor

from openclaw_rl.cloud.service import (
    Abilities,
    CloudLearner,
    CloudSampler,
    Floats,
    Ints,
    Move,
    Passage,
    Policy,
    SaidOf,
    Used,
)
from openclaw_rl.train.cloud.rows import KnownRows
from openclaw_rl.train.objective.aggregate import BatchMean
from openclaw_rl.train.objective.hybrid import HybridLoss
from openclaw_rl.train.objective.policy import importance_weights
from openclaw_rl.train.objective.sample import SampleTensors, Target, sample_tensors
from openclaw_rl.train.objective.settings import LossSettings
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.train.worker.step import StepOutcome
from openclaw_rl.types import Sample

_NAMES = {"loss_rl": "loss/binary", "loss_opd": "loss/opd"}
_OWN = {"anchor": "loss/anchor", "exercise": "loss/exercise"}
_AT_ONCE = 8
"""Questions to samplers under way."""


@dataclass(slots=True, eq=False)
class _Item:
    """A sample on its way through a step."""

    sample: Sample
    tensors: SampleTensors
    columns: Tensor
    likely: Tensor | None = None
    teachers: list[KnownRows] = field(default_factory=list)
    base: KnownRows | None = None
    target: Target | None = None
    last: Tensor | None = None
    """What the last epoch said, without gradient."""

    @property
    def passage(self) -> Passage:
        ids = self.sample.prompt_ids + self.sample.response_ids[:-1]
        targets = np.zeros((len(ids), self.columns.shape[1]), dtype=np.int64)
        targets[-len(self.sample.response_ids) :] = self.columns.numpy()
        return Passage(ids=ids, targets=targets)


class CloudStep:
    """Moves the adapter of a learner. `student` is what samplers call the weights that it begins from."""

    def __init__(
        self,
        learner: CloudLearner,
        sampler: CloudSampler,
        abilities: Abilities,
        settings: TrainSettings,
        loss: LossSettings,
        *,
        student: str | None,
    ) -> None:
        self._learner = learner
        self._sampler = sampler
        self._abilities = abilities
        self._settings = settings
        self._loss = HybridLoss(within(loss, abilities))
        self._has_likely = has_likely(abilities)
        self._student = student
        self._places = asyncio.Semaphore(_AT_ONCE)
        self.used = Used()
        """By samplers."""

    async def take(self, samples: Sequence[Sample], *, number: int) -> StepOutcome:
        """Step `number` of a line, counted from 1. After an error or a reason the learner is of no more use."""
        began_at, settings = time.perf_counter(), self._settings
        mean = BatchMean(
            num_samples=len(samples),
            num_tokens=sum(sum(one.loss_mask) for one in samples),
            per_token=settings.loss_per_token,
        )
        fitting = [one for one in samples if self._longest(one) <= self._abilities.context_window]
        work = await asyncio.gather(*(self._prepared(one) for one in fitting))
        moving = [one for one in work if one is not None]
        found: defaultdict[str, list[float]] = defaultdict(list)
        total, norm = 0.0, math.nan
        for _ in range(settings.num_epochs):
            total = await self._epoch(moving, mean, found)
            if not math.isfinite(total):
                return StepOutcome({}, f"the loss is {total}")
            learning_rate = settings.learning_rate_at(number)
            told = await self._learner.move(
                Move(
                    learning_rate=learning_rate,
                    beta1=settings.adam_betas[0],
                    beta2=settings.adam_betas[1],
                    weight_decay=settings.weight_decay,
                    max_norm=settings.clip_grad_norm,
                )
            )
            norm = told.get("norm", math.nan)
            if math.isinf(norm):
                return StepOutcome({}, f"the norm of the gradient is {norm}")
        names = {**_NAMES, **_OWN}
        metrics = {names.get(name, f"sample/{name}"): fmean(values) for name, values in found.items()}
        rewards = [one.reward for one in samples if one.kind not in _OWN]
        metrics |= {
            "loss/total": total,
            "reward/mean": fmean(rewards),
            "reward/std": pstdev(rewards),
            "learning_rate": settings.learning_rate_at(number),
            "step/samples": len(samples),
            "step/exercises": Counter(one.kind for one in samples)["exercise"],
            "step/too_long": len(samples) - len(fitting),
            "step/tokens": sum(len(one.prompt_ids) + len(one.response_ids) - 1 for one in samples),
            "step/seconds": time.perf_counter() - began_at,
        }
        return StepOutcome(metrics if math.isnan(norm) else {**metrics, "gradient/norm": norm})

    # -- what is known before the first move ---------------------------------------------------------------------------

    def _longest(self, sample: Sample) -> int:
        prompts = [sample.prompt_ids, *(sample.teacher_prompt(one) for one in sample.candidates)]
        return max(map(len, prompts)) + len(sample.response_ids)

    async def _prepared(self, sample: Sample) -> _Item | None:
        """None for a sample that can move nothing; it keeps its place in the denominator."""
        tensors, settings = sample_tensors(sample), self._loss.settings
        if not self._loss.needs_student(tensors):
            return None
        response_R1 = tensors.response_ids.unsqueeze(-1)
        one = _Item(sample=sample, tensors=tensors, columns=response_R1)
        num_teachers = self._loss.num_teachers(tensors)
        if num_teachers:
            if self._has_likely:
                told = await self._read(self._student, sample.prompt_ids, sample, likely=settings.top_k)
                one.likely = torch.from_numpy(_likely(told)[0])
                one.columns = torch.cat((response_R1, one.likely), dim=-1)
            else:
                one.likely = response_R1
            for candidate in sample.candidates[:num_teachers]:
                one.teachers.append(await self._teacher(one, sample.teacher_prompt(candidate)))
        if self._loss.needs_base:
            told = await self._read(None, sample.prompt_ids, sample)
            one.base = KnownRows(response_R1, torch.from_numpy(told.logprobs).unsqueeze(-1), likely_RK=None)
        return one

    async def _teacher(self, one: _Item, prompt_ids: tuple[int, ...]) -> KnownRows:
        """What a hinted teacher says of the response, of the student's likely tokens, and which are its own."""
        settings, sample = self._loss.settings, one.sample
        is_base = sample.kind == "anchor" or self._settings.teacher == "base"
        weights = None if is_base else self._student
        response_R1 = one.tensors.response_ids.unsqueeze(-1)
        if not self._has_likely:
            told = await self._read(weights, prompt_ids, sample)
            logprobs_R1 = torch.from_numpy(told.logprobs).unsqueeze(-1)
            return KnownRows(response_R1, logprobs_R1, likely_RK=response_R1)
        assert one.likely is not None
        width = max(settings.top_k, settings.teacher_top_k)
        asks = self._abilities.chosen_tokens
        told = await self._read(
            weights, prompt_ids, sample, likely=width, chosen_RK=one.likely.numpy() if asks else None
        )
        likely_RK, logprobs_RK = (torch.from_numpy(each) for each in _likely(told))
        ids = [response_R1, likely_RK]
        values = [torch.from_numpy(told.logprobs).unsqueeze(-1), logprobs_RK]
        if told.chosen is not None:
            ids.append(one.likely)
            values.append(torch.from_numpy(told.chosen))
        one.columns = torch.cat((one.columns, likely_RK), dim=-1)
        return KnownRows(torch.cat(ids, dim=-1), torch.cat(values, dim=-1), likely_RK=likely_RK)

    async def _read(
        self,
        weights: str | None,
        prompt_ids: tuple[int, ...],
        sample: Sample,
        *,
        likely: int = 0,
        chosen_RK: Ints | None = None,
    ) -> SaidOf:
        async with self._places:
            told = await self._sampler.read(
                weights,
                prompt_ids + sample.response_ids,
                last=len(sample.response_ids),
                likely=likely,
                chosen_RK=chosen_RK,
            )
        self.used += told.used
        return told

    # -- an epoch ------------------------------------------------------------------------------------------------------

    async def _epoch(self, work: Sequence[_Item], mean: BatchMean, found: defaultdict[str, list[float]]) -> float:
        """Adds the gradient of all of them; their loss."""
        ways: defaultdict[str, list[_Item]] = defaultdict(list)
        for one in work:
            ways[self._way(one)].append(one)
        total = 0.0
        if custom := ways["custom"]:
            shares: list[float] = []

            def gradient(logprobs: Sequence[Floats]) -> list[Floats]:
                slopes = []
                for one, given in zip(custom, logprobs, strict=True):
                    share, slope = self._slope(one, given, mean, found)
                    shares.append(share)
                    slopes.append(slope)
                return slopes

            await self._learner.backward([one.passage for one in custom], gradient)
            total += sum(shares)
        if linear := ways["linear"]:
            before: defaultdict[str, list[float]] = defaultdict(list)
            slopes = [self._slope(one, self._whole(one), mean, before)[1] for one in linear]
            said = await self._learner.linear([one.passage for one in linear], slopes)
            total += sum(self._slope(one, given, mean, found)[0] for one, given in zip(linear, said, strict=True))
        if policy := ways["policy"]:
            limits = self._loss.settings
            said = await self._learner.policy(
                [self._policy(one, mean) for one in policy], clip_low=limits.clip_low, clip_high=limits.clip_high
            )
            for one, given in zip(policy, said, strict=True):
                total += self._slope(one, given[:, None], mean, found)[0]
        return total

    def _way(self, one: _Item) -> str:
        """How many passes a sample needs: the first epoch measures all that stays fixed, so it needs both."""
        settings, target = self._loss.settings, one.target
        if target is None or target.base is not None:
            return "custom"
        has_policy = one.tensors.w_rl != 0 and one.tensors.has_advantage
        if target.guidance is None:
            plain = not settings.sequence_ratio and settings.dual_clip is None and self._abilities.policy_loss
            return "policy" if plain else "custom"
        is_linear = one.tensors.is_demonstration or settings.distillation == "forward_kl"
        return "linear" if is_linear and not has_policy else "custom"

    def _slope(
        self, one: _Item, given: Floats, mean: BatchMean, found: defaultdict[str, list[float]]
    ) -> tuple[float, Floats]:
        """A sample's share of the loss at these log-probs [N, C], and the slope by each of them."""
        num_response = len(one.sample.response_ids)
        said_RC = torch.from_numpy(np.array(given[-num_response:], dtype=np.float32)).requires_grad_()
        columns_RC = one.columns[:, : said_RC.shape[1]]
        rows = KnownRows(columns_RC, said_RC, likely_RK=one.likely)
        if one.target is None:
            one.target = self._loss.target(rows, one.tensors, teachers=one.teachers, base=one.base)
        loss_R, metrics = self._loss(rows, one.tensors, one.target)
        share = mean.share(loss_R, one.tensors.mask)
        share.backward()
        one.last = said_RC.detach()
        if one.sample.kind in _OWN:  # nobody asked for it: it would hide what the samples say
            metrics = {one.sample.kind: metrics["loss_opd"]} if "loss_opd" in metrics else {}
        for name, value in metrics.items():
            if name != "overlap" or self._has_likely:
                found[name].append(float(value))
        slope = np.zeros(given.shape, dtype=np.float32)
        if said_RC.grad is not None:
            slope[-num_response:] = said_RC.grad.numpy()
        return float(share.detach()), slope

    def _whole(self, one: _Item) -> Floats:
        """The last epoch's log-probs: any will do where the slope does not depend on them."""
        assert one.last is not None
        whole = np.zeros((len(one.passage.ids), one.last.shape[1]), dtype=np.float32)
        whole[-len(one.last) :] = one.last.numpy()
        return whole

    def _policy(self, one: _Item, mean: BatchMean) -> Policy:
        """Each token's advantage with all that it is multiplied by: the service's sum is then our share of the loss."""
        target, tensors, settings = one.target, one.tensors, self._loss.settings
        assert target is not None
        parts_R = torch.zeros_like(target.old, requires_grad=True)
        mean.share(parts_R, tensors.mask).backward()
        assert parts_R.grad is not None
        weights_R = importance_weights(
            target.old, tensors.sampled, max_weight=settings.importance_clip, on_policy=tensors.on_policy
        )
        advantages_R = tensors.w_rl * tensors.advantages * weights_R * parts_R.grad
        passage, num = one.passage, len(tensors.response_ids)
        old_N, advantages_N = (np.zeros(len(passage.ids), dtype=np.float32) for _ in range(2))
        old_N[-num:], advantages_N[-num:] = target.old.numpy(), advantages_R.numpy()
        return Policy(ids=passage.ids, targets=passage.targets[:, 0].copy(), old=old_N, advantages=advantages_N)


def has_likely(abilities: Abilities) -> bool:
    """Whether a teacher's likeliest tokens can be had, and be trained on."""
    return abilities.likely_tokens and abilities.wide_targets


def within(loss: LossSettings, abilities: Abilities) -> LossSettings:
    """The loss as far as a service can carry it; `instead` says the same in words, at the start."""
    if has_likely(abilities):
        if abilities.chosen_tokens or loss.distillation in ("forward_kl", "token"):
            return loss
        return replace(loss, subset_mode="teacher")
    return replace(loss, distillation="token", hint_selection="shortest", top_k=1, teacher_top_k=1)


def _likely(told: SaidOf) -> tuple[Ints, Floats]:
    assert told.likely is not None, "it was asked for"
    return told.likely
