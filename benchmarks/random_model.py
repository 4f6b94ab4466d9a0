"""A model of the shape of Qwen3-4B with random weights, as a folder that `model.name` can name.

    python benchmarks/random_model.py FOLDER [--device cuda] [--description FOLDER] [--layers 36]

For benchmarks of the whole system on a machine that has a GPU and no such model: what a step, a gate and a swap cost
does not depend on what the weights say. Tokenizer and chat template are those of the embedded model, or of the folder
`--description`, with made-up words up to Qwen3's vocabulary. So that answers end, every 300th token ends one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.embedded import QWEN3_4B, embedded_folder, random_network
from openclaw_rl.model.architecture import Architecture
from openclaw_rl.model.weights import copy_description, save_weights

ENDS_EVERY = 300


def describe(arch: Architecture, source: Path, folder: Path) -> None:
    """All files but the weights."""
    copy_description(source, folder)
    config = json.loads((source / "config.json").read_text()) | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_hidden_layers": arch.num_layers,
        "hidden_size": arch.hidden_size,
        "intermediate_size": arch.mlp_size,
        "num_attention_heads": arch.num_heads,
        "num_key_value_heads": arch.num_kv_heads,
        "head_dim": arch.head_dim,
        "vocab_size": arch.vocab_size,
        "rms_norm_eps": arch.rms_eps,
        "rope_theta": arch.rope.theta,
        "tie_word_embeddings": arch.tied_head,
        "max_position_embeddings": arch.context_window,
        "dtype": "bfloat16",
    }
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    words: dict[str, int] = tokenizer["model"]["vocab"]
    num_words = len(words)
    words |= {f"Ġword{number}": number for number in range(num_words, arch.vocab_size)}
    ends = [config["eos_token_id"], *range(num_words, arch.vocab_size, ENDS_EVERY)]
    for name, content in (
        ("config.json", config),
        ("tokenizer.json", tokenizer),
        ("generation_config.json", {"eos_token_id": ends}),
    ):
        (folder / name).write_text(json.dumps(content))


def main() -> None:
    options = argparse.ArgumentParser(description="Make a model of random weights.")
    options.add_argument("folder", type=Path, help="where to put it; must not exist yet")
    options.add_argument("--device", default="cpu", help="where the numbers are drawn")
    options.add_argument("--description", type=Path, default=None, help="a model whose tokenizer is taken")
    options.add_argument("--layers", type=int, default=QWEN3_4B.num_layers)
    arguments = options.parse_args()
    arch = replace(QWEN3_4B, num_layers=arguments.layers)
    network = random_network(arch, device=torch.device(arguments.device), dtype=torch.bfloat16)
    with tempfile.TemporaryDirectory() as description:
        describe(arch, arguments.description or embedded_folder(), Path(description))
        save_weights(network.weights, arch, arguments.folder, source=Path(description))
    print(f"{arch.num_layers} layers in {arguments.folder}")


if __name__ == "__main__":
    main()
