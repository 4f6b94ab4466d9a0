"""What the trainer saves, read by others: peft computes the same numbers, and vLLM's loader finds all it asks for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from openclaw_rl.model.adapter import AdapterWeights, LoraRows
from openclaw_rl.train.worker.checkpoint import WEIGHTS
from openclaw_rl.train.worker.trainer import TorchTrainer
from tests.factories.oracle import CPU, compute, load_network, make_model, some_ids
from tests.factories.orders import order, sample

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
ALL = (*ATTENTION, "gate_proj", "up_proj", "down_proj")
TARGETS = {"all-linear": ALL, "attention": ATTENTION}
KINDS = ("llama", "llama, own head", "qwen3", "qwen3, own head")
VOCAB_SIZE = 97


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    made = make_model(request.param)
    assert made.config.tie_word_embeddings == ("own head" not in request.param)
    made.save_pretrained(folder)
    return folder


@pytest.fixture(params=TARGETS)
def targets(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def trained(model: Path, folder: Path, targets: str) -> Path:
    """The published folder behind two steps."""
    wanted = ["all-linear"] if targets == "all-linear" else list(ATTENTION)
    trainer = TorchTrainer(model, device=CPU, dtype=torch.float32)
    parent = None
    for number in (1, 2):
        given = sample(number, num_hints=0, advantage=1.0, logprobs=None)
        ids = {
            name: tuple(token % VOCAB_SIZE for token in getattr(given, name)) for name in ("prompt_ids", "response_ids")
        }
        changed = sample(number, num_hints=0, advantage=1.0, logprobs=None, **ids)
        report = trainer.step(*order(folder, number, changed, parent=parent, lora_target_modules=wanted))
        assert report.state == "done"
        parent = str(folder / f"v{number}")
    return folder / "v2" / WEIGHTS


def test_peft_computes_what_our_network_computes(model: Path, targets: str, tmp_path: Path) -> None:
    folder = trained(model, tmp_path, targets)
    ids = some_ids(40)
    network = load_network(model)
    adapter = AdapterWeights.load(folder, network.arch, device=CPU, dtype=torch.float32)
    ours = compute(network, ids, LoraRows([(slice(0, len(ids)), adapter)])).detach()
    base: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()

    def theirs(wearer: Any) -> Tensor:
        with torch.no_grad():
            logits: Tensor = wearer(ids.unsqueeze(0)).logits[0]
            return logits

    plain = theirs(base)
    worn = peft.PeftModel.from_pretrained(base, str(folder)).eval()
    torch.testing.assert_close(theirs(worn), ours, atol=1e-4, rtol=1e-5)
    assert float((ours - plain).abs().max()) > 0.01, "an adapter that changes nothing proves nothing"
    torch.testing.assert_close(theirs(worn.merge_and_unload()), ours, atol=1e-4, rtol=1e-5)


def test_peft_finds_every_tensor_and_no_other(model: Path, targets: str, tmp_path: Path) -> None:
    folder = trained(model, tmp_path, targets)
    base: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    worn: Any = peft.get_peft_model(base, peft.LoraConfig.from_pretrained(str(folder)))
    found = load_file(folder / "adapter_model.safetensors")
    expected = peft.get_peft_model_state_dict(worn)
    assert {name: tensor.shape for name, tensor in found.items()} == {
        name: tensor.shape for name, tensor in expected.items()
    }


VLLM_REFUSES = ("modules_to_save", "use_dora", "rank_pattern", "alpha_pattern", "layers_to_transform", "lora_bias")
"""What vLLM's loader (`PEFTHelper`, `LoRAModel`) refuses, or leaves out, when an adapter's config has it."""

VLLM_RANKS = (8, 16, 32, 64)
"""`max_lora_rank` of a server is one of these (and larger ones); 16 is its default."""


def test_vllm_finds_what_its_loader_asks_for(model: Path, targets: str, tmp_path: Path) -> None:
    folder = trained(model, tmp_path, targets)
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA"
    assert type(config["r"]) is int
    assert 0 < config["r"] <= max(VLLM_RANKS)
    assert config["lora_alpha"] > 0
    assert config["bias"] == "none"
    assert sorted(config["target_modules"]) == sorted(TARGETS[targets])
    assert not any(config.get(key) for key in VLLM_REFUSES)
    tensors = load_file(folder / "adapter_model.safetensors")
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    weights = load_file(model / "model.safetensors")
    wanted: dict[str, tuple[int, ...]] = {}
    for name, weight in weights.items():
        if re.fullmatch(rf"model\.layers\.\d+\.(self_attn|mlp)\.({'|'.join(TARGETS[targets])})\.weight", name):
            stem, (size_out, size_in) = f"base_model.model.{name.removesuffix('.weight')}", weight.shape
            wanted[f"{stem}.lora_A.weight"] = (config["r"], size_in)
            wanted[f"{stem}.lora_B.weight"] = (size_out, config["r"])
    assert shapes == wanted
    assert "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight" in shapes
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    assert sorted(path.name for path in folder.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
