"""Orders -> steps -> checkpoints: everything a trainer does with tensors, behind one method. Blocking.

The line that was trained last stays in memory, so that its next step starts at once; any other is loaded from its
checkpoint. Knows no socket, no store, and no conversation: an order holds all it needs.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from openclaw_rl.errors import ModelError, TrainError
from openclaw_rl.model.adapter import AdapterWeights, LoraRows
from openclaw_rl.model.architecture import Architecture, read_architecture
from openclaw_rl.model.checksum import folder_sha256
from openclaw_rl.model.network import Network
from openclaw_rl.model.weights import load_weights
from openclaw_rl.train.checkpoint import WEIGHTS, load_average, load_optimiser, save_checkpoint
from openclaw_rl.train.objective.custom import load_loss
from openclaw_rl.train.objective.hybrid import HybridLoss, hybrid_loss
from openclaw_rl.train.objective.settings import LossSettings
from openclaw_rl.train.settings import TrainSettings
from openclaw_rl.train.step import Outcome, OutOfMemory, StepTaker
from openclaw_rl.train.student import AdapterStudent, FullStudent, Student, new_adapter
from openclaw_rl.train.teacher import Teacher
from openclaw_rl.train.wire import StepOrder, StepReport

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Line:
    """A line in memory, as its checkpoint `at` has it."""

    at: str | None
    student: Student
    optimiser: torch.optim.Optimizer
    average: Tensor | None


class Trainer:
    """Takes steps on one model."""

    def __init__(self, model: Path, *, device: torch.device, dtype: torch.dtype) -> None:
        self._model = model
        self._device = device
        self._dtype = dtype
        self._line: tuple[str, _Line] | None = None
        self._max_tokens: int | None = None

    def step(self, order: StepOrder) -> StepReport:
        """The checkpoint at `order.target` is on the disk when this returns, unless the report says `discarded`."""
        settings = TrainSettings.from_training(order.settings)
        target = Path(order.target)
        if target.exists():
            shutil.rmtree(target)  # no row names it: whoever ordered it died before the report arrived
        line, outcome = self._take(order, settings)
        if outcome.reason:
            self._line = None
            return StepReport(state="discarded", metrics=outcome.metrics, reason=outcome.reason)
        self._move_average(line, settings)
        save_checkpoint(
            target,
            save_weights=line.student.save,
            optimiser=line.optimiser,
            average=line.average,
            step=order.number,
        )
        line.at = order.target
        self._line = (order.line, line)
        return StepReport(state="done", metrics=outcome.metrics, sha256=folder_sha256(target / WEIGHTS))

    def _take(self, order: StepOrder, settings: TrainSettings) -> tuple[_Line, Outcome]:
        while True:
            line = self._load(order, settings)
            taker = self._taker(line, order, settings)
            try:
                return line, taker.take(order.samples, number=order.number, seed=order.seed)
            except OutOfMemory as shortage:
                self._line = None
                self._shrink(shortage, settings)

    @cached_property
    def _network(self) -> Network:
        return self._open(self._model)

    @property
    def _architecture(self) -> Architecture:
        return self._network.arch

    def _open(self, folder: Path) -> Network:
        arch = read_architecture(folder)
        if arch is None:
            raise TrainError(f"{folder} is of an architecture that cannot be trained here; use a Llama or Qwen3 model")
        return Network(arch, load_weights(folder, arch, device=self._device, dtype=self._dtype))

    def _load(self, order: StepOrder, settings: TrainSettings) -> _Line:
        if self._line is not None and self._line[0] == order.line and self._line[1].at == order.parent:
            return self._line[1]
        parent = None if order.parent is None else Path(order.parent)
        student = self._student(parent, settings, seed=order.seed)
        optimiser = torch.optim.AdamW(
            student.parameters,
            lr=settings.learning_rate,
            betas=settings.adam_betas,
            weight_decay=settings.weight_decay,
        )
        average = None if parent is None else load_average(parent)
        if parent is not None:
            load_optimiser(parent, optimiser, step=order.parent_number)
        if settings.teacher == "ema" and average is None:
            (flat,) = student.parameters
            average = flat.detach().clone()
        return _Line(order.parent, student, optimiser, average)

    def _student(self, parent: Path | None, settings: TrainSettings, *, seed: int) -> Student:
        if not settings.use_lora:
            if settings.teacher == "ema":
                raise TrainError("training.teacher: ema keeps an average of an adapter; it needs use_lora: true")
            return FullStudent(self._network if parent is None else self._open(parent / WEIGHTS), source=self._model)
        if parent is None:
            adapter = new_adapter(self._architecture, settings, seed=seed, device=self._device)
        else:
            adapter = AdapterWeights.load(
                parent / WEIGHTS, self._architecture, device=self._device, dtype=torch.float32
            )
        return AdapterStudent(self._network, adapter, dropout=settings.lora_dropout)

    def _taker(self, line: _Line, order: StepOrder, settings: TrainSettings) -> StepTaker:
        function = hybrid_loss if settings.custom_loss is None else load_loss(settings.custom_loss)
        loss = HybridLoss(LossSettings.from_training(order.settings), function)
        max_tokens = min(settings.micro_batch_tokens, self._max_tokens or settings.micro_batch_tokens)
        return StepTaker(
            line.student,
            line.optimiser,
            loss,
            self._teacher(line, settings),
            Teacher(self._network),
            settings,
            max_tokens=max_tokens,
        )

    def _teacher(self, line: _Line, settings: TrainSettings) -> Teacher:
        temperature = settings.teacher_temperature
        match settings.teacher:
            case "base":
                return Teacher(self._network, temperature=temperature)
            case "current":
                return Teacher(line.student.network, line.student.lora, temperature=temperature)
            case "ema":
                assert isinstance(line.student, AdapterStudent)
                assert line.average is not None
                average = line.student.adapter.over(line.average.to(self._dtype))
                return Teacher(
                    self._network, lambda size: LoraRows([(slice(0, size), average)]), temperature=temperature
                )
            case "path":
                return Teacher(self._other(Path(str(settings.teacher_path))), temperature=temperature)

    def _other(self, folder: Path) -> Network:
        network = self._open(folder)
        if network.arch.vocab_size != self._architecture.vocab_size:
            raise ModelError(
                f"the teacher in {folder} knows {network.arch.vocab_size} tokens, the model "
                f"{self._architecture.vocab_size}: training.teacher_path must name a model with the same tokenizer"
            )
        return network

    def _move_average(self, line: _Line, settings: TrainSettings) -> None:
        if line.average is not None:
            (flat,) = line.student.parameters
            line.average.lerp_(flat.detach(), 1 - settings.ema_decay)

    def _shrink(self, shortage: OutOfMemory, settings: TrainSettings) -> None:
        now = min(settings.micro_batch_tokens, self._max_tokens or settings.micro_batch_tokens, shortage.total)
        if now <= shortage.largest:
            raise TrainError(
                f"a sample of {shortage.largest} tokens, its teachers' included, does not fit into memory. Set "
                "training.use_gradient_checkpointing=true or lower evaluation.max_candidates"
            ) from shortage
        self._max_tokens = max(shortage.largest, now // 2)
        _log.warning("out of memory: smaller parts from now on", extra={"max_tokens": self._max_tokens})
