"""A Llama-family GGUF file becomes a Hugging Face folder: fp32 safetensors, tokenizer, config and chat template.

The weights are what the quantised file means, exactly: each block is dequantised to fp32 and nothing is rounded again.
Where all matrices are in blocks that the engine multiplies directly, these lie beside them (`tiles.py`).
The output depends on the input's bytes alone, so one checksum holds on every machine.
Knows nothing of where the file came from or where the folder goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from openclaw_rl.errors import ModelError
from openclaw_rl.model.architecture import MODULES
from openclaw_rl.model.tiles import BLOCK, LANES, TILES_FILE

Array = npt.NDArray[Any]

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
"""GGUF's names and Hugging Face's, in the order of the file we write: q, k, v and gate, up side by side, so that each
group is one matrix to whoever maps the file."""

_TILE_KINDS = {gguf.GGMLQuantizationType.Q4_1: (4, 20), gguf.GGMLQuantizationType.Q8_0: (8, 34)}
"""The blocks that `tiles.py` describes: bits of a weight, bytes of a block, which starts with its float16 numbers."""

_SPECIAL = {"bos": "bos", "eos": "eos", "pad": "padding"}  # Hugging Face's word: GGUF's word

_DTYPES = {"<f4": "F32", "<f2": "F16", "<i4": "I32"}  # numpy's word: safetensors' word

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
    tensors = sorted(reader.tensors, key=lambda tensor: _place(tensor.name))
    heads = {"attn_q": fields["llama.attention.head_count"], "attn_k": fields["llama.attention.head_count_kv"]}
    write_safetensors(
        folder / "model.safetensors",
        {_tensor_name(t.name): ("<f4", tuple(int(n) for n in reversed(t.shape))) for t in tensors},
        (_in_our_order(gguf.quants.dequantize(t.data, t.tensor_type), t.name, heads) for t in tensors),
        advance,
    )
    tiles = _tiles(tensors, heads)
    if tiles is not None:
        layout = {name: (array.dtype.str, array.shape) for name, array in tiles.items()}
        write_safetensors(folder / TILES_FILE, layout, iter(tiles.values()), lambda done, total: None)


def write_safetensors(
    path: Path,
    layout: Mapping[str, tuple[str, tuple[int, ...]]],
    arrays: Iterator[Array],
    advance: Callable[[int, int], None],
) -> None:
    """Write `arrays`, in the order of `layout` (numpy's type and the shape of each), one at a time.

    The safetensors package holds all tensors in memory and aligns the first one to 8 bytes only. The format forbids
    gaps between tensors, so alignment comes from padding the header, and lasts while every size is a multiple of it.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    total = 0
    for name, (dtype, shape) in layout.items():
        size = np.dtype(dtype).itemsize * int(np.prod(shape))
        header[name] = {"dtype": _DTYPES[dtype], "shape": shape, "data_offsets": [total, total + size]}
        total += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    done = 0
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for (dtype, shape), array in zip(layout.values(), arrays, strict=True):
            assert array.shape == shape, f"{array.shape}, not {shape}"
            done += file.write(np.ascontiguousarray(array, dtype=dtype).data)
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


def pack_tiles(blocks: npt.NDArray[np.uint8], kind: gguf.GGMLQuantizationType) -> dict[str, Array]:
    """Rows of a matrix as GGUF packs them, [rows, bytes], in the layout of `tiles.py`."""
    bits, size = _TILE_KINDS[kind]
    rows = np.pad(blocks, ((0, -len(blocks) % LANES), (0, 0)))
    packed = rows.reshape(len(rows) // LANES, LANES, -1, size)  # [tiles, lanes, blocks, bytes of a block]
    num_halves = (size - BLOCK * bits // 8) // 2
    halves = np.ascontiguousarray(packed[..., : 2 * num_halves]).view("<f2").transpose(3, 0, 2, 1)
    quants = packed[..., 2 * num_halves :]
    if bits == 4:  # the low halves of the bytes are the first 16 columns of a block, the high halves the others
        quants = np.concatenate([quants & 15, quants >> 4], axis=-1)
    columns = quants.reshape(*quants.shape[:-1], bits, 32 // bits).astype(np.uint32)
    words = np.bitwise_or.reduce(columns << np.arange(0, 32, bits, dtype=np.uint32), axis=-1)
    names = ("scales", "minima")[:num_halves]
    return {"quants": words.view("<i4").transpose(0, 2, 3, 1), **dict(zip(names, halves, strict=True))}


def _tiles(tensors: Sequence[gguf.ReaderTensor], heads: Mapping[str, int]) -> dict[str, Array] | None:
    """Every tensor of the quantised file, or None where a matrix is in blocks of another kind."""
    matrices = {_tensor_name(t.name): t for t in tensors if len(t.shape) == 2}
    head = "lm_head.weight" if "lm_head.weight" in matrices else "model.embed_tokens.weight"
    groups = {"head": [matrices[head]]}
    num_layers = 1 + max(_place(t.name)[0] for t in tensors)
    for layer in range(num_layers):
        for module, parts in MODULES.items():
            groups[f"layers.{layer}.{module}"] = [matrices[f"model.layers.{layer}.{part}.weight"] for part in parts]
    tiles: dict[str, Array] = {}
    for name, group in groups.items():
        kinds = {t.tensor_type for t in group}
        if len(kinds) != 1 or not kinds <= _TILE_KINDS.keys():
            return None
        rows = np.concatenate([_in_our_order(t.data, t.name, heads) for t in group])
        tiles |= {f"{name}.{part}": array for part, array in pack_tiles(rows, kinds.pop()).items()}
    return tiles


def _in_our_order(array: Array, name: str, heads: Mapping[str, int]) -> Array:
    """llama.cpp keeps the two rows that RoPE rotates together side by side (0, 0', 1, 1', …); transformers keeps them
    half a head apart (0, 1, …, 0', 1', …)."""
    num_heads = heads.get(_layer_and_kind(name)[1])
    if num_heads is None:
        return array
    rows, columns = array.shape
    return array.reshape(num_heads, rows // num_heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _tensor_name(name: str) -> str:
    layer, kind = _layer_and_kind(name)
    prefix = "" if layer is None else f"model.layers.{layer}."
    return f"{prefix}{_TENSORS[kind]}.weight"


def _place(name: str) -> tuple[int, int]:
    """Where a tensor stands in the file: what belongs to no layer, then layer by layer."""
    layer, kind = _layer_and_kind(name)
    return -1 if layer is None else layer, list(_TENSORS).index(kind)


def _layer_and_kind(name: str) -> tuple[int | None, str]:
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", name)
    if match is None or match[2] not in _TENSORS:
        raise ModelError(f"unknown tensor {name!r} in a llama GGUF file. Use a Hugging Face folder instead.")
    return (int(match[1]) if match[1] else None), match[2]


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
