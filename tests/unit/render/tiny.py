"""Small tokenizers and model folders, made on the spot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

QWEN_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN_TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")

CHATML = (
    "{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"
)

HERMES = Path(__file__).with_name("hermes.jinja").read_text()
"""ChatML with tools as Qwen2.5 and Qwen3 write them."""


def byte_level(special: tuple[str, ...] = QWEN_SPECIAL, tags: tuple[str, ...] = QWEN_TAGS) -> Tokenizer:
    """A byte-level BPE tokenizer like Qwen's, with a few merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["the user asks the assistant about the weather\n\n  again and again"] * 4, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in tags])
    return tokenizer


def sentence_piece() -> Tokenizer:
    """Text pieces with byte fallback, as Llama 2 and Mistral have them."""
    pieces = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "a",
        "b",
        "▁a",
        "ab",
        "▁ab",
        "é",
    ]
    merges = [("▁", "a"), ("a", "b"), ("▁", "ab")]
    vocab = {piece: token for token, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in ("<unk>", "<s>", "</s>")]
    )
    return tokenizer


def write_folder(
    folder: Path,
    tokenizer: Tokenizer,
    template: str | None,
    *,
    tokenizer_config: dict[str, Any] | None = None,
    **config: Any,
) -> Path:
    """A model folder without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config or {}))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder
