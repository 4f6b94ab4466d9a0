"""A version as a plain PEFT folder with a model card, and such a folder as a candidate. Whole or not at all.

    FOLDER/adapter_config.json, adapter_model.safetensors      what peft, vLLM, SGLang and our engine load
    FOLDER/README.md                                           the model card: counts, dates and measures, no words

Control side: reads the header of the safetensors file and no tensor. Whether an adapter fits the model is the engine's
to say, and whether it may answer the gate's.
"""

from __future__ import annotations

import json
import shutil
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from openclaw_rl.errors import OpenClawError
from openclaw_rl.model.folder import folder_sha256, sync, sync_folder, unfinished
from openclaw_rl.types import IMPORTED, Json, Step, Version, ancestry, version_label

CONFIG_FILE, WEIGHTS_FILE, CARD = "adapter_config.json", "adapter_model.safetensors", "README.md"

_COLUMNS = ("candidate", "parent", "base")
_MAX_HEADER = 100 << 20
"""What the safetensors format allows."""


class BadFolder(OpenClawError):
    """A folder that is no adapter, or that cannot be written."""


def export_version(version: Version, target: Path, *, base_model: str, card: str) -> None:
    """Writes the folder; nothing is left of it if it cannot be written. Blocking."""
    if version.weights is not None and version.folder is None:
        is_tinker = version.weights.uri.startswith("tinker:")
        raise BadFolder(
            f"{version.label} is at {version.weights.uri}, and only its service has the files"
            + (f": `tinker checkpoint download {version.weights.uri}` fetches them" if is_tinker else "")
        )
    if (source := version.folder) is None:
        raise BadFolder(f"the files of {version.label} are gone; `openclaw-rl versions --json` shows which have a path")
    if not (source / CONFIG_FILE).is_file():
        raise BadFolder(f"{version.label} is no adapter: its whole weights are in {source}, as they are")
    if folder_sha256(source) != version.sha256:
        raise BadFolder(f"the files of {version.label} in {source} have changed since they were made")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadFolder(f"{target} is there and not empty; name a new folder")

    def fill(work: Path) -> None:
        config = _read_config(source)
        config["base_model_name_or_path"] = base_model
        (work / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        shutil.copyfile(source / WEIGHTS_FILE, work / WEIGHTS_FILE)
        (work / CARD).write_text(card, encoding="utf-8")

    target = target.absolute()
    _write_whole(target, fill)


def check_adapter(folder: Path) -> None:
    """`BadFolder` if this is not a LoRA adapter in PEFT's format."""
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / name).is_file():  # a pipe would be waited for
            raise BadFolder(f"{folder / name} is no file; name a PEFT folder")
    config = _read_config(folder)
    if config.get("peft_type") != "LORA":
        raise BadFolder(f"{folder / CONFIG_FILE} has peft_type {config.get('peft_type')!r}; only LORA can be imported")
    rank = config.get("r")
    if not isinstance(rank, int) or rank < 1:
        raise BadFolder(f"{folder / CONFIG_FILE} has rank r = {rank!r}")
    names = [name for name in _tensor_names(folder / WEIGHTS_FILE) if name != "__metadata__"]
    if not names or not all(".lora_" in name for name in names):
        other = next((name for name in names if ".lora_" not in name), "nothing")
        raise BadFolder(f"{folder / WEIGHTS_FILE} holds {other}; an adapter holds lora_A and lora_B matrices only")


def model_card(version: Version, versions: Sequence[Version], steps: Mapping[int, Step], *, base_model: str) -> str:
    """What a stranger should know of a version; no word of a conversation, and no name of one."""
    way = [steps[number] for number in reversed(ancestry(versions, version.number)) if number in steps]
    new = sum(len(step.sample_ids) for step in way)
    took = [step for step in way if step.sample_ids]
    imported = [version_label(version.line, step.number) for step in way if step.reason == IMPORTED]
    losses = [loss for step in took if (loss := step.metrics.get("loss/total")) is not None]
    rewards = [reward for step in took if (reward := step.metrics.get("reward/mean")) is not None]
    facts = [
        ("base model", base_model),
        ("version", f"{version.label}, {version.state.replace('_', ' ')}"),
        ("made", _day(version.created_at)),
        ("learned from", f"{new} samples of reactions to answers, in {len(took)} steps"),
        ("between", f"{_day(took[0].planned_at)} and {_day(took[-1].planned_at)}" if took else "–"),
        ("mean reward", f"{fmean(rewards):+.3f}" if rewards else "–"),
        ("last loss", f"{losses[-1]:+.4f}" if losses else "–"),
        ("sha256 of the version", version.sha256 or "–"),
    ]
    if imported:
        facts.append(("came from elsewhere", f"the weights of {', '.join(imported)}"))
    rows = "\n".join(f"| {name} | {told} |" for name, told in facts)
    return (
        f"---\nlibrary_name: peft\nbase_model: {json.dumps(base_model)}\ntags: [lora, openclaw-rl]\n---\n\n"
        f"# {version.label}: an adapter learned from reactions\n\n"
        "Made by OpenClaw-RL: what people said after an answer was judged, and became the next step. This folder holds "
        "weights and this card, no conversation; but weights can repeat what they learned from, so share it as you "
        "would share that.\n\n"
        f"| | |\n|---|---|\n{rows}\n\n"
        f"What the gate measured before it answered anybody:\n\n{_measured(version.gate)}\n"
    )


def _measured(report: Json) -> str:
    """Names of measures and numbers only: the rest of a report may quote what was replayed."""
    measures = report.get("measures") if isinstance(report, dict) else None
    found = [one for one in measures if isinstance(one, dict)] if isinstance(measures, list) else []
    rows = [" | ".join((str(one["name"]), *map(_number, map(one.get, _COLUMNS)))) for one in found]
    head = "| measure | this version | its parent | base model |\n|---|---|---|---|"
    return "\n".join((head, *(f"| {row} |" for row in rows))) if rows else "nothing."


def _number(value: Json) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "–"


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def _write_whole(target: Path, fill: Callable[[Path], None]) -> None:
    work = unfinished(target)
    try:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        fill(work)
        sync_folder(work)
        if target.exists():
            target.rmdir()
        work.rename(target)
        sync(target.parent)
    except OSError as error:
        shutil.rmtree(work, ignore_errors=True)
        raise BadFolder(f"{target} cannot be written: {error.strerror or error}") from error


def _read_config(folder: Path) -> dict[str, Json]:
    try:
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadFolder(f"{folder / CONFIG_FILE} cannot be read ({error}); name a PEFT folder") from error
    if not isinstance(config, dict):
        raise BadFolder(f"{folder / CONFIG_FILE} is no JSON object")
    return config


def _tensor_names(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            if size > _MAX_HEADER:
                raise ValueError(f"a header of {size} bytes")
            header = json.loads(file.read(size))
            if not isinstance(header, dict):
                raise ValueError("its header is no JSON object")
            return list(header)
    except (OSError, ValueError, RecursionError, struct.error) as error:
        raise BadFolder(f"{path} is no safetensors file ({error})") from error
