"""Orders -> steps on a service: what `TorchTrainer` does on this machine, for a worker process.

The run of the line that was trained last stays open, so that its next step starts at once; any other begins from the
snapshot of its parent. A step always begins from a snapshot that a row names, and whatever goes wrong in the middle is
left behind with its run: given again, the same step comes out, and no sample is trained on twice.

The names of what a step will save are on disk before it is saved: what a kill left is found by them, and removed.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from openclaw_rl.cloud.bill import Prices, Till
from openclaw_rl.cloud.service import Abilities, CloudLearner, Form, Passage, Service, Used
from openclaw_rl.errors import CloudError, TrainError
from openclaw_rl.faults import crash_point
from openclaw_rl.train.cloud.form import form_of
from openclaw_rl.train.cloud.step import CloudStep
from openclaw_rl.train.objective.settings import LossSettings
from openclaw_rl.train.worker.own_samples import ANCHOR_TOKENS, EXERCISE_TOKENS, anchor_sample, own_sample, strength
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.types import (
    BASE_VERSION,
    Sample,
    Sampling,
    ScoreOrder,
    ScoreReport,
    StepOrder,
    StepReport,
    WeightsRef,
    version_label,
)

_log = logging.getLogger(__name__)

_SCORED_AT_ONCE = 16


class CloudTraining:
    """Takes steps on one base model of one service."""

    def __init__(self, service: Service, abilities: Abilities, *, till: Till, prices: Prices) -> None:
        self._service = service
        self._abilities = abilities
        self._till = till
        self._prices = prices
        self._sampler = service.sampler()
        self._line: tuple[str, str | None, CloudLearner] | None = None
        """The line that is open, the snapshot that its run is at, and the run."""
        self._latest: CloudLearner | None = None
        """The run that was begun last: open, or left behind."""
        self._base_answers: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._used = Used()
        """By what this process itself asked samplers."""

    async def step(self, order: StepOrder, target: Path) -> StepReport:
        """`target` is the file with the names of what is saved."""
        settings = TrainSettings.from_training(order.settings)
        crash_point("trainer.ordered")
        parent = None if order.parent is None else order.parent.uri
        self._used = Used()
        learner = await self._run(order.line, parent, form_of(settings, seed=order.seed))
        before = learner.used
        self._line = None  # what it is at is no snapshot any more, until the next one is saved
        samples = (
            *order.samples,
            *await self._anchors(order, settings),
            *await self._exercises(order, settings, parent),
        )
        loss = LossSettings.from_training(order.settings)
        taker = CloudStep(learner, self._sampler, self._abilities, settings, loss, student=parent)
        outcome = await taker.take(samples, number=order.number)
        crash_point("trainer.moved")
        used = self._used + taker.used + _less(learner.used, before)
        self._till.add(used, by="trainer")
        metrics = {**outcome.metrics, **self._cost(used)}
        if outcome.reason:
            return StepReport(state="discarded", metrics=metrics, reason=outcome.reason)
        name = f"{version_label(order.line, order.number)}-{secrets.token_hex(4)}"
        write_names(target, learner.names(name))
        crash_point("trainer.in_checkpoint")
        uri = await learner.save(name)
        crash_point("trainer.renamed")
        self._line = (order.line, uri, learner)
        return StepReport(state="done", metrics=metrics, weights=WeightsRef(uri=uri, sha256=""))

    def rehearse(self) -> StepReport:
        """A service has nothing to compile, and every token costs: it is only looked whether it can be asked."""
        return StepReport(state="discarded", metrics={}, reason="a rehearsal")

    async def score(self, order: ScoreOrder) -> ScoreReport:
        """By the passes that train, so that it says something about what samplers serve."""
        settings = TrainSettings.from_training(order.settings)
        form = form_of(settings, seed=0)
        told: list[tuple[tuple[float, ...], ...]] = []
        for weights in (order.parent, order.candidate):
            uri = None if weights is None else weights.uri
            if self._line is not None and self._line[1] == uri:
                learner = self._line[2]
            else:
                learner = self._service.learner()
                await learner.begin(uri, form)
            told.append(await self._scored(learner, order))
            if self._line is None or learner is not self._line[2]:
                await learner.close()
        return ScoreReport(parent=told[0], candidate=told[1], sha256="")

    async def _scored(self, learner: CloudLearner, order: ScoreOrder) -> tuple[tuple[float, ...], ...]:
        before = learner.used
        passages = [
            Passage(ids=ids[:-1], targets=np.array(ids[1:], dtype=np.int64)[:, None]) for ids in order.sequences
        ]
        try:
            found = []
            for at in range(0, len(passages), _SCORED_AT_ONCE):
                found += await learner.forward(passages[at : at + _SCORED_AT_ONCE])
        except CloudError:
            self._line = None
            raise
        self._till.add(_less(learner.used, before), by="trainer")
        return tuple(tuple(one[start - 1 :, 0].tolist()) for one, start in zip(found, order.starts, strict=True))

    async def _run(self, line: str, parent: str | None, form: Form) -> CloudLearner:
        if self._line is not None and self._line[:2] == (line, parent) and parent is not None:
            return self._line[2]
        if self._latest is not None:
            await self._latest.close()
        learner = self._latest = self._service.learner()
        try:
            await learner.begin(parent, form)
        except CloudError as error:
            if error.kind == "missing" and parent is not None:
                raise TrainError(
                    f"the service has {parent} no more ({error}); go back to a version that it has with "
                    "`openclaw-rl rollback N`, 0 being the base model"
                ) from error
            raise
        return learner

    async def _anchors(self, order: StepOrder, settings: TrainSettings) -> list[Sample]:
        weight, found = settings.anchor_weight * strength(order.samples), []
        for at, prompt in enumerate(order.anchors):
            if prompt not in self._base_answers:
                how = Sampling(max_tokens=ANCHOR_TOKENS, temperature=0.0)
                self._base_answers[prompt] = await self._said(None, prompt, how, order)
            said = self._base_answers[prompt]
            found.append(anchor_sample(prompt, said, name=f"anchor {at}", line=order.line, weight=weight))
        return found

    async def _exercises(self, order: StepOrder, settings: TrainSettings, parent: str | None) -> list[Sample]:
        """DrawnAnswer by the student, or shown by the base model, which reads the wish behind the question."""
        shown, found = settings.demonstrations == "turns_and_exercises", []
        by = BASE_VERSION if shown else version_label(order.line, order.parent_number)
        for at, one in enumerate(order.exercises):
            how = Sampling(
                max_tokens=EXERCISE_TOKENS,
                temperature=one.temperature,
                seed=(order.seed * 1009 + order.number) * 1009 + at,
            )
            ids = await self._said(None if shown else parent, one.hinted_ids if shown else one.prompt_ids, how, order)
            found.append(own_sample("exercise", one, ids, name=f"exercise {at}", line=order.line, version=by))
        return found

    async def _said(
        self, weights: str | None, prompt: tuple[int, ...], how: Sampling, order: StepOrder
    ) -> tuple[int, ...]:
        drawn = await self._sampler.draw(weights, prompt, how, stop_ids=order.stop_token_ids)
        self._used += drawn.used
        return drawn.token_ids

    def _cost(self, used: Used) -> Mapping[str, float]:
        tokens = {
            f"cost/{kind}_tokens": float(getattr(used, kind)) for kind in ("prefill", "cached", "sample", "train")
        }
        usd = self._prices.cost(used)
        return tokens if usd is None else {**tokens, "cost/usd": usd}


def write_names(path: Path, names: tuple[str, ...]) -> None:
    """Whole, and on the disk, when it returns."""
    scratch = path.with_name(f".{path.name}.new")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with scratch.open("w", encoding="utf-8") as file:
        json.dump(names, file)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def _less(now: Used, before: Used) -> Used:
    return Used(
        prefill=now.prefill - before.prefill,
        cached=now.cached - before.cached,
        sample=now.sample - before.sample,
        train=now.train - before.train,
    )
