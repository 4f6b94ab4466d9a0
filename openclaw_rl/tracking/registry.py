"""The settings -> the observers, one line for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from prometheus_client import CollectorRegistry

from openclaw_rl.config import Config, TrackingConfig, TrainingConfig
from openclaw_rl.errors import ConfigError
from openclaw_rl.tracking.console import ConsoleObserver
from openclaw_rl.tracking.observers import Observer, Observers
from openclaw_rl.tracking.prometheus import PrometheusObserver
from openclaw_rl.tracking.records import RecordsObserver
from openclaw_rl.tracking.wandb import WandbObserver
from openclaw_rl.types import Json, Version


def check_tracking(tracking: TrackingConfig) -> None:
    """ConfigError if a package or a key that the settings need is missing."""
    if tracking.wandb_mode != "disabled":
        why = " (chosen by WANDB_API_KEY if nobody set it)" if tracking.wandb_mode == "online" else ""
        _require_package("wandb", f"tracking.wandb_mode={tracking.wandb_mode}{why}", "tracking.wandb_mode=disabled")
    if tracking.wandb_mode == "online" and tracking.wandb_api_key is None:
        raise ConfigError(
            "tracking.wandb_mode=online needs a key: set WANDB_API_KEY or tracking.wandb_api_key, "
            "or keep runs on this machine with tracking.wandb_mode=offline"
        )
    if tracking.opentelemetry_endpoint is not None:
        without = "tracking.opentelemetry_endpoint=null"
        _require_package("opentelemetry.exporter.otlp.proto.http", "tracking.opentelemetry_endpoint", without)
    if tracking.tensorboard_dir is not None:
        _require_package("tensorboard", "tracking.tensorboard_dir", "tracking.tensorboard_dir=null")


def make_observers(
    config: Config,
    *,
    registry: CollectorRegistry,
    say: Callable[[str], None] = lambda _: None,
    known: Iterable[Version] = (),
) -> Observers:
    """`say` is given a line for each step; `known` are the versions that there are."""
    tracking, data_dir = config.tracking, config.store.data_dir
    check_tracking(tracking)
    observers: list[Observer] = [ConsoleObserver(say), PrometheusObserver(registry, known)]
    if tracking.record_enabled:
        observers.append(RecordsObserver(data_dir / "records"))
    if tracking.tensorboard_dir is not None:
        observers.append(_tensorboard(tracking.tensorboard_dir))
    if tracking.wandb_mode != "disabled":
        observers.append(_wandb(config))
    if tracking.opentelemetry_endpoint is not None:
        observers.append(_opentelemetry(tracking.opentelemetry_endpoint, content=tracking.opentelemetry_content))
    return Observers(observers)


def _require_package(package: str, setting: str, without: str) -> None:
    if not _is_installed(package):
        raise ConfigError(
            f"{setting} needs the package {package}; install it (pip install openclaw-rl[tracking]), "
            f"or go on without it: {without}"
        )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of the package that it lies in
        return False


def _tensorboard(folder: Path) -> Observer:
    from openclaw_rl.tracking.tensorboard import TensorBoardObserver  # its package is only there where it is asked for

    return TensorBoardObserver(folder)


def _opentelemetry(endpoint: str, *, content: bool) -> Observer:
    from openclaw_rl.tracking.opentelemetry import OpenTelemetryObserver  # as TensorBoard's

    return OpenTelemetryObserver(endpoint, content=content, release=metadata.version("openclaw-rl"))


def _wandb(config: Config) -> Observer:
    tracking = config.tracking
    assert tracking.wandb_mode != "disabled"
    return WandbObserver(
        mode=tracking.wandb_mode,
        folder=config.store.data_dir,
        project=tracking.wandb_project,
        run_name=tracking.wandb_run_name or f"openclaw-rl-{config.training.method}",
        api_key=None if tracking.wandb_api_key is None else tracking.wandb_api_key.get_secret_value(),
        facts={"model": Path(config.model.name).name, **_facts(config.training)},
    )


def _facts(training: TrainingConfig) -> dict[str, Json]:
    """The settings of training that are numbers, switches and choices: paths, keys and addresses stay here."""
    named = training.model_dump(mode="json", exclude_none=True)
    private = ("_path", "_url", "_key", "_addr", "_id", "custom_loss")
    return {name: value for name, value in named.items() if not name.endswith(private)}
