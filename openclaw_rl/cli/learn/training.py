"""`openclaw-rl train`: the samples of a data directory -> steps, in a process of their own, without gateway and engine.

    consumes      recorded rollouts, if any are named; turns that wait for the judge; samples that wait for a step
    produces      steps and candidate versions: each stands on the one before it, and the next `up` releases the last
    waits for     the judge, the trainer
    woken by      nobody: it ends when nothing is left

The loops are those of the pipeline, under the same lock. Where a server holds that lock it trains by itself, and
`--once` only asks it not to wait for more samples. Ctrl-C at any moment loses nothing: a step that is cut short stays
planned, and whoever comes next takes it again.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.progress import Progress

from openclaw_rl.cli.admin import ask_server
from openclaw_rl.cli.learn.importing import Rollout, import_rollouts, read_rollouts
from openclaw_rl.cli.learn.training_text import (
    TrainOutcome,
    next_steps_text,
    outcome_text,
    rollouts_text,
)
from openclaw_rl.cli.screen import make_console, print_json, progress
from openclaw_rl.config import Config, LoadedConfig, require_available
from openclaw_rl.engine.registry import capabilities_of
from openclaw_rl.errors import ConfigError, OpenClawError, StoreBusy, TrainerLost
from openclaw_rl.gateway.api.metrics import Metrics
from openclaw_rl.protocols import LearningStore, ReadStore, WeightsKeeper, WholeStore
from openclaw_rl.release.keeping import NUM_NEWEST, tidy
from openclaw_rl.tracking import Observers, make_observers
from openclaw_rl.types import TRAINING_PAUSED, Step, Version, candidate_chain
from openclaw_rl.views.health import Backlog, read_backlog
from openclaw_rl.views.rows import has_store, open_rows
from openclaw_rl.views.upcoming import UnwrittenLog, next_steps
from openclaw_rl.wiring.commands import open_judges
from openclaw_rl.wiring.foundation import Foundation, lay_foundation, open_store, prepare_run_dir
from openclaw_rl.wiring.learning import make_credit_loop, make_judge_loop, make_planner, make_train_loop, make_trainer

_log = logging.getLogger(__name__)

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""


class NothingToTrain(OpenClawError):
    """No sample waits."""


class AlreadyTraining(OpenClawError):
    """A server has the directory: nobody else can train there."""


def run_train(loaded: LoadedConfig, *, rollout_dir: Path | None, once: bool, dry_run: bool, as_json: bool) -> int:
    """Trains, or shows what would be trained; the exit status."""
    config = _for_rollouts(loaded) if rollout_dir is not None else loaded.config
    require_available(config)
    if not capabilities_of(config.engine).has_weights:
        raise ConfigError(f"engine.type={config.engine.type} has no weights to train; choose engine.type=embedded")
    rollouts = {} if rollout_dir is None else read_rollouts(rollout_dir)
    if rollout_dir is None:
        open_rows(config.store)  # says what is missing
    if dry_run:
        _show_next(config, rollouts, as_json=as_json)
        return 0
    return asyncio.run(_run(config, rollouts, once=once, as_json=as_json))


def _for_rollouts(loaded: LoadedConfig) -> Config:
    """Versions elsewhere have other numbers: unless somebody wants it, no recorded answer is too old."""
    config = loaded.config
    if loaded.sources["training.max_staleness"] != "default":
        return config
    training = config.training.model_copy(update={"max_staleness": None})
    return config.model_copy(update={"training": training})


def _show_next(config: Config, rollouts: Mapping[str, Sequence[Rollout]], *, as_json: bool) -> None:
    rows, now = open_rows(config.store) if has_store(config.store) else None, time.time()

    async def plan(log: UnwrittenLog, line: str) -> Step | None:
        return await make_planner(config.training, log).next_step(line, now=now)

    found = [] if rows is None else next_steps(rows, plan, num_exercises=config.training.exercises)
    if not found and not rollouts:
        assert rows is not None, "without rollouts there must be a store"
        raise NothingToTrain(_why_nothing(rows, read_backlog(rows)))
    if as_json:
        turns = [one for each in rollouts.values() for one in each]
        told = {"read": len(turns), "exact": sum(one.is_exact for one in turns)}
        print_json({"next_steps": [each.to_json() for each in found], "rollouts": told if rollouts else None})
        return
    console = make_console()
    if rollouts:
        console.print(rollouts_text(rollouts))
    console.print(next_steps_text(found, max_staleness=config.training.max_staleness))


async def _run(config: Config, rollouts: Mapping[str, Sequence[Rollout]], *, once: bool, as_json: bool) -> int:
    outcome = TrainOutcome()
    with progress(show=not as_json) as bars:
        working = asyncio.create_task(_work(config, rollouts, outcome, TrainBar(bars), once=once))
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, working.cancel)
        try:
            await working
        except asyncio.CancelledError:
            outcome.is_interrupted = True
    rows = open_rows(config.store)
    backlog = outcome.look(rows)
    if not outcome.steps and not outcome.is_interrupted:
        raise NothingToTrain(_why_nothing(rows, backlog, config.training.max_steps if outcome.num_waiting else None))
    if as_json:
        print_json(outcome.to_json())
    else:
        make_console().print(outcome_text(outcome))
    return INTERRUPTED if outcome.is_interrupted else 0


async def _work(
    config: Config, rollouts: Mapping[str, Sequence[Rollout]], outcome: TrainOutcome, bar: TrainBar, *, once: bool
) -> None:
    try:
        store = await open_store(config.store)
    except StoreBusy as busy:
        outcome.steps += await _ask(config, bar, busy, once=once, has_rollouts=bool(rollouts))
        return
    async with store:
        prepare_run_dir(config)
        if rollouts:
            bar.say("reading rollouts")
            outcome.imported = await import_rollouts(store, rollouts)
        bar.say("loading the model")
        foundation = await lay_foundation(config)
        await store.lessons.run_with(foundation.model_id)
        metrics = Metrics()
        observers = make_observers(config, registry=metrics.registry, known=await store.lessons.versions())
        try:
            await _judge(config, store, bar, metrics)
            crediting = make_credit_loop(foundation, store.lessons, None, metrics, observers)
            while await crediting.work():
                pass
            await _take_steps(foundation, store.lessons, observers, outcome, bar, once=once)
        finally:
            await asyncio.to_thread(observers.close)


async def _ask(config: Config, bar: TrainBar, busy: StoreBusy, *, once: bool, has_rollouts: bool) -> list[Step]:
    """Lets the server that has the directory take what waits there; the steps that it took."""
    store = config.store
    server = await ask_server(store, "GET", "/train")
    if server is None:
        raise busy
    if not server["trains"]:
        raise AlreadyTraining(f"a server runs on {store.data_dir} that does not train; stop it, then train")
    if not once or has_rollouts:
        remedy = "stop it, then train" if has_rollouts else "`openclaw-rl train --once` makes it take what waits now"
        raise AlreadyTraining(f"a server runs on {store.data_dir} and trains by itself; {remedy}")
    rows = open_rows(store)
    lines = sorted({version.line for version in rows.versions()} | {each.line for each in rows.waiting()})
    before = _ended(rows, lines)
    bar.say("the running server trains")
    await ask_server(store, "POST", "/train", timeout_s=None)
    return [step for name, step in _ended(rows, lines).items() if name not in before]


def _ended(rows: ReadStore, lines: Sequence[str]) -> dict[tuple[str, int], Step]:
    steps = [step for line in lines for step in rows.steps(line)]
    return {(step.line, step.number): step for step in steps if step.state != "planned"}


async def _judge(config: Config, store: WholeStore, bar: TrainBar, metrics: Metrics) -> None:
    """Judges what is due. A judge that fails its known cases leaves the rest for later, as beside a server."""
    lessons = store.lessons
    await lessons.release_earlier()
    if not await lessons.num_open("judge"):
        return
    bar.say("judging")
    async with open_judges(config) as judges:
        judging = make_judge_loop(config, lessons, judges, metrics)
        while not judging.is_paused and await judging.work():
            pass


async def _take_steps(
    foundation: Foundation,
    lessons: LearningStore,
    observers: Observers,
    outcome: TrainOutcome,
    bar: TrainBar,
    *,
    once: bool,
) -> None:
    config, renderer = foundation.config, foundation.renderer
    trainer = make_trainer(foundation)
    assert trainer is not None, "run_train has refused an engine without weights"
    begun = sum(len(step.sample_ids) for step in await lessons.planned_steps())
    bar.start(begun + sum(each.num_samples for each in await lessons.waiting()))

    def on_step(step: Step) -> None:
        outcome.steps.append(step)
        bar.advance(step)
        observers.stepped(step)

    async def keep(version: Version) -> None:
        await keep_newest(lessons, trainer, version.line, save_every=config.training.save_every)

    loop = make_train_loop(config, lessons, trainer, renderer, release=keep, on_step=on_step, on_skip=observers.skipped)
    try:
        while True:
            try:
                await loop.work(at_once=True, max_steps=1 if once else None)
                break
            except TrainerLost as lost:
                _log.warning("the step is taken again: %s", lost)  # the loop gives up on it by itself
        await lessons.set_flag(TRAINING_PAUSED, None)
    finally:
        await trainer.close()


async def keep_newest(lessons: LearningStore, keeper: WeightsKeeper, line: str, *, save_every: int) -> None:
    """Candidates that many others already stand on will not be tried: the last few are enough to fall back on."""
    for version in candidate_chain(await lessons.versions(line))[:-NUM_NEWEST]:
        await lessons.set_version_state(line, version.number, "retired", reason="newer candidates stand on it")
    await tidy(lessons, keeper, line, save_every=save_every)


class TrainBar:
    """How it goes: what is done now, then how many samples of all have been learned from."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._row = bars.add_task("…", total=None)

    def say(self, text: str) -> None:
        self._bars.update(self._row, description=text)

    def start(self, num_samples: int) -> None:
        self._bars.update(self._row, description="samples", total=num_samples, completed=0)

    def advance(self, step: Step) -> None:
        loss = step.metrics.get("loss/total")
        told = "discarded" if loss is None else f"loss {loss:+.3f}"
        learned = len(step.sample_ids) if step.state == "done" else 0  # those of a discarded step come again, alone
        self._bars.update(self._row, advance=learned, description=f"step {step.number} of {step.line}: {told}")


def _why_nothing(rows: ReadStore, backlog: Backlog, max_steps: int | None = None) -> str:
    if max_steps is not None:
        return f"training.max_steps={max_steps} is reached; raise it to train on"
    if backlog.paused is not None:
        return f"nothing waits to be trained on, and the judge is not believed: {backlog.paused}"
    if backlog.waiting:
        return f"nothing waits to be trained on yet. {backlog.waiting}; the next run, or `openclaw-rl up`, tries again"
    skips = ", ".join(f"{count} {skip.value}" for skip, count in rows.skips().items())
    others = f" Turns that are not learned from: {skips}." if skips else ""
    return f"nothing waits to be trained on.{others} `openclaw-rl up` collects more"
