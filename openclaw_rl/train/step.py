"""One optimiser step: samples in, moved weights and metrics out; or nothing moved, and the reason.

A step is a function of the weights, the optimiser's state, the samples and the seed: it remembers nothing else, and
gives the same bits again on the same CPU. Samples are computed in parts of a bounded number of tokens. Knows no file,
no line and no version.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev

import torch
from torch import Tensor

from openclaw_rl.train.critic import Critic
from openclaw_rl.train.objective.aggregate import BatchMean
from openclaw_rl.train.objective.hybrid import HybridLoss
from openclaw_rl.train.objective.rows import DenseRows, Rows
from openclaw_rl.train.objective.sample import SampleTensors, Target, sample_tensors
from openclaw_rl.train.sequences import Sequenced
from openclaw_rl.train.settings import TrainSettings
from openclaw_rl.train.student import Student
from openclaw_rl.train.teacher import Teacher
from openclaw_rl.types import Sample

_NAMES = {"loss_rl": "loss/binary", "loss_opd": "loss/opd", "loss_value": "loss/value", "anchor": "loss/anchor"}
"""Metrics that have names of their own since long before; the others are `sample/NAME`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`reason` is empty for a step that was taken; else nothing was moved."""

    metrics: Mapping[str, float]
    reason: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """A sample on its way through a step."""

    sample: Sample
    tensors: SampleTensors
    student: Sequenced
    teachers: tuple[Sequenced, ...]

    def __len__(self) -> int:
        return len(self.student) + sum(map(len, self.teachers))


@dataclass(slots=True)
class _Clock:
    """Where the time of a step goes."""

    forward_s: float = 0.0
    backward_s: float = 0.0
    began_at: float = field(default_factory=time.perf_counter)


class OutOfMemory(Exception):
    """A part did not fit. `largest` are the tokens of the largest sample with its teachers, `total` those of all."""

    def __init__(self, *, largest: int, total: int) -> None:
        super().__init__(f"a part of a step does not fit into memory; its largest sample has {largest} tokens")
        self.largest = largest
        self.total = total


class StepTaker:
    """Moves a student, in parts of up to `max_tokens` tokens."""

    def __init__(
        self,
        student: Student,
        optimiser: torch.optim.Optimizer,
        loss: HybridLoss,
        teacher: Teacher,
        base: Teacher,
        settings: TrainSettings,
        *,
        max_tokens: int,
        critic: Critic | None = None,
    ) -> None:
        self._student = student
        self._optimiser = optimiser
        self._loss = loss
        self._teacher = teacher
        self._base = base
        self._settings = settings
        self._max_tokens = max_tokens
        self._critic = critic

    def take(self, samples: Sequence[Sample], *, number: int, seed: int) -> Outcome:
        """Step `number` of a line, counted from 1. After an `OutOfMemory` the weights are in doubt: load them again."""
        work = [self._prepare(sample) for sample in samples]
        try:
            return self._take(work, number=number, seed=seed)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if _is_out_of_memory(error):
                raise OutOfMemory(largest=max(map(len, work)), total=sum(map(len, work))) from error
            raise

    def _take(self, work: Sequence[_Work], *, number: int, seed: int) -> Outcome:
        clock, settings = _Clock(), self._settings
        learning_rate = settings.learning_rate_at(number)
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate
        mean = BatchMean(
            num_samples=len(work),
            num_tokens=sum(sum(one.sample.loss_mask) for one in work),
            per_token=settings.loss_per_token,
        )
        targets: dict[str, Target] = {}
        found: defaultdict[str, list[float]] = defaultdict(list)
        total, norm = 0.0, 0.0
        for epoch in range(settings.num_epochs):
            self._optimiser.zero_grad(set_to_none=True)
            total = 0.0
            for part_number, part in enumerate(self._parts(work)):
                dropout_seed = ((seed * 1009 + number) * 1009 + epoch) * 1009 + part_number
                total += self._backward(part, targets, mean, found, clock, dropout_seed=dropout_seed)
            norm = self._clip(self._student.parameters)
            # Apart from the policy's, so that a critic that is far off does not make the policy's step shorter.
            whole = norm if self._critic is None else math.hypot(norm, self._clip(self._critic.parameters))
            if not (math.isfinite(total) and math.isfinite(whole)):
                self._optimiser.zero_grad(set_to_none=True)
                return Outcome({}, f"the loss is {total} and the norm of its gradient {whole}")
            self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        metrics = {_NAMES.get(name, f"sample/{name}"): fmean(values) for name, values in found.items()}
        rewards = [one.sample.reward for one in work if one.sample.kind != "anchor"]
        seconds = time.perf_counter() - clock.began_at
        metrics |= {
            "loss/total": total,
            "reward/mean": fmean(rewards),
            "reward/std": pstdev(rewards),
            "gradient/norm": norm,
            "learning_rate": learning_rate,
            "step/samples": len(work),
            "step/tokens": sum(map(len, work)),
            "step/seconds": seconds,
            "step/overhead_share": 1 - (clock.forward_s + clock.backward_s) / seconds,
        }
        return Outcome(metrics)

    def _clip(self, parameters: Sequence[Tensor]) -> float:
        """Shortens the gradient where it is too long; its norm before that."""
        return float(torch.nn.utils.clip_grad_norm_(parameters, self._settings.clip_grad_norm))

    def _temperature(self, sample: Sample) -> float:
        return self._settings.temperature_of(sample.temperature)

    def _prepare(self, sample: Sample) -> _Work:
        tensors = sample_tensors(sample, dtype=torch.float32, device=self._student.reader.device)
        candidates = sample.candidates[: self._loss.num_teachers(tensors)]
        return _Work(
            sample,
            tensors,
            Sequenced(sample.prompt_ids, sample.response_ids),
            tuple(Sequenced(sample.teacher_prompt(one), sample.response_ids) for one in candidates),
        )

    def _parts(self, work: Sequence[_Work]) -> Iterator[list[_Work]]:
        """Samples that can move something, in parts; a sample that is larger than a part is one by itself."""
        moving = [one for one in work if self._loss.needs_student(one.tensors)]
        most = -(-len(moving) // self._settings.gradient_accumulation_steps)
        part: list[_Work] = []
        for one in moving:
            if part and (len(part) == most or sum(map(len, part)) + len(one) > self._max_tokens):
                yield part
                part = []
            part.append(one)
        if part:
            yield part

    def _backward(
        self,
        part: Sequence[_Work],
        targets: dict[str, Target],
        mean: BatchMean,
        found: defaultdict[str, list[float]],
        clock: _Clock,
        *,
        dropout_seed: int,
    ) -> float:
        """Adds the gradient of a part; its share of the loss."""
        began_at = time.perf_counter()
        fixed = self._fixed(part, targets)
        readings = self._student.reader.read(
            [one.student for one in part],
            recompute=self._settings.use_gradient_checkpointing,
            dropout_seed=dropout_seed,
        )
        shares: list[Tensor] = []
        for one, reading in zip(part, readings, strict=True):
            rows = DenseRows(reading.logits(), self._temperature(one.sample))
            needs_values = self._loss.needs_values(one.tensors)
            values_R = self._critic(reading.hidden) if self._critic and needs_values else None
            if one.sample.id not in targets:
                teachers, base = fixed[one.sample.id]
                targets[one.sample.id] = self._loss.target(
                    rows, one.tensors, teachers=teachers, base=base, values=values_R
                )
            loss_R, metrics = self._loss(rows, one.tensors, targets[one.sample.id], values=values_R)
            shares.append(mean.share(loss_R, one.tensors.mask))
            if one.sample.kind == "anchor":  # nobody's answer: it would hide what the samples say
                metrics = {"anchor": metrics["loss_opd"]} if "loss_opd" in metrics else {}
            for name, value in metrics.items():
                found[name].append(float(value))
        total = torch.stack(shares).sum()
        clock.forward_s += time.perf_counter() - began_at
        began_at = time.perf_counter()
        total.backward()
        share = float(total.detach())  # on a GPU this waits for the passes, whose time it is
        clock.backward_s += time.perf_counter() - began_at
        return share

    def _fixed(self, part: Sequence[_Work], targets: Mapping[str, Target]) -> dict[str, tuple[list[Rows], Rows | None]]:
        """What teacher and base model, as far as they are asked, say about the samples that are new."""
        new = [one for one in part if one.sample.id not in targets]
        asked = [(one, sequence) for one in new for sequence in one.teachers]
        taught: dict[str, list[Rows]] = {one.sample.id: [] for one in new}
        for teacher, held in ((self._teacher, False), (self._base, True)):
            mine = [(one, sequence) for one, sequence in asked if (one.sample.kind == "anchor") == held]
            if mine:
                temperatures = [self._temperature(one.sample) for one, _ in mine]
                found = teacher.read([sequence for _, sequence in mine], temperatures)
                for (one, _), rows in zip(mine, found, strict=True):
                    taught[one.sample.id].append(rows)
        based: Sequence[Rows | None] = [None] * len(new)
        if new and self._loss.needs_base:
            based = self._base.read([one.student for one in new], [self._temperature(one.sample) for one in new])
        return {one.sample.id: (taught[one.sample.id], rows) for one, rows in zip(new, based, strict=True)}


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)
