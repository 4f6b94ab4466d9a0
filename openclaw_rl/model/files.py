"""A model's name becomes a checked folder: `config.json`, `tokenizer.json` and safetensors that a worker can map.

Names: the embedded model, a local Hugging Face folder, or `ORG/NAME` on a hub. What is refused is refused here, before
gigabytes are fetched or a worker is started: code from a checkpoint, pickled weights, architectures no engine of ours
loads. Does not know torch: facts come from JSON files and safetensors headers.
"""

from __future__ import annotations

import difflib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from openclaw_rl.config import ModelConfig
from openclaw_rl.errors import ConfigError, ModelError
from openclaw_rl.model.embedded import SMOLLM2, ensure_embedded
from openclaw_rl.model.families import check_architecture, text_config

EMBEDDED_NAME = SMOLLM2.name

_HUB_FILES = ["*.safetensors", "*.json", "*.jinja"]
_HUB_EXCEPT = ["*/*", "consolidated*"]  # sub-folders and Mistral's second copy of the weights


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A model that is on disk and has been checked.

    >>> resolve_model(load_config().config.model)
    ModelFiles(name='smollm2-135m-instruct', path=…, tokenizer_path=…, architecture='LlamaForCausalLM',
               context_window=8192, vocab_size=49152, stop_ids=(2,), weights=(….safetensors,))
    """

    name: str
    path: Path
    """The folder: what transformers' `from_pretrained` takes."""
    tokenizer_path: Path
    """The folder with `tokenizer.json` and the chat template; usually the same."""
    architecture: str
    context_window: int
    vocab_size: int
    stop_ids: tuple[int, ...]
    """The ids that end an answer, as the checkpoint's generation config says."""
    weights: tuple[Path, ...]

    @property
    def weight_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.weights)


def resolve_model(
    model: ModelConfig, *, console: Console | None = None, full_check: bool = False, weights: bool = True
) -> ModelFiles:
    """The files of the configured model, fetched if they have to be. Blocking; milliseconds when everything is there.

    Without `weights` only what renders and tokenises is fetched: they are computed with elsewhere.
    `console` shows progress. `full_check` reads every byte of the embedded model and makes it again if one is wrong.
    """
    console = console or Console(stderr=True)
    folder = model.checkpoint_path or Path(model.name).expanduser()
    if model.checkpoint_path is None and model.name == EMBEDDED_NAME:
        folder = ensure_embedded(SMOLLM2, model.cache_dir, console, full_check=full_check)
    elif model.checkpoint_path is None and not folder.is_dir():
        folder = _from_hub(model, console, weights=weights)
    return inspect_folder(model.name, folder, tokenizer_path=model.tokenizer_path or folder, weights=weights)


def inspect_folder(name: str, folder: Path, *, tokenizer_path: Path, weights: bool = True) -> ModelFiles:
    """Read and check a Hugging Face folder."""
    config = _read_json(folder / "config.json")
    architecture = check_architecture(name, config)
    if not (tokenizer_path / "tokenizer.json").is_file():
        raise ModelError(
            f"{name}: {tokenizer_path} has no tokenizer.json. "
            "Save the tokenizer in the fast format (AutoTokenizer.from_pretrained(…).save_pretrained(…))."
        )
    text = text_config(config)
    stop: Any = text.get("eos_token_id")
    if (folder / "generation_config.json").exists():
        stop = _read_json(folder / "generation_config.json").get("eos_token_id", stop)
    try:
        return ModelFiles(
            name=name,
            path=folder.absolute(),
            tokenizer_path=tokenizer_path.absolute(),
            architecture=architecture,
            context_window=int(text["max_position_embeddings"]),
            vocab_size=int(text["vocab_size"]),
            stop_ids=tuple(int(i) for i in (stop if isinstance(stop, list) else [stop])),
            weights=_weights(name, folder) if weights else (),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{name}: a key in the JSON files of {folder} is missing or wrong: {error!r}. Save the model again."
        ) from error


def check_same_tokenizer(model: ModelFiles, teacher: Path) -> None:
    """ConfigError where a teacher's ids mean other words than the model's: it would teach nonsense, silently."""
    if not (teacher / "tokenizer.json").is_file():
        raise ConfigError(f"training.teacher_path: {teacher} has no tokenizer.json; name a Hugging Face folder")
    if _vocabulary(teacher / "tokenizer.json") != _vocabulary(model.tokenizer_path / "tokenizer.json"):
        raise ConfigError(
            f"the teacher in {teacher} has another tokenizer than {model.name}; training.teacher_path must name a "
            "model of the same family, or set training.teacher to base, current or ema"
        )


def _vocabulary(path: Path) -> dict[str, int]:
    from tokenizers import Tokenizer  # only where there is a teacher to compare

    vocabulary: dict[str, int] = Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True)
    return vocabulary


def _weights(name: str, folder: Path) -> tuple[Path, ...]:
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists():
        shards = ["model.safetensors"]
    elif index.exists():
        shards = sorted(set(_read_json(index)["weight_map"].values()))
    else:
        found = sorted(path.name for path in folder.iterdir() if path.suffix in {".bin", ".pt", ".pth", ".gguf"})
        raise ModelError(
            f"{name}: {folder} has no safetensors weights{f' (only {found[0]})' if found else ''}. Pickled weights are "
            "never opened; save the model with save_pretrained(…), which writes model.safetensors."
        )
    paths = tuple(folder / shard for shard in shards)
    for path in paths:
        _check_shard(name, path)
    return paths


def _check_shard(name: str, path: Path) -> None:
    """A truncated download and a Git LFS pointer both look like a file until a worker maps it."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            size = path.stat().st_size
            if not 2 <= length <= size - 8:
                raise ValueError(f"{size} bytes, not safetensors")
            tensors = {key: value for key, value in json.loads(file.read(length)).items() if key != "__metadata__"}
        expected = 8 + length + max(int(tensor["data_offsets"][1]) for tensor in tensors.values())
        if size != expected:
            raise ValueError(f"{size} bytes, not {expected}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{name}: {path} is not whole ({error}). Fetch it again.") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path} cannot be read: {error}. A Hugging Face folder needs one; save the model again."
        ) from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a {type(value).__name__}, not an object. Save the model again.")
    return value


def _from_hub(model: ModelConfig, console: Console, *, weights: bool) -> Path:
    """Into the hub client's own cache, which other programs on this machine share (HF_HOME moves it).

    What is there is used as it is: a new revision on the hub must not slip under adapters trained on the old one.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", model.name):
        near = difflib.get_close_matches(model.name.lower(), [EMBEDDED_NAME], cutoff=0.5)
        raise ModelError(
            f"model.name={model.name!r} is neither the embedded model {EMBEDDED_NAME!r}, nor an existing folder, "
            "nor a hub name ORG/NAME." + (f" Did you mean {near[0]!r}?" if near else "")
        )
    files = _HUB_FILES if weights else _HUB_FILES[1:]
    with suppress(ModelError):
        kept = _snapshot(model, files, local_files_only=True)
        inspect_folder(model.name, kept, tokenizer_path=model.tokenizer_path or kept, weights=weights)
        return kept
    console.out(f"Looking for {model.name} on the hub.")
    check_architecture(model.name, _read_json(_snapshot(model, ["config.json"]) / "config.json"))
    return _snapshot(model, files)


def _snapshot(model: ModelConfig, patterns: list[str], *, local_files_only: bool = False) -> Path:
    from huggingface_hub import snapshot_download  # imported here: it costs 0.2 s that most starts do not need

    try:
        folder = snapshot_download(
            model.name,
            token=model.hub_token.get_secret_value() if model.hub_token else None,
            allow_patterns=patterns,
            ignore_patterns=_HUB_EXCEPT,
            local_files_only=local_files_only,
        )
    except Exception as error:  # a boundary: its own, its HTTP library's and the system's errors come through
        raise ModelError(
            f"cannot get {model.name} from the hub ({type(error).__name__}: {str(error).partition(chr(10))[0]}). "
            "Check the name and the network (a gated model needs model.hub_token), "
            f"or set model.name to a local folder or to {EMBEDDED_NAME}."
        ) from error
    return Path(folder)
