"""The product's step on a session, put together as the trainer does, on a network with random weights.

But for one thing: the base model remembers nothing from step to step, or a session taken twice would look too cheap.

Shared by the benchmarks that need a real training step (`train_step.py`, `beside.py`). Knows no opponent.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.sessions import Lengths, session
from benchmarks.trainer import SETTINGS
from openclaw_rl.model.architecture import Architecture
from openclaw_rl.model.network import Network
from openclaw_rl.train.objective.hybrid import HybridLoss
from openclaw_rl.train.objective.settings import LossSettings
from openclaw_rl.train.passes.reader import NetworkReader
from openclaw_rl.train.passes.rooms import Rooms
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.train.worker.step import OutOfMemory, PassRoom, StepOutcome, StepTaker
from openclaw_rl.train.worker.student import AdapterStudent, FullStudent, Student, new_adapter
from openclaw_rl.train.worker.teacher import Teacher
from openclaw_rl.types import Sample

RANK = 32
PEAK_TFLOP_S = 989.0
"""Of an H100 or H200 in bfloat16 without sparsity, by the data sheet."""
BEGAN_AT = time.perf_counter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What everything is measured with."""

    network: Network
    lengths: Lengths
    num_turns: int
    recompute: bool | None
    """`training.use_gradient_checkpointing`; None: as memory asks for it."""
    gemm_tflop_s: float

    @property
    def device(self) -> torch.device:
        return self.network.device

    @property
    def arch(self) -> Architecture:
        return self.network.arch

    @property
    def peak_tflop_s(self) -> float:
        """On a CPU nobody publishes one: what a large product reaches."""
        return PEAK_TFLOP_S if self.device.type == "cuda" else self.gemm_tflop_s

    def samples(self, num_turns: int, *, thinking: bool = False) -> list[Sample]:
        lengths = self.lengths if thinking else replace(self.lengths, thinking=0)
        return session(lengths, num_turns, vocab_size=self.arch.vocab_size)

    def settings(self, *, use_lora: bool) -> Mapping[str, Any]:
        return {
            **SETTINGS,
            "use_lora": use_lora,
            "learning_rate": 3e-4 if use_lora else 1e-5,
            "lora_rank": RANK,
            "lora_alpha": 2.0 * RANK,
            "use_gradient_checkpointing": self.recompute,
        }

    def shallow(self) -> Bench:
        """The first layer alone: on a GPU it makes every kernel and plan that all layers need."""
        weights = replace(self.network.weights, layers=self.network.weights.layers[:1])
        return replace(self, network=Network(replace(self.arch, num_layers=1), weights, is_fused=True))


def learner(bench: Bench, settings: TrainSettings) -> tuple[Student, torch.optim.Optimizer]:
    student: Student
    if settings.use_lora:
        adapter = new_adapter(bench.arch, settings, seed=0, device=bench.device)
        student = AdapterStudent(bench.network, adapter, dropout=settings.lora_dropout)
    else:
        student = FullStudent(bench.network, source=Path())
    return student, torch.optim.AdamW(
        student.parameters, lr=settings.learning_rate, betas=settings.adam_betas, weight_decay=settings.weight_decay
    )


class Ours:
    """The product's step, put together as `train.trainer` does."""

    def __init__(self, bench: Bench, *, use_lora: bool = True) -> None:
        values = bench.settings(use_lora=use_lora)
        self._settings = settings = TrainSettings.from_training(values)
        student, optimiser = learner(bench, settings)
        self._num_learning = sum(one.numel() for one in student.parameters)
        self._rooms = Rooms(
            bench.arch, device=bench.device, dtype=bench.network.dtype, shrink=1, is_fused=bench.network.is_fused
        )
        self.device = bench.device
        self.room = PassRoom(max_tokens=0)
        """Of the last step, as are the tokens that learn."""
        self._num_tokens = 0
        base = NetworkReader(bench.network)
        self._taker = StepTaker(
            student.reader,
            student.parameters,
            optimiser,
            HybridLoss(LossSettings.from_training(values)),
            Teacher(base, temperature=settings.teacher_temperature),
            Teacher(base),
            settings,
            room_for=self._room_for,
        )
        self._number = 0

    def take(self, samples: Sequence[Sample]) -> StepOutcome:
        self._number += 1
        while True:
            try:
                outcome = self._taker.take(samples, number=self._number, seed=0)
            except OutOfMemory as shortage:
                if not self._rooms.shrink(shortage, self._settings):
                    raise
                free()
                continue
            assert not outcome.reason, outcome.reason
            if self._num_tokens > self.room.max_tokens:
                say("our step was computed in parts: it took more FLOPs than are counted")
            return outcome

    def _room_for(self, num_tokens: int) -> PassRoom:
        self._num_tokens = num_tokens
        self.room = self._rooms.room(num_tokens, settings=self._settings, num_learning=self._num_learning)
        return self.room


def free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def say(line: str) -> None:
    print(f"{time.perf_counter() - BEGAN_AT:6.1f} s  {line}", file=sys.stderr, flush=True)
