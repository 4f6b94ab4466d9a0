"""A server that answers -> whether it can be used: the model and tokenizer that we train, adapters, the largest rank.

What only one kind of server has is looked at by its `ServerDialect.check`. Every failure is a `ConfigError` of one
sentence that names what to change. A server can be asked for nearly nothing about its weights; an adapter that fits
each layer's width, and the proof of every version (`release/gate/prove.py`), tell another model of the same family.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from openclaw_rl.engine.foreign.adapters import CONFIG_FILE, WEIGHTS_FILE
from openclaw_rl.engine.foreign.dialect import ServerDialect, ServerFacts
from openclaw_rl.engine.worker import wire
from openclaw_rl.engine.worker.connections import Connections
from openclaw_rl.errors import ConfigError, EngineError
from openclaw_rl.model.files import ModelFiles

HEALTH = "GET /health"
MODELS = "GET /v1/models"
TOKENIZE = "POST /tokenize"

_TEXT = "Größe 12345, 東京 → naïve  café\n\tif (x != y) { return f'{z}'; } \U0001f600 ’tis"
"""Two tokenizers that read this alike are taken for one."""

_MARKED = ("o_proj", "down_proj", "out_proj")
"""The projections that a marker stands on, the first that the model has: adapters may target it in every decoder."""


def parts(version: str) -> tuple[int, ...]:
    """`0.32.0rc1` as (0, 32, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def check_version(dialect: ServerDialect, version: str, url: str) -> None:
    if parts(version) < dialect.oldest:
        needed = ".".join(map(str, dialect.oldest))
        raise ConfigError(
            f"{dialect.name} at {url} is version {version}, and {needed} or newer is needed: "
            f"pip install '{dialect.pip_name}>={needed}'"
        )


async def list_models(connections: Connections) -> dict[str, str]:
    """The names that the server answers to, adapters too, and where each was loaded from."""
    try:
        models = wire.loads(await connections.fetch(MODELS))["data"]
        return {str(model["id"]): str(model.get("root") or "") for model in models}
    except (ValueError, TypeError, KeyError) as error:
        raise EngineError("/v1/models did not answer with a list of models") from error


def check_model(dialect: ServerDialect, facts: ServerFacts, model: ModelFiles, served_model: str | None) -> None:
    """By its name: nobody can be asked for more."""
    ours = {_last(name) for name in (model.name, str(model.path), served_model or model.name)}
    theirs = {_last(facts.model), _last(facts.origin)}
    if not ours & theirs:
        raise ConfigError(
            f"the {dialect.name} server serves {facts.origin or facts.model}, and model.name={model.name} is what "
            f"would be trained: serve that model, or set engine.served_model={facts.model} if they are the same weights"
        )


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()


async def check_tokenizer(
    connections: Connections, dialect: ServerDialect, facts: ServerFacts, model: ModelFiles
) -> None:
    """By a text that no two tokenizers read alike."""
    from tokenizers import Tokenizer  # only where there is a server to compare with

    ours = Tokenizer.from_file(str(model.tokenizer_path / "tokenizer.json")).encode(_TEXT, add_special_tokens=False).ids
    body = {"model": facts.model, "prompt": _TEXT, "add_special_tokens": False}
    try:
        theirs = wire.loads(await connections.fetch(TOKENIZE, wire.dumps(body)))["tokens"]
    except (ValueError, TypeError, KeyError):
        theirs = None
    if theirs != ours:
        raise ConfigError(
            f"the {dialect.name} server has another tokenizer than {model.name} in {model.tokenizer_path}: ids would "
            "mean other words; serve the same checkpoint, or set model.name to the one that is served"
        )


PROBE_IDS = (5, 6, 7)
PROBE_T = 0.5
_TOLERANCE = 0.05
"""Nats; in bfloat16 two passes over the same tokens differ by 0.01."""


def are_at_temperature(cold: Mapping[int, float], warm: Mapping[int, float]) -> bool:
    """Whether log-probs of the same place, asked for at `PROBE_T` and at 1, are log softmax(logits / T).

    Whatever the sums are, at half the temperature two tokens are twice as far from each other.
    """
    common = [(warm[token], cold[token]) for token in warm.keys() & cold.keys()]
    best, worst = max(common), min(common)
    spread = best[0] - worst[0]
    return abs(best[1] - worst[1] - spread / PROBE_T) <= _TOLERANCE * max(1.0, spread)


def marker_adapter(model: ModelFiles, folder: Path, rank: int) -> None:
    """Writes an adapter of zeros on one projection of the model: it changes nothing. Blocking."""
    module, marked = _projection(model)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        "base_model_name_or_path": None,
        "target_modules": [module],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_FILE).write_text(json.dumps(config))
    header, size = {}, 0
    for name, (rows, columns) in marked.items():
        for side, shape in (("lora_A", (rank, columns)), ("lora_B", (rows, rank))):
            end = size + 4 * shape[0] * shape[1]
            key = f"base_model.model.{name}.{side}.weight"
            header[key] = {"dtype": "F32", "shape": shape, "data_offsets": (size, end)}
            size = end
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    (folder / WEIGHTS_FILE).write_bytes(len(head).to_bytes(8, "little") + head + bytes(size))


def projections(model: ModelFiles) -> list[str]:
    """The names, last part alone, of all matrices in the model's layers: what an adapter may target there."""
    found = {name.split(".")[-2] for name, _ in _matrices(model) if ".layers." in name}
    has_experts = any(".experts." in name for name, _ in _matrices(model))
    return sorted(found | ({"experts"} if has_experts else set()))


def _projection(model: ModelFiles) -> tuple[str, dict[str, tuple[int, int]]]:
    """One kind of projection, and its sizes by the names of all its modules."""
    matrices = {name.removesuffix(".weight"): shape for name, shape in _matrices(model) if ".layers." in name}
    for module in _MARKED:
        if marked := {name: shape for name, shape in matrices.items() if name.endswith(f".{module}")}:
            return module, marked
    raise ConfigError(
        f"{model.name} has no projection that an adapter could stand on; choose a decoder with such layers"
    )


def _matrices(model: ModelFiles) -> Iterator[tuple[str, tuple[int, int]]]:
    for path in model.weights:
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for name, tensor in header.items():
            if name.endswith(".weight") and len(tensor["shape"]) == 2:
                rows, columns = tensor["shape"]
                yield name, (rows, columns)


def wrong_flag(dialect: ServerDialect, said: str, *, folder: Path, max_rank: int) -> str:
    """Why an adapter was not loaded, and what to change, from what the server said."""
    about = f"{dialect.name} did not load an adapter ({said.strip() or 'no reason given'})"
    if "rank" in said.lower():
        return (
            f"{about}: start it with --max-lora-rank {max_rank}, or lower engine.max_lora_rank and training.lora_rank"
        )
    if "no adapter found" in said.lower() or "no such file" in said.lower():
        return (
            f"{about}: it does not see {folder}; set engine.adapter_dir to a folder that has the same path on its "
            "machine and on this one"
        )
    if "404" in said or "not found" in said.lower() or "lora" in said.lower():
        return f"{about}: start it with {dialect.lora_flags}"
    return f"{about}: it may serve another model than the one that is trained"
