"""Tiny models for tests: a folder like a real checkpoint's, made in a moment, with random but fixed weights.

The tokenizer is byte-level BPE over 512 ids with ChatML's special tokens; its merges join frequent letter pairs, so
that text cut at an arbitrary place is tokenised differently than in one piece, as with a real one.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

VOCAB_SIZE = 512
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
IM_START, IM_END = 1, 2
CONTEXT_WINDOW = 256
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def build_tiny_tokenizer(path: Path, *, template: str = CHAT_TEMPLATE, control: tuple[str, ...] = ()) -> Path:
    """`tokenizer.json` and `tokenizer_config.json`; needs no torch. `control`: further special tokens."""
    letters = "Ġetaoinshrdlcumw"
    merges = [(first, second) for first in letters for second in letters]
    special = (*SPECIAL_TOKENS, *control)
    texts = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    merges = merges[: VOCAB_SIZE - len(texts)]
    vocab = {text: index for index, text in enumerate([*texts, *(a + b for a, b in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    path.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "chat_template": template,
        "model_max_length": CONTEXT_WINDOW,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def build_tiny_model(path: Path) -> Path:
    """A Llama of two layers with that tokenizer, saved by transformers in float32."""
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_WINDOW,
        initializer_range=0.2,  # ten times the usual: answers that differ from prompt to prompt
        tie_word_embeddings=True,
        bos_token_id=IM_START,
        eos_token_id=IM_END,
        pad_token_id=IM_END,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(bos_token_id=IM_START, eos_token_id=IM_END, pad_token_id=IM_END)
    model.save_pretrained(path)
    return build_tiny_tokenizer(path)
