"""The parts of the system as the configuration asks for them.

The running server (`pipeline.py`), commands that have the store alone, and tests make the same parts here. Starts
nothing; whoever makes a part runs it and ends it.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from openclaw_rl.config import Config, EngineConfig, StoreConfig, TrainingConfig, dump
from openclaw_rl.credit.caps import within_caps
from openclaw_rl.credit.practice import Practice
from openclaw_rl.engine.supervisor import Supervisor
from openclaw_rl.engine.workers import worker_command
from openclaw_rl.errors import ConfigError
from openclaw_rl.judge.wishes import form_words
from openclaw_rl.logs import start_logging
from openclaw_rl.model.files import ModelFiles, check_same_tokenizer, inspect_folder
from openclaw_rl.protocols import Renderer
from openclaw_rl.release.commands import Commands, Serving, take_back
from openclaw_rl.release.forgetting import Forgetting
from openclaw_rl.render import load_renderer
from openclaw_rl.store import SqliteStore
from openclaw_rl.store.learning_log import LearningLog
from openclaw_rl.tracking.records import forget_lines
from openclaw_rl.train.anchor_prompts import ANCHORS
from openclaw_rl.train.loop import LoopSettings, TrainLoop
from openclaw_rl.train.planning import Log as PlanLog
from openclaw_rl.train.planning import Planner, PlanSettings
from openclaw_rl.train.process import TrainerProcess
from openclaw_rl.types import Lesson, Message, Sample, Skip, Step, Version


def model_id_of(model: ModelFiles, engine: str, checkpoint: Path | None = None) -> str:
    """Which model and tokenizer a turn's ids, and versions, belong to; what no model sampled says so.

    Where a checkpoint is named, the model's name says nothing about its weights, and its folder does.
    """
    digest = hashlib.sha256((model.tokenizer_path / "tokenizer.json").read_bytes()).hexdigest()[:12]
    return f"{'scripted:' if engine == 'scripted' else ''}{checkpoint or model.name}#{digest}"


def new_session_id() -> str:
    """Ids that sort by time: what is written together then lies together, and a commit touches few pages."""
    return f"s-{int(time.time() * 1000):x}{secrets.token_hex(3)}"


def prepare_run_dir(config: Config) -> Path:
    run_dir = config.store.data_dir / "run"
    run_dir.mkdir(mode=0o700, exist_ok=True)
    start_logging(run_dir / "log.jsonl", config.tracking.log_level)
    write_private(run_dir / "config.yaml", dump(config))
    return run_dir


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner reads, and that nobody ever reads half."""
    scratch = path.with_name(f"{path.name}.new")
    scratch.touch(mode=0o600)
    scratch.write_text(text)
    scratch.replace(path)


async def open_store(config: StoreConfig) -> SqliteStore:
    return await SqliteStore.open(
        config.data_dir,
        config.url,
        commit_window_s=config.commit_window_ms / 1000,
        checkpoint_bytes=config.checkpoint_bytes,
    )


def make_supervisor(config: EngineConfig, model: ModelFiles, socket: Path, *, name: str = "engine") -> Supervisor:
    command = worker_command(config, model=model.path, tokenizer=model.tokenizer_path, socket=socket)
    return Supervisor(
        command,
        socket,
        name=name,
        start_timeout_s=config.start_timeout_s,
        wait_s=config.wait_s,
        max_waiting=config.max_waiting,
        backoff_s=config.backoff_s,
        max_backoff_s=config.max_backoff_s,
    )


async def make_judge_engine(config: Config, socket: Path) -> tuple[Supervisor, Renderer]:
    """A second engine of the same type, on the weights of the model judge."""
    path = config.evaluation.judge_path
    assert path is not None, "check_judge has seen it"
    files = await asyncio.to_thread(inspect_folder, path.name, path, tokenizer_path=path)
    renderer = await asyncio.to_thread(load_renderer, files.path, files.name, files.tokenizer_path)
    return make_supervisor(config.engine, files, socket, name="judge engine"), renderer


def check_training(training: TrainingConfig) -> None:
    """ConfigError if the settings ask for a training that this release has not."""
    if len(training.gpu_ids) > 1:
        named = ",".join(map(str, training.gpu_ids))
        raise ConfigError(f"training.gpu_ids = {named}: this release trains on one GPU; name one, such as --gpus 0")


def check_teacher(training: TrainingConfig, model: ModelFiles) -> None:
    """A teacher of its own must read the same tokens."""
    if training.teacher in ("path", None) and training.teacher_path is not None:
        check_same_tokenizer(model, training.teacher_path)


def make_train_loop(
    config: Config,
    lessons: LearningLog,
    trainer: TrainerProcess,
    renderer: Renderer,
    *,
    release: Callable[[Version], Awaitable[None]],
    on_step: Callable[[Step], None] = lambda _: None,
    on_skip: Callable[[str, Sequence[str], Skip], None] = lambda *_: None,
    on_waiting: Callable[[str], None] = lambda _: None,
) -> TrainLoop:
    """The loop beside serving, and that of `openclaw-rl train`, which has no engine."""
    training = config.training
    settings = LoopSettings(
        batch_size=training.batch_size,
        max_wait_s=training.max_wait_s,
        folder=versions_folder(config),
        training=training.model_dump(mode="json"),
        anchors=tuple(_rendered(renderer, ANCHORS)),
        stop_token_ids=tuple(renderer.stop_token_ids),
    )
    planner = make_planner(training, lessons, on_skip=on_skip)
    return TrainLoop(
        lessons,
        trainer,
        planner,
        settings,
        release=release,
        practise=Practice(renderer, form_words, num_exercises=training.exercises).exercises,
        on_step=on_step,
        on_waiting=on_waiting,
    )


def make_planner(
    training: TrainingConfig, log: PlanLog, *, on_skip: Callable[[str, Sequence[str], Skip], None] = lambda *_: None
) -> Planner:
    """As configured."""

    def within_caps_only(samples: Sequence[Sample]) -> Sequence[Sample]:
        taken, _ = within_caps(
            samples,
            batch_size=training.batch_size,
            user_of=lambda sample: sample.line,
            max_user_share=training.max_user_share,
            max_session_share=training.max_session_share,
        )
        return taken

    plan = PlanSettings(
        batch_size=training.batch_size,
        max_steps=training.max_steps,
        max_staleness=training.max_staleness,
        replay_max_age=training.replay_max_age,
        num_anchors=training.anchors,
        seed=training.seed,
    )
    return Planner(log, plan, choose=within_caps_only, on_skip=on_skip)


def _rendered(renderer: Renderer, texts: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Each as a conversation of one message, up to where the answer begins."""
    for text in texts:
        yield tuple(renderer.render([Message(role="user", content=text)], (), {}))


def versions_folder(config: Config) -> Path:
    """Where checkpoints go."""
    return config.training.save_path or config.store.data_dir / "versions"


def make_commands(
    config: Config,
    store: SqliteStore,
    *,
    serving: Serving | None = None,
    let_go: Callable[[Sequence[str]], AbstractContextManager[None]] = lambda _: nullcontext(),
    catch_up: Callable[[], None] = lambda: None,
) -> Commands:
    """What a person may do to what was learned, for the running server, and for a command that has the store alone."""

    def forget_records(lesson: Lesson) -> None:
        catch_up()
        forget_lines(config.store.data_dir / "records", lesson)

    forgetting = Forgetting(
        log=store.lessons,
        take_back=partial(take_back, store.lessons, serving, reason="a conversation that it learned from is forgotten"),
        let_go=let_go,
        forget_records=forget_records,
        erase=store.erase,
    )
    return Commands(log=store.lessons, forgetting=forgetting, folder=versions_folder(config), serving=serving)
