"""One optimiser step: samples in, moved weights and metrics out; or nothing moved, and the reason.

A step is a function of the weights, the optimiser's state, the samples and the seed: it remembers nothing else, and
gives the same bits again on the same CPU. Samples of a conversation are computed together, in parts of a bounded number
of tokens (passes/sequences.py). In a crew each member computes some conversations, whole ones, and the step is that of
all. Knows no file, no line and no version.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

import torch
from torch import Tensor

from openclaw_rl.train.objective.aggregate import BatchMean
from openclaw_rl.train.objective.hybrid import HybridLoss
from openclaw_rl.train.objective.rows import Rows
from openclaw_rl.train.objective.sample import SampleTensors, Target, sample_tensors
from openclaw_rl.train.passes.activations import ALL, Kept
from openclaw_rl.train.passes.reader import Reader
from openclaw_rl.train.passes.sequences import IDLE, Sequenced, in_parts, num_tokens
from openclaw_rl.train.worker.crew import ALONE, Crew, share_out
from openclaw_rl.train.worker.critic import Critic
from openclaw_rl.train.worker.laps import Laps
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.train.worker.teacher import HintedQuestion, Teacher, ask
from openclaw_rl.types import Sample

_NAMES = {"loss_rl": "loss/binary", "loss_opd": "loss/opd", "loss_value": "loss/value"}
"""Metrics that have names of their own since long before; the others are `sample/NAME`."""
_COMPUTING = ("teacher", "forward", "backward")
"""The laps of passes; what a step takes beside them is overhead."""
_OWN = {"anchor": "loss/anchor", "exercise": "loss/exercise"}
"""What a trainer puts beside people's lessons, and the metric of each."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRoom:
    """What a step may take: tokens of a part, tokens that a teacher reads at once, what waits for the backward pass."""

    max_tokens: int
    max_read_tokens: int = 1 << 62
    kept: Kept = ALL


class OutOfMemory(Exception):
    """A part did not fit. `largest` are the tokens of the largest sample, `total` those of all."""

    def __init__(self, *, room: PassRoom, largest: int, total: int) -> None:
        super().__init__(f"a part of a step does not fit into memory; its largest sample has {largest} tokens")
        self.room = room
        self.largest = largest
        self.total = total


class StepTaker:
    """Moves a student, within the room that there is for so many tokens."""

    def __init__(
        self,
        reader: Reader,
        parameters: Sequence[Tensor],
        optimiser: torch.optim.Optimizer,
        loss: HybridLoss,
        teacher: Teacher,
        base: Teacher,
        settings: TrainSettings,
        *,
        room_for: Callable[[int], PassRoom],
        critic: Critic | None = None,
        laps: Laps | None = None,
        crew: Crew = ALONE,
    ) -> None:
        """`reader` is the student, `parameters` what of it the optimiser moves. `laps` are told where the time goes."""
        self._reader = reader
        self._parameters = parameters
        self._optimiser = optimiser
        self._loss = loss
        self._teacher = teacher
        self._base = base
        self._settings = settings
        self._room_for = room_for
        self._critic = critic
        self._laps = laps or Laps()
        self._crew = crew

    def take(self, samples: Sequence[Sample], *, number: int, seed: int) -> StepOutcome:
        """Step `number` of a line, counted from 1. After an `OutOfMemory` the weights are in doubt: load them again."""
        work = [self._prepare(sample) for sample in samples]
        mine = self._mine(self._moving(work))
        room = self._room_for(total := self._num_tokens(mine))
        try:
            return self._take(work, mine, room, number=number, seed=seed)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if _is_out_of_memory(error):
                largest = max(self._num_tokens([one]) for one in work)
                raise OutOfMemory(room=room, largest=largest, total=total) from error
            raise

    def _take(
        self, work: Sequence[_Work], mine: Sequence[_Work], room: PassRoom, *, number: int, seed: int
    ) -> StepOutcome:
        crew = self._crew
        began_at, settings, computed_before = time.perf_counter(), self._settings, self._num_computed()
        computing_before = self._laps.seconds(*_COMPUTING)
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
            for at, part in enumerate(crew.level(self._parts(mine, room))):
                part_number = at * crew.size + crew.number
                dropout_seed = ((seed * 1009 + number) * 1009 + epoch) * 1009 + part_number
                total += self._backward(part or (), room, targets, mean, found, dropout_seed=dropout_seed)
            total = sum(crew.gathered(total))
            whole = norm = crew.clip(self._parameters, settings.clip_grad_norm)
            if self._critic is not None:
                # Apart from the policy's, so that a critic that is far off does not make the policy's step shorter.
                crew.add_gradients(self._critic.parameters)
                whole = math.hypot(norm, ALONE.clip(self._critic.parameters, settings.clip_grad_norm))
            if not (math.isfinite(total) and math.isfinite(whole)):
                self._optimiser.zero_grad(set_to_none=True)
                return StepOutcome({}, f"the loss is {total} and the norm of its gradient {whole}")
            self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        names = {**_NAMES, **_OWN}
        seen = _joined(crew.gathered(found))
        metrics = {names.get(name, f"sample/{name}"): fmean(values) for name, values in seen.items()}
        computed = crew.gathered(self._num_computed() - computed_before)
        kinds = Counter(one.sample.kind for one in work)
        rewards = [one.sample.reward for one in work if one.sample.kind not in _OWN]
        seconds = time.perf_counter() - began_at
        computing = self._laps.seconds(*_COMPUTING) - computing_before
        metrics |= {
            "loss/total": total,
            "reward/mean": fmean(rewards),
            "reward/std": pstdev(rewards),
            "gradient/norm": norm,
            "learning_rate": learning_rate,
            "step/samples": len(work),
            "step/exercises": kinds["exercise"],
            "step/tokens": sum(len(sequence) for one in work for sequence in (one.student, *one.teachers)),
            "step/tokens_computed": sum(computed),
            "step/seconds": seconds,
            "step/overhead_share": 1 - computing / seconds,
        }
        return StepOutcome(metrics)

    def _temperature(self, sample: Sample) -> float:
        return self._settings.temperature_of(sample.temperature)

    def _prepare(self, sample: Sample) -> _Work:
        tensors = sample_tensors(sample, dtype=torch.float32, device=self._reader.device)
        candidates = sample.candidates[: self._loss.num_teachers(tensors)]
        return _Work(
            sample,
            tensors,
            Sequenced(sample.prompt_ids, sample.response_ids),
            tuple(Sequenced(sample.teacher_prompt(one), sample.response_ids) for one in candidates),
        )

    def _moving(self, work: Sequence[_Work]) -> list[_Work]:
        """Samples that can move something."""
        return [one for one in work if self._loss.needs_student(one.tensors)]

    def _mine(self, moving: Sequence[_Work]) -> list[_Work]:
        """Those that this member computes: whole conversations, so many that all members have about as much to do."""
        if self._crew.size == 1:
            return list(moving)
        trees: defaultdict[str, list[_Work]] = defaultdict(list)
        for one in moving:
            trees[one.sample.session or one.sample.id].append(one)
        weights = [self._effort(tree) for tree in trees.values()]
        chosen = share_out(weights, self._crew.size)[self._crew.number]
        return [one for at, tree in enumerate(trees.values()) if at in chosen for one in tree]

    def _effort(self, tree: Sequence[_Work]) -> int:
        """A backward pass takes as long as two passes forward; what is fixed is read once for all epochs."""
        read = [one for work in tree for one in (*work.teachers, *([work.student] if self._loss.needs_base else []))]
        return 3 * self._settings.num_epochs * self._num_tokens(tree) + num_tokens(self._base.reader.counter(), read)

    def _parts(self, mine: Sequence[_Work], room: PassRoom) -> Iterator[list[_Work]]:
        """Those of a conversation beside each other."""
        sorted_ = sorted(mine, key=lambda one: (one.sample.session, one.sample.index))
        return in_parts(
            sorted_,
            lambda one: (one.student,),
            self._reader.counter,
            max_tokens=room.max_tokens,
            max_items=-(-len(sorted_) // self._settings.gradient_accumulation_steps) or None,
        )

    def _num_tokens(self, work: Sequence[_Work]) -> int:
        return num_tokens(self._reader.counter(), [one.student for one in work])

    def _num_computed(self) -> int:
        readers = {id(one): one for one in (self._reader, self._teacher.reader, self._base.reader)}
        return sum(one.num_computed for one in readers.values())

    def _backward(
        self,
        part: Sequence[_Work],
        room: PassRoom,
        targets: dict[str, Target],
        mean: BatchMean,
        found: defaultdict[str, list[float]],
        *,
        dropout_seed: int,
    ) -> float:
        """Adds the gradient of a part; its share of the loss. An empty part keeps the other members company."""
        with self._laps.of("teacher"):
            fixed = self._fixed(part, targets, room)
        with self._laps.of("forward"):
            total, seen = self._forward(part, room, fixed, targets, mean, dropout_seed=dropout_seed)
        with self._laps.of("backward"):
            total.backward()
            # On a GPU this waits for the passes, whose time it is: once for all numbers.
            share, *values = torch.stack([total.detach(), *(value.detach().to(total) for _, value in seen)]).tolist()
        for (name, _), value in zip(seen, values, strict=True):
            found[name].append(value)
        return float(share)

    def _forward(
        self,
        part: Sequence[_Work],
        room: PassRoom,
        fixed: Mapping[str, tuple[list[Rows], Rows | None]],
        targets: dict[str, Target],
        mean: BatchMean,
        *,
        dropout_seed: int,
    ) -> tuple[Tensor, list[tuple[str, Tensor]]]:
        """A part's share of the loss, and what was measured on the way. Sets the targets that are missing."""
        sequences = [one.student for one in part] or [IDLE]
        readings = self._reader.read(sequences, kept=room.kept, dropout_seed=dropout_seed)
        if not part:
            nothing_11 = (
                readings[0].rows(1.0).logprob(torch.zeros((1, 1), dtype=torch.long, device=self._reader.device))
            )
            return 0.0 * nothing_11.sum(), []
        shares: list[Tensor] = []
        seen: list[tuple[str, Tensor]] = []
        for one, reading in zip(part, readings, strict=True):
            rows = reading.rows(self._temperature(one.sample))
            needs_values = self._loss.needs_values(one.tensors)
            values_R = self._critic(reading.hidden) if self._critic and needs_values else None
            if one.sample.id not in targets:
                teachers, base = fixed[one.sample.id]
                targets[one.sample.id] = self._loss.target(
                    rows, one.tensors, teachers=teachers, base=base, values=values_R
                )
            loss_R, metrics = self._loss(rows, one.tensors, targets[one.sample.id], values=values_R)
            shares.append(mean.share(loss_R, one.tensors.mask))
            if one.sample.kind in _OWN:  # nobody asked for it: it would hide what the samples say
                metrics = {one.sample.kind: metrics["loss_opd"]} if "loss_opd" in metrics else {}
            seen += metrics.items()
        return torch.stack(shares).sum(), seen

    def _fixed(
        self, part: Sequence[_Work], targets: Mapping[str, Target], room: PassRoom
    ) -> dict[str, tuple[list[Rows], Rows | None]]:
        """What teacher and base model, as far as they are asked, say about the samples that are new."""
        new = [one for one in part if one.sample.id not in targets]
        questions: list[HintedQuestion] = []
        for one in new:
            teacher, temperature = (
                self._base if one.sample.kind == "anchor" else self._teacher,
                self._temperature(one.sample),
            )
            questions += [HintedQuestion(teacher, sequence, temperature) for sequence in one.teachers]
            if self._loss.needs_base:
                questions.append(HintedQuestion(self._base, one.student, temperature))
        readers = (self._teacher.reader, self._base.reader)
        answers = iter(ask(questions, readers, max_tokens=room.max_read_tokens, crew=self._crew))
        return {
            one.sample.id: (
                [next(answers) for _ in one.teachers],
                next(answers) if self._loss.needs_base else None,
            )
            for one in new
        }


def _joined(found: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """What all members found, by its name."""
    names = dict.fromkeys(name for one in found for name in one)
    return {name: [value for one in found for value in one.get(name, ())] for name in names}


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)
