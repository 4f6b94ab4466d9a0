"""The opponent of `train_step.py`: a step as the public recipe takes it, on our network and with our loss.

Turn by turn, every pass over the whole history:

    old        the policy before the step, its adapter on
    reference  the policy without its adapter, for a penalty that is multiplied by zero
    teachers   one pass for each hint, without the adapter
    learn      forward and backward, every layer computed again on the way back

Each pass makes whole logits [R, V] of its response, in float32, and their log-softmax. Gradients add up over the turns;
then one clipped step of the optimiser. Kernels, precision and threads are ours, so what is measured is the recipe.
It is generous: full logits of the prompt, padding, and a second pass for top-k indices are left out.

Axes: R response tokens, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from openclaw_rl.train.objective.aggregate import BatchMean
from openclaw_rl.train.objective.hybrid import HybridLoss
from openclaw_rl.train.objective.penalties import kl_to_base
from openclaw_rl.train.objective.rows import Rows
from openclaw_rl.train.objective.sample import sample_tensors
from openclaw_rl.train.passes.activations import ALL, Kept
from openclaw_rl.train.passes.reader import Reader
from openclaw_rl.train.passes.sequences import Sequenced
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.train.worker.student import Student
from openclaw_rl.types import Sample


@dataclass(slots=True)
class Passes:
    """Where the seconds of a step or a turn went."""

    old: float = 0.0
    reference: float = 0.0
    teachers: float = 0.0
    learn: float = 0.0
    optimiser: float = 0.0

    @property
    def total(self) -> float:
        return self.old + self.reference + self.teachers + self.learn + self.optimiser

    @property
    def needed(self) -> float:
        """Without the two passes that change nothing."""
        return self.total - self.old - self.reference


@dataclass(frozen=True, slots=True)
class ReferenceOutcome:
    """A step: the seconds of each turn, and what it came to."""

    turns: list[Passes]
    optimiser_s: float
    loss: float
    gradient_norm: float

    @property
    def passes(self) -> Passes:
        each = [asdict(turn) for turn in self.turns]
        total = Passes(**{name: sum(turn[name] for turn in each) for name in each[0]})
        total.optimiser = self.optimiser_s
        return total


class ReferenceStep:
    """Moves a student as the public recipe does."""

    def __init__(
        self,
        student: Student,
        base: Reader,
        optimiser: torch.optim.Optimizer,
        loss: HybridLoss,
        settings: TrainSettings,
    ) -> None:
        self._student = student
        self._reader = student.reader.plain
        self._base = base.plain
        self._optimiser = optimiser
        self._loss = loss
        self._settings = settings
        self._device = self._reader.device

    def take(self, samples: Sequence[Sample]) -> ReferenceOutcome:
        """One step on the turns of a session."""
        mean = BatchMean(num_samples=len(samples), num_tokens=sum(sum(one.loss_mask) for one in samples))
        self._optimiser.zero_grad(set_to_none=True)
        turns: list[Passes] = []
        total = 0.0
        with _fast_attention(self._device):
            for sample in samples:
                passes, share = self._turn(sample, mean)
                turns.append(passes)
                total += share
        passes = Passes()
        with self._timed(passes, "optimiser"):
            norm = torch.nn.utils.clip_grad_norm_(self._student.parameters, self._settings.clip_grad_norm)
            self._optimiser.step()
            self._optimiser.zero_grad(set_to_none=True)
        return ReferenceOutcome(turns, passes.optimiser, total, float(norm))

    def turn(self, sample: Sample) -> Passes:
        """One turn alone, without a step: how long it takes."""
        with _fast_attention(self._device):
            passes, _ = self._turn(sample, BatchMean(num_samples=1, num_tokens=len(sample.response_ids)))
        self._optimiser.zero_grad(set_to_none=True)
        return passes

    def _turn(self, sample: Sample, mean: BatchMean) -> tuple[Passes, float]:
        passes, plain = Passes(), Sequenced(sample.prompt_ids, sample.response_ids)
        tensors = sample_tensors(sample, dtype=torch.float32, device=self._device)
        temperature = self._settings.temperature_of(sample.temperature)
        response_R1 = tensors.response_ids.unsqueeze(-1)
        with torch.no_grad():
            with self._timed(passes, "old"):
                old = _rows(self._reader, plain, temperature)
            with self._timed(passes, "teachers"):
                prompts = [sample.teacher_prompt(one) for one in sample.candidates]
                teachers = [_rows(self._base, Sequenced(one, sample.response_ids), temperature) for one in prompts]
                target = self._loss.target(old, tensors, teachers=teachers)
            del old, teachers
            with self._timed(passes, "reference"):
                reference_R = _rows(self._base, plain, temperature).logprob(response_R1).squeeze(-1)
        with self._timed(passes, "learn"):
            rows = _rows(self._reader, plain, temperature, kept=Kept(keep="nothing"))
            loss_R, _ = self._loss(rows, tensors, target)
            penalty_R = kl_to_base(rows.logprob(response_R1).squeeze(-1), reference_R, "k3")
            share = mean.share(loss_R + 0.0 * penalty_R, tensors.mask)
            share.backward()
        return passes, float(share.detach())

    @contextmanager
    def _timed(self, passes: Passes, name: str) -> Iterator[None]:
        began_at = now(self._device)
        yield
        setattr(passes, name, getattr(passes, name) + now(self._device) - began_at)


def _rows(reader: Reader, sequence: Sequenced, temperature: float, *, kept: Kept = ALL) -> Rows:
    (reading,) = reader.read([sequence], kept=kept)
    return reading.rows(temperature)


@contextmanager
def _fast_attention(device: torch.device) -> Iterator[None]:
    """cuDNN's kernel, as ours: torch's own choice takes 1.6 to 1.9 times as long on Hopper."""
    if device.type != "cuda":
        yield
        return
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(order, set_priority=True):
        yield


def now(device: torch.device) -> float:
    """Seconds, when everything that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
