from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from openclaw_rl.config import ModelConfig, load_config
from openclaw_rl.errors import ConfigError, ModelError
from openclaw_rl.model.files import check_same_tokenizer, resolve_model

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "max_position_embeddings": 4096,
    "vocab_size": 32,
    "eos_token_id": 7,
}


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Hugging Face folder with nothing wrong."""
    folder = tmp_path / "model"
    folder.mkdir()
    write_json(folder / "config.json", CONFIG)
    write_json(folder / "tokenizer.json", {})
    save_file({"x": np.zeros(4, dtype=np.float32)}, folder / "model.safetensors")
    return folder


def test_a_local_folder(folder: Path) -> None:
    files = resolve_model(ModelConfig(name=str(folder)))
    assert files.path == files.tokenizer_path == folder
    assert (files.architecture, files.context_window, files.vocab_size) == ("Qwen3ForCausalLM", 4096, 32)
    assert files.stop_ids == (7,)
    assert files.weights == (folder / "model.safetensors",)
    assert files.weight_bytes == (folder / "model.safetensors").stat().st_size


def test_a_model_that_is_computed_elsewhere_needs_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    named = ModelConfig(name=str(folder))
    with pytest.raises(ModelError, match="no safetensors weights"):
        resolve_model(named)
    files = resolve_model(named, weights=False)
    assert (files.weights, files.weight_bytes, files.vocab_size > 0) == ((), 0, True)


def test_checkpoint_and_tokenizer_paths_win_over_the_name(folder: Path, tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    (folder / "tokenizer.json").rename(tokenizer / "tokenizer.json")
    files = resolve_model(ModelConfig(name="mine", checkpoint_path=folder, tokenizer_path=tokenizer))
    assert (files.name, files.path, files.tokenizer_path) == ("mine", folder, tokenizer)


def test_the_generation_config_has_the_last_word_on_stop_ids(folder: Path) -> None:
    write_json(folder / "generation_config.json", {"eos_token_id": [3, 5]})
    assert resolve_model(ModelConfig(name=str(folder))).stop_ids == (3, 5)


def test_shards_are_found_through_the_index(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-2.safetensors")
    save_file({"y": np.zeros(4, dtype=np.float32)}, folder / "model-1.safetensors")
    index = {"weight_map": {"x": "model-2.safetensors", "y": "model-1.safetensors", "z": "model-1.safetensors"}}
    write_json(folder / "model.safetensors.index.json", index)
    files = resolve_model(ModelConfig(name=str(folder)))
    assert files.weights == (folder / "model-1.safetensors", folder / "model-2.safetensors")
    (folder / "model-1.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model-1\.safetensors is not whole"):
        resolve_model(ModelConfig(name=str(folder)))


def change(**values: Any) -> Callable[[Path], None]:
    return lambda folder: write_json(folder / "config.json", CONFIG | values)


def pickle_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def shorten(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (change(architectures=["MambaForCausalLM"]), r"architecture MambaForCausalLM.*Supported: .*LlamaForCausalLM"),
        (change(architectures=None), r"architecture none"),
        (change(auto_map={"AutoModelForCausalLM": "evil.Model"}), r"never run"),
        (change(vocab_size=None), r"missing or wrong"),
        (change(eos_token_id=None), r"missing or wrong"),
        (lambda folder: (folder / "config.json").unlink(), r"config\.json cannot be read"),
        (lambda folder: (folder / "config.json").write_text("{"), r"config\.json cannot be read"),
        (lambda folder: (folder / "config.json").write_text("[]"), r"holds a list"),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"no tokenizer\.json"),
        (pickle_only, r"only pytorch_model\.bin.*never opened"),
        (shorten, r"not whole \(\d+ bytes, not \d+\)"),
        (lambda folder: (folder / "model.safetensors").write_text("version https://git-lfs…"), r"not safetensors"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b""), r"not safetensors"),
    ],
)
def test_a_folder_that_cannot_be_served_is_refused(folder: Path, spoil: Callable[[Path], object], message: str) -> None:
    spoil(folder)
    with pytest.raises(ModelError, match=message):
        resolve_model(ModelConfig(name=str(folder)))


@pytest.mark.parametrize("name", ["SmolLM2-135M", "smollm2-135m-instuct"])
def test_a_near_miss_of_the_embedded_name_is_named(name: str) -> None:
    with pytest.raises(ModelError, match=r"Did you mean 'smollm2-135m-instruct'\?"):
        resolve_model(ModelConfig(name=name))


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "a/b/c", "../a"])
def test_what_is_neither_folder_nor_hub_name_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="neither the embedded model"):
        resolve_model(ModelConfig(name=name))


def test_resolving_imports_neither_torch_nor_transformers() -> None:
    code = """
import sys
import openclaw_rl.model.files, openclaw_rl.model.conversion
assert not {"torch", "transformers"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_embedded_model_is_the_one_that_was_checked_by_hand() -> None:
    """Weights equal, bit for bit, to those of transformers' own GGUF loader; ids equal to llama.cpp's."""
    files = resolve_model(load_config().config.model)
    assert (files.architecture, files.context_window, files.vocab_size) == ("LlamaForCausalLM", 8192, 49152)
    assert files.stop_ids == (2,)
    record = json.loads((files.path / "checksums.json").read_text())["files"]
    assert {name: record[name]["sha256"] for name in record if name.endswith(".safetensors")} == {
        "model.safetensors": "601c2be14b8806b802a375dee6291ce87c149c97778e71c4e07b817f1cdf9bdf",
        "quantised.safetensors": "59275f3fecd8756428c47ddcd335178f9162de92dd9752be693bcf364c433bb8",
    }
    tokenizer = Tokenizer.from_file(str(files.tokenizer_path / "tokenizer.json"))
    text = "<|im_start|>user\nIn  2024, naïve 日本 🎉?<|im_end|>\n"
    ids = [
        1,
        4093,
        198,
        788,
        256,
        34,
        32,
        34,
        36,
        28,
        15486,
        46494,
        17097,
        241,
        115,
        40993,
        15107,
        232,
        227,
        47,
        2,
        198,
    ]
    assert tokenizer.encode(text).ids == ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_a_teacher_with_other_words_behind_the_same_ids_is_refused(folder: Path, tmp_path: Path) -> None:
    Tokenizer(WordLevel({"yes": 0, "no": 1}, unk_token="no")).save(str(folder / "tokenizer.json"))
    model = resolve_model(ModelConfig(name=str(folder)))
    teacher = tmp_path / "teacher"
    teacher.mkdir()
    with pytest.raises(ConfigError, match="has no tokenizer.json"):
        check_same_tokenizer(model, teacher)
    Tokenizer(WordLevel({"yes": 1, "no": 0}, unk_token="no")).save(str(teacher / "tokenizer.json"))
    with pytest.raises(ConfigError, match="another tokenizer"):
        check_same_tokenizer(model, teacher)
    Tokenizer(WordLevel({"no": 1, "yes": 0}, unk_token="no")).save(str(teacher / "tokenizer.json"))
    check_same_tokenizer(model, teacher)
