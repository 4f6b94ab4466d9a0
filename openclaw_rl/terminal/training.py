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
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from openclaw_rl import assembly
from openclaw_rl.config import Config, LoadedConfig, require_available
from openclaw_rl.credit.loop import CreditLoop
from openclaw_rl.credit.settings import CreditSettings
from openclaw_rl.errors import ConfigError, OpenClawError, StoreBusy, TrainerLost
from openclaw_rl.gateway.metrics import Metrics
from openclaw_rl.judge.canaries import Canaries
from openclaw_rl.judge.loop import JudgeLoop, JudgeSettings
from openclaw_rl.model.files import resolve_model
from openclaw_rl.protocols import Renderer
from openclaw_rl.release.keeping import NUM_NEWEST, tidy
from openclaw_rl.render import load_renderer
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.store.directory import database_path
from openclaw_rl.store.learning_log import LearningLog
from openclaw_rl.terminal.admin import ask_server
from openclaw_rl.terminal.backlog import Backlog, read_backlog
from openclaw_rl.terminal.importing import Imported, Rollout, import_rollouts, read_rollouts
from openclaw_rl.terminal.judge_source import open_judges
from openclaw_rl.terminal.next_steps import NextStep, next_steps, next_steps_text
from openclaw_rl.terminal.screen import make_console, print_json
from openclaw_rl.terminal.training_text import outcome_json, outcome_text, rollouts_text
from openclaw_rl.tracking import Observers, make_observers
from openclaw_rl.train.process import TrainerProcess
from openclaw_rl.types import TRAINING_PAUSED, Step, Version, candidate_chain

_log = logging.getLogger(__name__)

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""


class NothingToTrain(OpenClawError):
    """No sample waits."""


class AlreadyTraining(OpenClawError):
    """A server has the directory: nobody else can train there."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a run came to, as far as it came."""

    steps: list[Step] = field(default_factory=list)
    imported: Imported | None = None
    is_interrupted: bool = False


def run_train(loaded: LoadedConfig, *, rollout_dir: Path | None, once: bool, dry_run: bool, as_json: bool) -> int:
    """Trains, or shows what would be trained; the exit status."""
    config = _for_rollouts(loaded) if rollout_dir is not None else loaded.config
    require_available(config)
    assembly.check_training(config.training)
    if config.engine.type == "scripted":
        raise ConfigError("engine.type = scripted has no weights to train; choose engine.type=embedded")
    rollouts = {} if rollout_dir is None else read_rollouts(rollout_dir)
    store = config.store
    if not database_path(store.data_dir, store.url).is_file() and rollout_dir is None:
        StoreReader.open(store.data_dir, store.url)  # says what is missing
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
    has_store = database_path(config.store.data_dir, config.store.url).is_file()
    reader = StoreReader.open(config.store.data_dir, config.store.url) if has_store else None
    found: list[NextStep] = [] if reader is None else next_steps(reader, config, now=time.time())
    if not found and not rollouts:
        assert reader is not None, "without rollouts there must be a store"
        raise NothingToTrain(_why_nothing(reader, read_backlog(reader)))
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
    outcome = Outcome()
    with _progress(show=not as_json) as bar:
        working = asyncio.create_task(_work(config, rollouts, outcome, bar, once=once))
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, working.cancel)
        try:
            await working
        except asyncio.CancelledError:
            outcome.is_interrupted = True
    reader = StoreReader.open(config.store.data_dir, config.store.url)
    backlog, num_waiting = read_backlog(reader), sum(each.num_samples for each in reader.waiting())
    versions = {(one.line, one.number): one for one in reader.versions()}
    if not outcome.steps and not outcome.is_interrupted:
        raise NothingToTrain(_why_nothing(reader, backlog, config.training.max_steps if num_waiting else None))
    facts = (outcome.steps, versions, backlog, num_waiting, outcome.imported)
    if as_json:
        print_json(outcome_json(*facts, is_interrupted=outcome.is_interrupted))
    else:
        make_console().print(outcome_text(*facts, is_interrupted=outcome.is_interrupted))
    return INTERRUPTED if outcome.is_interrupted else 0


async def _work(
    config: Config, rollouts: Mapping[str, Sequence[Rollout]], outcome: Outcome, bar: Bar, *, once: bool
) -> None:
    try:
        store = await assembly.open_store(config.store)
    except StoreBusy as busy:
        outcome.steps += await _ask(config, bar, busy, once=once, has_rollouts=bool(rollouts))
        return
    async with store:
        assembly.prepare_run_dir(config)
        if rollouts:
            bar.say("reading rollouts")
            outcome.imported = await import_rollouts(store, rollouts)
        bar.say("loading the model")
        model = await asyncio.to_thread(resolve_model, config.model)
        await asyncio.to_thread(assembly.check_teacher, config.training, model)
        renderer = await asyncio.to_thread(load_renderer, model.path, model.name, model.tokenizer_path)
        model_id = await asyncio.to_thread(
            assembly.model_id_of, model, config.engine.type, config.model.checkpoint_path
        )
        await store.lessons.run_with(model_id)
        async with _watched(config, store.lessons) as (metrics, observers):
            await _judge(config, store, bar, metrics)
            await _credit(config, store.lessons, renderer, model_id, observers)
            async with _trainer(config, model.path) as trainer:
                await _take_steps(config, store.lessons, trainer, renderer, observers, outcome, bar, once=once)


async def _ask(config: Config, bar: Bar, busy: StoreBusy, *, once: bool, has_rollouts: bool) -> list[Step]:
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
    reader = StoreReader.open(store.data_dir, store.url)
    lines = sorted({version.line for version in reader.versions()} | {each.line for each in reader.waiting()})
    before = _ended(reader, lines)
    bar.say("the running server trains")
    await ask_server(store, "POST", "/train", timeout_s=None)
    return [step for name, step in _ended(reader, lines).items() if name not in before]


def _ended(reader: StoreReader, lines: Sequence[str]) -> dict[tuple[str, int], Step]:
    steps = [step for line in lines for step in reader.steps(line)]
    return {(step.line, step.number): step for step in steps if step.state != "planned"}


async def _judge(config: Config, store: SqliteStore, bar: Bar, metrics: Metrics) -> None:
    """Judges what is due. A judge that fails its known cases leaves the rest for later, as beside a server."""
    lessons = store.lessons
    await lessons.release_all()
    if not await lessons.num_open("judge"):
        return
    bar.say("judging")
    async with open_judges(config) as judges:
        canaries = Canaries.shipped() if config.evaluation.canaries else None
        judging = JudgeLoop(lessons, judges, JudgeSettings.of(config), canaries=canaries, watch=metrics)
        while not judging.is_paused and await judging.work():
            pass


async def _credit(
    config: Config, lessons: LearningLog, renderer: Renderer, model_id: str, observers: Observers
) -> None:
    settings = CreditSettings.of(config.training, config.rollout)
    crediting = CreditLoop(lessons, renderer, settings, model_id, on_credit=observers.credited)
    while await crediting.work():
        pass


async def _take_steps(
    config: Config,
    lessons: LearningLog,
    trainer: TrainerProcess,
    renderer: Renderer,
    observers: Observers,
    outcome: Outcome,
    bar: Bar,
    *,
    once: bool,
) -> None:
    begun = sum(len(step.sample_ids) for step in await lessons.planned_steps())
    bar.start(begun + sum(each.num_samples for each in await lessons.waiting()))

    def on_step(step: Step) -> None:
        outcome.steps.append(step)
        bar.advance(step)
        observers.stepped(step)

    async def keep(version: Version) -> None:
        await keep_newest(lessons, version.line, save_every=config.training.save_every)

    loop = assembly.make_train_loop(
        config, lessons, trainer, renderer, release=keep, on_step=on_step, on_skip=observers.skipped
    )
    while True:
        try:
            await loop.work(at_once=True, max_steps=1 if once else None)
        except TrainerLost as lost:
            _log.warning("the step is taken again: %s", lost)  # the loop gives up on it by itself
            continue
        await lessons.set_flag(TRAINING_PAUSED, None)
        return


async def keep_newest(lessons: LearningLog, line: str, *, save_every: int) -> None:
    """Candidates that many others already stand on will not be tried: the last few are enough to fall back on."""
    for version in candidate_chain(await lessons.versions(line))[:-NUM_NEWEST]:
        await lessons.set_version_state(line, version.number, "retired", reason="newer candidates stand on it")
    await tidy(lessons, line, save_every=save_every)


@asynccontextmanager
async def _watched(config: Config, lessons: LearningLog) -> AsyncIterator[tuple[Metrics, Observers]]:
    metrics = Metrics()
    observers = make_observers(config, registry=metrics.registry, known=await lessons.versions())
    try:
        yield metrics, observers
    finally:
        await asyncio.to_thread(observers.close)


@asynccontextmanager
async def _trainer(config: Config, model: Path) -> AsyncIterator[TrainerProcess]:
    trainer = TrainerProcess.of(config, model)
    try:
        yield trainer
    finally:
        await trainer.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """How it goes, on standard error."""

    say: Callable[[str], None]
    start: Callable[[int], None]
    """With the number of samples that there are to learn from."""
    advance: Callable[[Step], None]


@contextmanager
def _progress(*, show: bool) -> Iterator[Bar]:
    console = make_console("stderr")
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not (show and console.is_terminal)) as progress:
        row = progress.add_task("…", total=None)

        def advance(step: Step) -> None:
            loss = step.metrics.get("loss/total")
            told = "discarded" if loss is None else f"loss {loss:+.3f}"
            # Samples of a discarded step come again, alone.
            learned = len(step.sample_ids) if step.state == "done" else 0
            progress.update(row, advance=learned, description=f"step {step.number} of {step.line}: {told}")

        yield Bar(
            say=lambda text: progress.update(row, description=text),
            start=lambda total: progress.update(row, description="samples", total=total, completed=0),
            advance=advance,
        )


def _why_nothing(reader: StoreReader, backlog: Backlog, max_steps: int | None = None) -> str:
    if max_steps is not None:
        return f"training.max_steps={max_steps} is reached; raise it to train on"
    if backlog.paused is not None:
        return f"nothing waits to be trained on, and the judge is not believed: {backlog.paused}"
    if backlog.waiting:
        return f"nothing waits to be trained on yet. {backlog.waiting}; the next run, or `openclaw-rl up`, tries again"
    skips = ", ".join(f"{count} {skip.value}" for skip, count in reader.skips().items())
    others = f" Turns that are not learned from: {skips}." if skips else ""
    return f"nothing waits to be trained on.{others} `openclaw-rl up` collects more"
