"""Orders -> steps -> checkpoints: everything a trainer does with tensors, behind two methods. Blocking.

The line that was trained last stays in memory, so that its next step starts at once; any other is loaded from its
checkpoint. Knows no socket, no store, and no conversation: an order holds all it needs.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import Tensor

from openclaw_rl.errors import ModelError, TrainerLost, TrainError
from openclaw_rl.faults import crash_point
from openclaw_rl.model.architecture import Architecture, read_architecture
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.train.objective.custom import load_loss
from openclaw_rl.train.objective.hybrid import HybridLoss
from openclaw_rl.train.objective.settings import LossSettings
from openclaw_rl.train.passes.reader import Reader, RecallingReader, token_logprobs
from openclaw_rl.train.passes.rooms import UNPLANNED_TOKENS, Rooms
from openclaw_rl.train.passes.sequences import IDLE, Sequenced, in_parts
from openclaw_rl.train.passes.served import ServedReader
from openclaw_rl.train.teacher_server import TeacherServer, num_likely, why_unfit
from openclaw_rl.train.worker.checkpoint import WEIGHTS, load_average, load_critic, load_optimiser, save_checkpoint
from openclaw_rl.train.worker.crew import ALONE, Crew, share_out
from openclaw_rl.train.worker.critic import Critic
from openclaw_rl.train.worker.form import check_form
from openclaw_rl.train.worker.laps import Laps
from openclaw_rl.train.worker.own_samples import ANCHOR_TOKENS, EXERCISE_TOKENS, anchor_sample, own_sample, strength
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.train.worker.speaking import answers
from openclaw_rl.train.worker.step import OutOfMemory, StepOutcome, StepTaker
from openclaw_rl.train.worker.student import Model, NetworkModel, Student
from openclaw_rl.train.worker.teacher import Teacher
from openclaw_rl.types import (
    BASE_VERSION,
    Json,
    Sample,
    ScoreOrder,
    ScoreReport,
    StepOrder,
    StepReport,
    WeightsRef,
    version_label,
)

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Line:
    """A line in memory, as its checkpoint `at` has it; None is the base model."""

    at: Path | None
    student: Student
    optimiser: torch.optim.Optimizer
    average: Tensor | None
    critic: Critic | None


OpenModel = Callable[[Path, Architecture | None], Model]
"""How a model's folder is opened; without an architecture it is none of our own network's."""


class TorchTrainer:
    """Takes steps on one model; `LocalTrainer` runs one in a process of its own."""

    def __init__(
        self,
        model: Path,
        *,
        device: torch.device,
        dtype: torch.dtype,
        shrink: int = 1,
        crew: Crew = ALONE,
        open_model: OpenModel | None = None,
        num_sharing: int = 1,
        teacher_key: str | None = None,
    ) -> None:
        """`shrink` divides the parts that a step is computed in; `teacher_key` is for the teacher's server.

        Of a crew every member makes one, over models that `open_model` shards; `num_sharing` of them have this device's
        memory together.
        """
        self._teacher_key = teacher_key
        self._crew = crew
        self._num_sharing = num_sharing
        self._open_model = open_model or partial(_open_whole, device=device, dtype=dtype)
        self._model = model
        self._shrink = shrink
        self._device = device
        self._dtype = dtype
        self._line: tuple[str, _Line] | None = None
        self._base_answers: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._others: dict[Path, Model] = {}

    def step(self, order: StepOrder, target: Path) -> StepReport:
        """The checkpoint `target` is on the disk when this returns, unless the report says `discarded`."""
        settings, laps = TrainSettings.from_training(order.settings), Laps()
        crash_point("trainer.ordered")
        if self._crew.number == 0 and target.exists():
            shutil.rmtree(target)  # no row names it: whoever ordered it died before the report arrived
        line, outcome = self._take(order, settings, laps)
        crash_point("trainer.moved")
        if outcome.reason:
            self._line = None
            return StepReport(state="discarded", metrics=outcome.metrics, reason=outcome.reason)
        self._move_average(line, settings)
        with laps.of("checkpoint"):
            save_checkpoint(
                target,
                save_weights=line.student.save,
                optimiser=line.optimiser,
                average=line.average,
                step=order.number,
                critic=None if line.critic is None else line.critic.tensors(),
                crew=self._crew,
            )
        crash_point("trainer.renamed")
        line.at = target
        self._line = (order.line, line)
        with laps.of("checksum"):
            weights = WeightsRef.of_folder(target / WEIGHTS, self._sha256(target / WEIGHTS))
        return StepReport(state="done", metrics={**outcome.metrics, **laps.metrics()}, weights=weights)

    def rehearse(self, order: StepOrder) -> StepReport:
        """Takes a step and forgets it: the base model is read, and what has to be compiled is. No file is written."""
        _, outcome = self._take(order, TrainSettings.from_training(order.settings), Laps())
        return StepReport(state="discarded", metrics=outcome.metrics, reason="a rehearsal")

    def score(self, order: ScoreOrder) -> ScoreReport:
        """Reads with two versions' files, as they are on the disk; the line in memory is left alone."""
        most = int(order.settings["micro_batch_tokens"] or UNPLANNED_TOKENS) // self._shrink
        sequences = [
            Sequenced(ids[:start], ids[start:]) for ids, start in zip(order.sequences, order.starts, strict=True)
        ]
        parent, candidate = (
            tuple(self._logprobs(self._reader(weights, order), sequences, max_tokens=most))
            for weights in (order.parent, order.candidate)
        )
        return ScoreReport(parent=parent, candidate=candidate, sha256=self._sha256(_folder(order.candidate)))

    def _logprobs(self, reader: Reader, sequences: Sequence[Sequenced], *, max_tokens: int) -> list[tuple[float, ...]]:
        crew, found = self._crew, dict[int, tuple[float, ...]]()
        mine = share_out([len(one) for one in sequences], crew.size)[crew.number]
        for part in crew.level(in_parts(mine, lambda at: (sequences[at],), reader.counter, max_tokens=max_tokens)):
            read = token_logprobs(reader, [sequences[at] for at in part or ()] or [IDLE])
            found |= dict(zip(part or (), read, strict=part is not None))
        by_all = dict(one for given in crew.gathered(list(found.items())) for one in given)
        return [tuple(by_all[at]) for at in range(len(sequences))]

    def _sha256(self, folder: Path) -> str:
        """Of a folder; empty where another member says it, as it is read once."""
        return folder_sha256(folder) if self._crew.number == 0 else ""

    def _reader(self, weights: WeightsRef | None, order: ScoreOrder) -> Reader:
        if weights is None:
            return self._base.reader
        folder = _folder(weights)
        is_adapter = (folder / "adapter_config.json").is_file()  # whatever the settings say by now
        settings = replace(TrainSettings.from_training(order.settings), use_lora=is_adapter)
        return self._base.student(folder, settings, seed=0).reader

    def _take(self, order: StepOrder, settings: TrainSettings, laps: Laps) -> tuple[_Line, StepOutcome]:
        samples: tuple[Sample, ...] = ()
        while True:
            with laps.of("load"):
                line = self._load(order, settings)
            with laps.of("answers"):
                samples = samples or (
                    *order.samples,
                    *self._anchors(order, settings),
                    *self._exercises(line, order, settings),
                )
            self._line = None  # what is in memory is no checkpoint's any more, until the next one is on the disk
            taker = self._taker(line, order, settings, laps)
            try:
                return line, taker.take(samples, number=order.number, seed=order.seed)
            except OutOfMemory as shortage:
                self._line = None
                if self._crew.size > 1:  # the others are in the middle of a pass, and cannot begin anew
                    raise TrainerLost(str(shortage)) from shortage
                if not self._rooms.shrink(shortage, settings):
                    remedy = "lower evaluation.max_candidates, or train where there is more memory"
                    if shortage.room.kept.keep != "nothing" and self._base.can_recompute:
                        remedy = f"set training.use_gradient_checkpointing=true, {remedy}"
                    what = f"a sample of {shortage.largest} tokens does not fit into memory with its teachers"
                    return line, StepOutcome({}, f"{what}: {remedy}")

    def _anchors(self, order: StepOrder, settings: TrainSettings) -> Iterator[Sample]:
        weight, stop = settings.anchor_weight * strength(order.samples), order.stop_token_ids
        for at, prompt in enumerate(order.anchors):
            if prompt not in self._base_answers:
                (self._base_answers[prompt],) = answers(
                    self._base.reader, [prompt], stop_token_ids=stop, max_tokens=ANCHOR_TOKENS, crew=self._crew
                )
            said = self._base_answers[prompt]
            yield anchor_sample(prompt, said, name=f"anchor {at}", line=order.line, weight=weight)

    def _exercises(self, line: _Line, order: StepOrder, settings: TrainSettings) -> Iterator[Sample]:
        """Answered by the student, or shown by the base model, which reads the wish behind the question."""
        given = order.exercises
        shown = settings.demonstrations == "turns_and_exercises"
        said = answers(
            self._base.reader if shown else line.student.reader,
            [one.hinted_ids if shown else one.prompt_ids for one in given],
            stop_token_ids=order.stop_token_ids,
            max_tokens=EXERCISE_TOKENS,
            temperatures=[one.temperature for one in given],
            seed=order.seed * 1009 + order.number,
            crew=self._crew,
        )
        for at, (one, ids) in enumerate(zip(given, said, strict=True)):
            by = BASE_VERSION if shown else version_label(order.line, order.parent_number)
            yield own_sample("exercise", one, ids, name=f"exercise {at}", line=order.line, version=by)

    @cached_property
    def _base_reader(self) -> Reader:
        """The base model as a teacher. On a GPU what it read stays with it; on a CPU a step has the same bits again."""
        if isinstance(self._base, NetworkModel) and self._device.type == "cuda":
            return RecallingReader(self._base.network)
        return self._base.reader

    @cached_property
    def _rooms(self) -> Rooms:
        network = self._base.network if isinstance(self._base, NetworkModel) else None
        return Rooms(
            None if network is None else network.arch,
            device=self._device,
            dtype=self._dtype,
            shrink=self._shrink,
            is_fused=network is not None and network.is_fused,
            can_recompute=self._base.can_recompute,
            num_sharing=self._num_sharing,
        )

    @cached_property
    def _base(self) -> Model:
        model = self._open(self._model)
        if isinstance(model, NetworkModel):
            _log.info("trained in trees by our own network", extra={"model": self._model.name})
        else:
            told = {"model": self._model.name, "layers": " ".join(model.all_linear)}
            _log.info("trained turn by turn through transformers", extra=told)
        return model

    def _open(self, folder: Path) -> Model:
        return self._open_model(folder, read_architecture(folder))

    def _load(self, order: StepOrder, settings: TrainSettings) -> _Line:
        parent = None if order.parent is None else _folder(order.parent).parent  # the checkpoint around the weights
        if self._line is not None and self._line[0] == order.line:
            line = self._line[1]
            if line.at == parent and (line.critic is not None) == settings.critic:
                return line
        if parent is not None:
            name = version_label(order.line, order.parent_number)
            check_form(parent / WEIGHTS, settings, all_linear=self._base.all_linear, name=name)
        student = self._student(parent, settings, seed=order.seed)
        optimiser = torch.optim.AdamW(
            student.parameters,
            lr=settings.learning_rate,
            betas=settings.adam_betas,
            weight_decay=settings.weight_decay,
        )
        critic = self._critic(parent) if settings.critic else None
        if critic is not None:
            optimiser.add_param_group({"params": critic.parameters, "weight_decay": 0.0})
        average = None if parent is None else load_average(parent, student.vector, self._device)
        if parent is not None:
            load_optimiser(parent, optimiser, step=order.parent_number)
        if settings.teacher == "ema" and average is None:
            average = student.vector().clone()
        return _Line(parent, student, optimiser, average, critic)

    def _critic(self, parent: Path | None) -> Critic:
        kept, size = None if parent is None else load_critic(parent), self._base.reader.hidden_size
        return Critic.new(size, device=self._device) if kept is None else Critic.of(kept, size, device=self._device)

    def _student(self, parent: Path | None, settings: TrainSettings, *, seed: int) -> Student:
        if settings.teacher == "ema" and not settings.use_lora:
            raise TrainError("training.teacher: ema keeps an average of an adapter; it needs use_lora: true")
        return self._base.student(None if parent is None else parent / WEIGHTS, settings, seed=seed)

    def _taker(self, line: _Line, order: StepOrder, settings: TrainSettings, laps: Laps) -> StepTaker:
        base = _read_as(settings, self._base_reader)
        loss = _loss(LossSettings.from_training(order.settings), settings.custom_loss)
        return StepTaker(
            _read_as(settings, line.student.reader),
            line.student.parameters,
            line.optimiser,
            loss,
            self._teacher(line, settings, base, order.settings),
            Teacher(base),
            settings,
            room_for=partial(
                self._rooms.room,
                settings=settings,
                num_learning=sum(one.numel() for one in line.student.parameters) // self._crew.size,
            ),
            critic=line.critic,
            laps=laps,
            crew=self._crew,
        )

    def _teacher(self, line: _Line, settings: TrainSettings, base: Reader, training: Mapping[str, Json]) -> Teacher:
        return Teacher(self._teaching(line, settings, base, training), temperature=settings.teacher_temperature)

    def _teaching(self, line: _Line, settings: TrainSettings, base: Reader, training: Mapping[str, Json]) -> Reader:
        match settings.teacher:
            case "base":
                return base
            case "current":
                return _read_as(settings, line.student.reader)
            case "ema":
                assert line.average is not None
                return _read_as(settings, line.student.averaged(line.average))
            case "path" if settings.teacher_url is not None:
                if why := why_unfit(training):
                    raise TrainError(why)
                server = TeacherServer(settings.teacher_url, model=settings.teacher_model, key=self._teacher_key)
                return ServedReader(server, top=num_likely(training), device=self._device)
            case "path":
                return _read_as(settings, self._other(Path(str(settings.teacher_path))))

    def _other(self, folder: Path) -> Reader:
        other = self._others[folder] = self._others.get(folder) or self._open(folder)
        if other.vocab_size != self._base.vocab_size:
            raise ModelError(
                f"the teacher in {folder} knows {other.vocab_size} tokens, the model {self._base.vocab_size}: "
                "training.teacher_path must name a model with the same tokenizer"
            )
        return other.reader

    def _move_average(self, line: _Line, settings: TrainSettings) -> None:
        if line.average is not None:
            line.average.lerp_(line.student.vector(), 1 - settings.ema_decay)


def _open_whole(folder: Path, arch: Architecture | None, *, device: torch.device, dtype: torch.dtype) -> Model:
    if arch is not None:
        return NetworkModel(folder, arch, device=device, dtype=dtype)
    from openclaw_rl.train.passes.fallback import TransformersModel  # seconds of imports that our own network spares

    return TransformersModel(folder, device=device, dtype=dtype)


def _loss(settings: LossSettings, custom: str | None) -> HybridLoss:
    if custom is None:
        return HybridLoss(settings)
    function, needs_teacher = load_loss(custom)
    # What the teacher says of the response itself is what token-level distillation looks at.
    return HybridLoss(replace(settings, distillation="token") if needs_teacher else settings, function)


def _folder(weights: WeightsRef) -> Path:
    if (folder := weights.folder) is None:
        raise TrainError(f"{weights.uri} is no folder of this machine; train with the backend that made it")
    return folder


def _read_as(settings: TrainSettings, reader: Reader) -> Reader:
    return reader.plain if settings.batching == "plain" else reader
