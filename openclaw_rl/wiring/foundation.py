"""What every other part is made from: checked settings, the model and its renderer, the store and its folders."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.config import Config, StoreConfig, TrainingConfig, dump, require_available
from openclaw_rl.engine.registry import capabilities_of, check_engine
from openclaw_rl.gateway.access.auth import check_binding
from openclaw_rl.judge.registry import check_judge
from openclaw_rl.logs import start_logging
from openclaw_rl.model.files import ModelFiles, check_same_tokenizer, resolve_model
from openclaw_rl.protocols import Renderer, WholeStore
from openclaw_rl.render import load_renderer
from openclaw_rl.store import open_writer, told_of
from openclaw_rl.tracking import check_tracking
from openclaw_rl.train.losses import check_loss
from openclaw_rl.train.teacher_server import check_teacher_server


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundation:
    """`model_id` says which model and tokenizer a turn's ids, and versions, belong to."""

    config: Config
    model: ModelFiles
    renderer: Renderer
    model_id: str


async def lay_foundation(config: Config, *, learn: bool = True) -> Foundation:
    """Finds the model, which may take a download, and reads its tokenizer."""
    model = await asyncio.to_thread(resolve_model, config.model, weights=capabilities_of(config.engine).computes_here)
    if learn:
        await asyncio.to_thread(check_teacher, config.training, model)
    renderer = await asyncio.to_thread(load_renderer, model.path, model.name, model.tokenizer_path)
    model_id = await asyncio.to_thread(model_id_of, config, model)
    return Foundation(config=config, model=model, renderer=renderer, model_id=model_id)


def model_id_of(config: Config, model: ModelFiles) -> str:
    """The model's name and a digest of its tokenizer; turns that no model sampled are marked as scripted.

    Where a checkpoint is named, the model's name says nothing about its weights, and its folder does.
    """
    digest = hashlib.sha256((model.tokenizer_path / "tokenizer.json").read_bytes()).hexdigest()[:12]
    prefix = "" if capabilities_of(config.engine).has_weights else "scripted:"
    return f"{prefix}{config.model.checkpoint_path or model.name}#{digest}"


def check_settings(config: Config, *, learn: bool) -> None:
    """ConfigError if this release, or this machine, cannot do what the settings ask for."""
    require_available(config, learn=learn)
    check_engine(config.engine)
    check_binding(config.gateway.host, require_key=config.gateway.require_key)
    if learn:
        check_judge(config.evaluation)
        if config.training.custom_loss is not None:
            check_loss(config.training.custom_loss)
    check_tracking(config.tracking)


def check_teacher(training: TrainingConfig, model: ModelFiles) -> None:
    """A teacher of its own must read the same tokens, and tell what a step asks for."""
    if training.teacher not in ("path", None):
        return
    if training.teacher_path is not None:
        check_same_tokenizer(model, training.teacher_path)
    if training.teacher_url is not None:
        key = training.teacher_api_key
        check_teacher_server(
            training.model_dump(mode="json"), None if key is None else key.get_secret_value(), model.tokenizer_path
        )


async def open_store(config: StoreConfig) -> WholeStore:
    store = await open_writer(
        config.data_dir,
        config.url,
        commit_window_s=config.commit_window_ms / 1000,
        checkpoint_bytes=config.checkpoint_bytes,
    )
    # What was typed into the chat under earlier releases: neither redaction nor forgetting reaches it.
    (config.data_dir / "chat_history").unlink(missing_ok=True)
    return store


def prepare_run_dir(config: Config) -> Path:
    """The folder for sockets, the log and the settings of this run."""
    run_dir = config.store.data_dir / "run"
    with told_of(run_dir):
        run_dir.mkdir(mode=0o700, exist_ok=True)
        shutil.rmtree(run_dir / "orders", ignore_errors=True)  # a killed run's words for its trainer
        start_logging(run_dir / "log.jsonl", config.tracking.log_level)
        write_private(run_dir / "config.yaml", dump(config))
    return run_dir


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner reads, and that nobody ever reads half."""
    scratch = path.with_name(f"{path.name}.new")
    scratch.touch(mode=0o600)
    scratch.write_text(text)
    scratch.replace(path)
