"""A Llama-family GGUF file becomes a Hugging Face folder: fp32 safetensors, tokenizer, config and chat template.

The weights are what the quantised file means, exactly: each block is dequantised to fp32 and nothing is rounded again.
The output depends on the input's bytes alone, so one checksum holds on every machine.
Knows nothing of where the file came from or where the folder goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from openclaw_rl.errors import ModelError

Array = npt.NDArray[np.float32]

ALIGNMENT = 64
"""Where tensors start in the file, in bytes: one cache line, and the widest vector load a CPU kernel may use."""

_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

_SPECIAL = {"bos": "bos", "eos": "eos", "pad": "padding"}  # Hugging Face's word: GGUF's word

_CONTROL_TOKEN = 3  # gguf.TokenType.CONTROL, as the file stores it


def convert(source: Path, folder: Path, advance: Callable[[int, int], None]) -> None:
    """Write the folder for `source`; `advance(done, total)` hears of the bytes of weights written."""
    reader = gguf.GGUFReader(source)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    kind = (fields["general.architecture"], fields["tokenizer.ggml.pre"])
    if kind != ("llama", "smollm"):
        raise ModelError(
            f"{source.name} has the architecture and tokenizer {kind}; only ('llama', 'smollm') can be converted. "
            "Use a Hugging Face folder instead."
        )
    _write_json(folder / "config.json", _config(fields, tied="output.weight" not in {t.name for t in reader.tensors}))
    _write_json(folder / "generation_config.json", _special_ids(fields))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(fields))
    (folder / "chat_template.jinja").write_text(fields["tokenizer.chat_template"], encoding="utf-8")
    build_tokenizer(fields).save(str(folder / "tokenizer.json"))
    write_safetensors(
        folder / "model.safetensors",
        {_tensor_name(t.name): tuple(int(n) for n in reversed(t.shape)) for t in reader.tensors},
        _weights(
            reader, num_heads=fields["llama.attention.head_count"], num_kv_heads=fields["llama.attention.head_count_kv"]
        ),
        advance,
    )


def write_safetensors(
    path: Path, shapes: dict[str, tuple[int, ...]], arrays: Iterator[Array], advance: Callable[[int, int], None]
) -> None:
    """Write fp32 `arrays`, in the order of `shapes`, one at a time.

    The safetensors package holds all tensors in memory and aligns the first one to 8 bytes only. The format forbids
    gaps between tensors, so alignment comes from padding the header, and lasts while every size is a multiple of it.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    total = 0
    for name, shape in shapes.items():
        size = 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [total, total + size]}
        total += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    done = 0
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape, array in zip(shapes.values(), arrays, strict=True):
            assert array.shape == shape, f"{array.shape}, not {shape}"
            done += file.write(np.ascontiguousarray(array, dtype="<f4").data)
            advance(done, total)


def build_tokenizer(fields: dict[str, Any]) -> Tokenizer:
    """The byte-level BPE that llama.cpp calls `smollm`: digits one by one, then GPT-2's split."""
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    return tokenizer


def _weights(reader: gguf.GGUFReader, *, num_heads: int, num_kv_heads: int) -> Iterator[Array]:
    for tensor in reader.tensors:
        array: Array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if tensor.name.endswith("attn_q.weight"):
            array = split_rope_halves(array, num_heads)
        elif tensor.name.endswith("attn_k.weight"):
            array = split_rope_halves(array, num_kv_heads)
        yield array


def split_rope_halves(array: Array, num_heads: int) -> Array:
    """Undo llama.cpp's row order: it keeps the two rows that RoPE rotates together side by side (0, 0', 1, 1', …);
    transformers keeps them half a head apart (0, 1, …, 0', 1', …)."""
    rows, columns = array.shape
    return array.reshape(num_heads, rows // num_heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _tensor_name(name: str) -> str:
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", name)
    if match is None or match[2] not in _TENSORS:
        raise ModelError(f"unknown tensor {name!r} in a llama GGUF file. Use a Hugging Face folder instead.")
    layer = f"model.layers.{match[1]}." if match[1] else ""
    return f"{layer}{_TENSORS[match[2]]}.weight"


def _config(fields: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.rope.dimension_count"],
        "max_position_embeddings": fields["llama.context_length"],
        # GGUF keeps fp32; seven digits give back the decimal that was meant (1e-05, not 9.999999747378752e-06).
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.7g}"),
        "rope_theta": float(f"{fields['llama.rope.freq_base']:.7g}"),
        "rope_scaling": None,
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "tie_word_embeddings": tied,
        "dtype": "float32",
        **_special_ids(fields),
    }


def _special_ids(fields: dict[str, Any]) -> dict[str, int]:
    return {f"{kind}_token_id": fields[f"tokenizer.ggml.{name}_token_id"] for kind, name in _SPECIAL.items()}


def _tokenizer_config(fields: dict[str, Any]) -> dict[str, Any]:
    tokens = fields["tokenizer.ggml.tokens"]
    return {
        # Not GPT2Tokenizer: transformers 5 would rebuild that one without the digit split.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields["llama.context_length"],
        **{f"{kind}_token": tokens[fields[f"tokenizer.ggml.{name}_token_id"]] for kind, name in _SPECIAL.items()},
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
        "chat_template": fields["tokenizer.chat_template"],
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
