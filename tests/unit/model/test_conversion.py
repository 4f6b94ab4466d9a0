from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from transformers import AutoTokenizer, LlamaForCausalLM

from openclaw_rl.errors import ModelError
from openclaw_rl.model.architecture import MODULES
from openclaw_rl.model.conversion import ALIGNMENT, build_tokenizer, convert, write_safetensors
from tests.factories.checkpoints import MERGES, SPECIAL, TOKENS, write_gguf


@pytest.fixture(scope="module")
def folder(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted")
    convert(tiny_gguf, folder, lambda done, total: None)
    return folder


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    kinds = [3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL))
    return build_tokenizer(
        {"tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.merges": MERGES, "tokenizer.ggml.token_type": kinds}
    )


def test_transformers_computes_the_original_model_from_the_folder(folder: Path, llama: LlamaForCausalLM) -> None:
    converted = LlamaForCausalLM.from_pretrained(folder)
    ids = torch.arange(3, 40)[None]
    with torch.inference_mode():
        assert torch.equal(converted(ids).logits, llama(ids).logits)
    assert converted.generation_config.eos_token_id == 2


def test_transformers_reads_the_same_tokenizer_and_chat_template(folder: Path, tokenizer: Tokenizer) -> None:
    loaded = AutoTokenizer.from_pretrained(folder)
    text = "hello  12 <|im_end|> é"
    assert loaded(text)["input_ids"] == tokenizer.encode(text).ids
    assert (loaded.bos_token, loaded.eos_token, loaded.pad_token) == ("<|im_start|>", "<|im_end|>", "<|im_end|>")
    chat = loaded.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert chat == "<|im_start|>user\nhi<|im_end|>\n"
    assert (folder / "chat_template.jinja").read_text() == json.loads((folder / "tokenizer_config.json").read_text())[
        "chat_template"
    ]


def test_quantised_blocks_are_dequantised_and_not_rounded_again(tmp_path: Path, llama: LlamaForCausalLM) -> None:
    write_gguf(tmp_path / "q.gguf", llama, quantise=True)
    convert(tmp_path / "q.gguf", tmp_path, lambda done, total: None)
    got = load_file(tmp_path / "model.safetensors")
    kind = gguf.GGMLQuantizationType.Q4_1
    for name, tensor in llama.state_dict().items():
        if tensor.ndim == 2 and name != "lm_head.weight":
            expected = gguf.quants.dequantize(gguf.quants.quantize(tensor.numpy(), kind), kind)
            assert np.array_equal(got[name], expected), name


def test_every_tensor_starts_on_a_cache_line(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    starts = [8 + length + value["data_offsets"][0] for key, value in header.items() if key != "__metadata__"]
    assert len(starts) == 20
    assert all(start % ALIGNMENT == 0 for start in starts)


def test_the_parts_of_a_fused_projection_lie_side_by_side(folder: Path) -> None:
    """In the order of its output: mapped, they are one matrix."""
    data = (folder / "model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    for layer in range(2):
        for parts in MODULES.values():
            places = [header[f"model.layers.{layer}.{part}.weight"]["data_offsets"] for part in parts]
            assert all(before[1] == after[0] for before, after in pairwise(places)), parts


def test_writing_reports_every_byte(tmp_path: Path) -> None:
    layout = {"a": ("<f4", (2, 3)), "b": ("<f2", (5,)), "c": ("<i4", (1, 1))}
    arrays = [np.arange(6, dtype="<f4").reshape(2, 3), np.ones(5, dtype="<f2"), np.full((1, 1), -7, dtype="<i4")]
    seen: list[tuple[int, int]] = []
    write_safetensors(tmp_path / "x.safetensors", layout, iter(arrays), lambda done, total: seen.append((done, total)))
    assert seen == [(24, 38), (34, 38), (38, 38)]
    loaded = load_file(tmp_path / "x.safetensors")
    for name, array in zip(layout, arrays, strict=True):
        assert np.array_equal(loaded[name], array)
        assert loaded[name].dtype == array.dtype


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("hello", ["hello"]),
        ("  12", ["ĠĠ", "1", "2"]),  # digits split first: the spaces before them stay together
        ("x  hello", ["x", "Ġ", "Ġ", "hello"]),  # …and before a word GPT-2's split takes the last one away
        ("<|im_end|>", ["<|im_end|>"]),
        ("é", ["Ã", "©"]),
    ],
)
def test_tokenizer_splits(tokenizer: Tokenizer, text: str, tokens: list[str]) -> None:
    assert tokenizer.encode(text).tokens == tokens


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_tokenizer_is_reversible(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_another_tokenizer_is_refused(tmp_path: Path, llama: LlamaForCausalLM) -> None:
    write_gguf(tmp_path / "x.gguf", llama, tokenizer="llama-bpe")
    with pytest.raises(ModelError, match="llama-bpe"):
        convert(tmp_path / "x.gguf", tmp_path, lambda done, total: None)
