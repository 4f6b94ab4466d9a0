from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from openclaw_rl.errors import ModelError
from openclaw_rl.model.adapter import TARGETS, AdapterWeights, LoraRows
from openclaw_rl.model.architecture import MODULES, Architecture
from openclaw_rl.model.network import DenseLinear, Network
from tests.factories.oracle import CPU, SeeOwnSequence, compute, make_model, save_network, some_ids

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
ALL = slice(None)
SHAPES: list[dict[str, Any]] = [
    {"rank": 4, "alpha": 8, "targets": TARGETS},
    {"rank": 1, "alpha": 0.5, "targets": ("q_proj", "v_proj")},
    {"rank": 3, "alpha": 16, "targets": ("up_proj", "o_proj"), "rslora": True},
    {"rank": 5, "alpha": 5, "targets": ("k_proj", "gate_proj", "down_proj")},
]
PEFT_DEFAULTS: dict[str, Any] = {
    "alora_invocation_tokens": None,
    "alpha_pattern": {},
    "arrow_config": None,
    "auto_mapping": None,
    "base_model_name_or_path": "org/name",
    "bias": "none",
    "corda_config": None,
    "ensure_weight_tying": False,
    "eva_config": None,
    "exclude_modules": None,
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "layer_replication": None,
    "layers_pattern": None,
    "layers_to_transform": None,
    "loftq_config": {},
    "lora_alpha": 8,
    "lora_bias": False,
    "lora_dropout": 0.05,
    "megatron_config": None,
    "megatron_core": "megatron.core",
    "modules_to_save": None,
    "peft_type": "LORA",
    "peft_version": "0.21.2",
    "qalora_group_size": 16,
    "r": 4,
    "rank_pattern": {},
    "revision": None,
    "target_modules": ["v_proj", "q_proj"],
    "target_parameters": None,
    "task_type": "CAUSAL_LM",
    "trainable_token_indices": None,
    "use_dora": False,
    "use_qalora": False,
    "use_rslora": False,
}
"""What PEFT writes when nothing is asked for but a rank, an alpha and targets."""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return save_network(make_model("qwen3"), tmp_path_factory.mktemp("base"))


def draw(arch: Architecture, seed: int = 7, **shape: Any) -> AdapterWeights:
    return AdapterWeights.random(arch, seed=seed, b_std=0.3, device=CPU, dtype=torch.float32, **shape)


def write_peft(folder: Path, arch: Architecture, config: dict[str, Any] | None = None) -> dict[str, Tensor]:
    """An adapter as PEFT itself would write it, with nothing of ours involved but the shapes of the model."""
    folder.mkdir()
    config = PEFT_DEFAULTS if config is None else config
    generator = torch.Generator().manual_seed(3)
    tensors: dict[str, Tensor] = {}
    for layer in range(arch.num_layers):
        for module in MODULES:
            for part in arch.projections(module):
                if part.name.rpartition(".")[2] in ("q_proj", "v_proj"):
                    stem = f"base_model.model.model.layers.{layer}.{part.name}"
                    tensors[f"{stem}.lora_A.weight"] = torch.randn(4, part.in_features, generator=generator)
                    tensors[f"{stem}.lora_B.weight"] = torch.randn(part.out_features, 4, generator=generator)
    (folder / CONFIG).write_text(json.dumps(config))
    save_file(tensors, folder / WEIGHTS)
    return tensors


def merge(model: Any, tensors: dict[str, Tensor], scale: float) -> Any:
    """W + scale·B·A, from an adapter's file."""
    with torch.no_grad():
        for name, a in tensors.items():
            if ".lora_A." in name:
                stem = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
                b = tensors[name.replace("lora_A", "lora_B")]
                model.get_submodule(stem).weight.add_(scale * b @ a)
    return model


@torch.inference_mode()
def test_a_peft_folder_computes_what_merged_weights_do(network: Network, tmp_path: Path) -> None:
    tensors = write_peft(tmp_path / "a", network.arch)
    adapter = AdapterWeights.load(tmp_path / "a", network.arch, device=CPU, dtype=torch.float32)
    assert (adapter.rank, adapter.scale, adapter.targets) == (4, 2.0, ("q_proj", "v_proj"))
    ids = some_ids(11)
    expected = merge(make_model("qwen3"), tensors, 2.0)(ids[None]).logits[0]
    got = compute(network, ids, LoraRows([(ALL, adapter)]))
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-5)
    assert (got - compute(network, ids)).abs().max() > 1


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@torch.inference_mode()
def test_saved_adapters_of_any_shape_mean_the_same(network: Network, tmp_path: Path, shape: dict[str, Any]) -> None:
    adapter = draw(network.arch, **shape)
    adapter.save(tmp_path / "v1")
    scale = shape["alpha"] / (math.sqrt(shape["rank"]) if shape.get("rslora") else shape["rank"])
    assert adapter.scale == pytest.approx(scale)
    merged = merge(make_model("qwen3"), load_file(tmp_path / "v1" / WEIGHTS), scale)
    ids = some_ids(8)
    got = compute(network, ids, LoraRows([(ALL, adapter)]))
    torch.testing.assert_close(got, merged(ids[None]).logits[0], atol=1e-4, rtol=1e-5)
    loaded = AdapterWeights.load(tmp_path / "v1", network.arch, device=CPU, dtype=torch.float32)
    assert torch.equal(loaded.flat, adapter.flat)
    assert (loaded.rank, loaded.alpha, loaded.rslora) == (adapter.rank, adapter.alpha, adapter.rslora)
    assert loaded.targets == adapter.targets
    config = json.loads((tmp_path / "v1" / CONFIG).read_text())
    assert (config["peft_type"], config["base_model_name_or_path"]) == ("LORA", None)


@torch.inference_mode()
def test_a_batch_that_wears_one_adapter_may_be_named_by_its_rows_or_as_a_whole(network: Network) -> None:
    adapter, ids = draw(network.arch, **SHAPES[0]), some_ids(5)
    whole = compute(network, ids, LoraRows([(ALL, adapter)]))
    for groups in ([(slice(0, 5), adapter)], [(slice(0, 2), adapter), (slice(2, 5), adapter)]):
        torch.testing.assert_close(compute(network, ids, LoraRows(groups)), whole, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_rows_of_one_batch_wear_different_adapters(network: Network) -> None:
    first, second = draw(network.arch, seed=1, **SHAPES[0]), draw(network.arch, seed=2, **SHAPES[1])
    lengths = [3, 4, 5, 2]
    worn = [first, None, second, first]
    sequences = [some_ids(length, seed=length) for length in lengths]
    lora = LoraRows([(slice(0, 3), first), (slice(7, 12), second), (slice(12, 14), first)])
    positions = torch.cat([torch.arange(length) for length in lengths])
    hidden = network.hidden(torch.cat(sequences), positions, SeeOwnSequence(lengths), lora)
    for got, ids, adapter in zip(network.logits(hidden).split(lengths), sequences, worn, strict=True):
        alone = compute(network, ids, LoraRows([(ALL, adapter)]) if adapter else None)
        torch.testing.assert_close(got, alone, atol=1e-4, rtol=1e-5)


def test_gradients_are_those_of_the_merged_weights(network: Network, tmp_path: Path) -> None:
    """Of a loss L: dL/dA = scale·Bᵀ·dL/dW and dL/dB = scale·dL/dW·Aᵀ."""
    adapter = draw(network.arch, **SHAPES[0])
    adapter.save(tmp_path / "v1")
    tensors = load_file(tmp_path / "v1" / WEIGHTS)
    ids = some_ids(9)
    merged = merge(make_model("qwen3"), tensors, adapter.scale)
    functional.cross_entropy(merged(ids[None]).logits[0], ids).backward()
    for parameter in adapter.parameters():
        parameter.requires_grad_()
    functional.cross_entropy(compute(network, ids, LoraRows([(ALL, adapter)])), ids).backward()
    assert all(not tensor.requires_grad for tensor in (network.weights.embedding, network.weights.final_norm))
    checked = 0
    for layer in range(network.arch.num_layers):
        for module in MODULES:
            parts = adapter.parts(layer, module)
            assert parts is not None
            assert parts.a.grad is not None
            for part, projection in zip(parts.parts, network.arch.projections(module), strict=True):
                grad = merged.get_submodule(f"model.layers.{layer}.{projection.name}").weight.grad
                expected_a = adapter.scale * part.b.detach().t() @ grad
                expected_b = adapter.scale * grad @ parts.a.detach()[part.rank].t()
                torch.testing.assert_close(parts.a.grad[part.rank], expected_a, atol=1e-5, rtol=1e-4)
                torch.testing.assert_close(part.b.grad, expected_b, atol=1e-5, rtol=1e-4)
                checked += 1
    assert checked == 14


def test_an_optimiser_step_changes_the_buffer(network: Network) -> None:
    adapter = draw(network.arch, **SHAPES[1])
    before = adapter.flat.clone()
    parameters = [parameter.requires_grad_() for parameter in adapter.parameters()]
    torch.autograd.backward(sum((parameter.sum() for parameter in parameters), torch.zeros(())))
    torch.optim.SGD(parameters, lr=0.5).step()
    changed = (adapter.flat - before).bool()
    assert int(changed.sum()) == sum(parameter.numel() for parameter in parameters)


def test_training_starts_at_the_base_weights(network: Network) -> None:
    fresh = AdapterWeights.random(network.arch, rank=4, alpha=8, seed=0, device=CPU, dtype=torch.float32)
    again = AdapterWeights.random(network.arch, rank=4, alpha=8, seed=0, device=CPU, dtype=torch.float32)
    other = AdapterWeights.random(network.arch, rank=4, alpha=8, seed=1, device=CPU, dtype=torch.float32)
    parts = fresh.parts(1, "down")
    assert parts is not None
    assert fresh.targets == TARGETS
    assert 0.8 < parts.a.abs().max() * math.sqrt(network.arch.mlp_size) <= 1
    assert not parts.parts[0].b.any()
    assert torch.equal(fresh.flat, again.flat)
    assert not torch.equal(fresh.flat, other.flat)


def test_matrices_share_one_aligned_buffer(network: Network) -> None:
    adapter = AdapterWeights(network.arch, rank=3, alpha=3, device=CPU, dtype=torch.bfloat16)
    for tensor in adapter.parameters():
        assert tensor.untyped_storage().data_ptr() == adapter.flat.untyped_storage().data_ptr()
        assert tensor.storage_offset() * 2 % 64 == 0
        assert tensor.dtype == torch.bfloat16
    assert not adapter.flat.any()


def test_parts_of_what_is_not_targeted_are_none(network: Network) -> None:
    adapter = draw(network.arch, rank=2, alpha=2, targets=("v_proj",))
    assert adapter.parts(0, "down") is None
    assert adapter.parts(network.arch.num_layers, "qkv") is None
    parts = adapter.parts(0, "qkv")
    assert parts is not None
    arch = network.arch
    assert [part.out for part in parts.parts] == [
        slice(arch.query_size + arch.kv_size, arch.query_size + 2 * arch.kv_size)
    ]
    assert parts.a.shape == (2, arch.hidden_size)


@pytest.mark.parametrize(("targets", "rank"), [(("lm_head",), 2), ((), 2), (("q_proj",), 0)])
def test_impossible_shapes_are_refused(network: Network, targets: tuple[str, ...], rank: int) -> None:
    with pytest.raises(ModelError, match="an adapter"):
        AdapterWeights(network.arch, rank=rank, alpha=1, targets=targets, device=CPU, dtype=torch.float32)


def load(folder: Path, network: Network) -> AdapterWeights:
    return AdapterWeights.load(folder, network.arch, device=CPU, dtype=torch.float32)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("peft_type", "LOHA"),
        ("peft_type", None),
        ("r", None),
        ("r", 0),
        ("r", True),
        ("lora_alpha", None),
        ("lora_alpha", -1),
        ("bias", "lora_only"),
        ("init_lora_weights", "pissa"),
        ("target_modules", None),
        ("rank_pattern", {"q_proj": 8}),
        ("alpha_pattern", {"q_proj": 8}),
        ("use_dora", True),
        ("modules_to_save", ["lm_head"]),
        ("layers_to_transform", [0]),
        ("layer_replication", [[0, 1]]),
        ("exclude_modules", ["k_proj"]),
        ("fan_in_fan_out", True),
        ("lora_bias", True),
        ("trainable_token_indices", [1]),
        ("target_parameters", ["x"]),
        ("alora_invocation_tokens", [1]),
        ("use_qalora", True),
        ("something_from_the_future", "on"),
    ],
)
def test_what_changes_the_maths_is_refused_by_its_key(network: Network, tmp_path: Path, key: str, value: Any) -> None:
    write_peft(tmp_path / "a", network.arch, PEFT_DEFAULTS | {key: value})
    with pytest.raises(ModelError, match=f"{key} in .*adapter_config.json is "):
        load(tmp_path / "a", network)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("target_modules", "all-linear"),
        ("target_modules", r".*\.(q|v)_proj"),
        ("target_modules", ["self_attn.q_proj", "model.layers.0.self_attn.v_proj", "v_proj"]),
        ("init_lora_weights", "gaussian"),
        ("init_lora_weights", False),
        ("lora_dropout", 0.5),
    ],
)
def test_what_changes_nothing_is_accepted(network: Network, tmp_path: Path, key: str, value: Any) -> None:
    write_peft(tmp_path / "a", network.arch, PEFT_DEFAULTS | {key: value})
    assert load(tmp_path / "a", network).targets == ("q_proj", "v_proj")


Q1 = "base_model.model.model.layers.1.self_attn.q_proj"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({f"{Q1}.lora_A.weight": None, f"{Q1}.lora_B.weight": None}, f"lacks the tensor {Q1}.lora_A.weight"),
        ({f"{Q1}.lora_B.weight": None}, f"lacks the tensor {Q1}.lora_B.weight"),
        ({Q1.replace("s.1", "s.2") + ".lora_A.weight": torch.ones(4, 48)}, "has the tensor .*layers.2"),
        ({f"{Q1}.lora_A.weight": torch.ones(5, 48)}, rf"{Q1}.lora_A.weight .*\[5, 48\].*rank 4.*\[4, 48\]"),
        ({f"{Q1}.lora_A.weight": torch.ones(4 * 48)}, rf"{Q1}.lora_A.weight .*\[192\].*\[4, 48\]"),
        ({f"{Q1}.lora_A.weight": torch.ones(4, 48, dtype=torch.int32)}, "is torch.int32"),
        ({f"{Q1}.lora_A.weight": torch.full((4, 48), float("nan"))}, "not finite"),
        ({"base_model.model.lm_head.lora_A.weight": torch.ones(4, 48)}, "is for lm_head, q_proj, v_proj"),
        ({Q1.replace("q_proj", "k_proj") + ".lora_A.weight": torch.ones(4, 48)}, "is for k_proj, q_proj, v_proj"),
    ],
    ids=str,
)
def test_a_file_for_another_model_is_refused(
    network: Network, tmp_path: Path, changed: dict[str, Tensor | None], message: str
) -> None:
    tensors = write_peft(tmp_path / "a", network.arch) | changed
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, tmp_path / "a" / WEIGHTS)
    with pytest.raises(ModelError, match=message):
        load(tmp_path / "a", network)


def test_shapes_are_compared_before_there_is_memory_for_them(network: Network, tmp_path: Path) -> None:
    nowhere = torch.device("xpu")  # a device that is not there: taking memory on it fails
    write_peft(tmp_path / "right", network.arch)
    with pytest.raises((AssertionError, RuntimeError), match="(?i)xpu"):
        AdapterWeights.load(tmp_path / "right", network.arch, device=nowhere, dtype=torch.float32)
    write_peft(tmp_path / "wrong", network.arch, PEFT_DEFAULTS | {"r": 4096})
    with pytest.raises(ModelError, match=r"has the shape \[4, 48\].*rank 4096 ask for \[4096, 48\]"):
        AdapterWeights.load(tmp_path / "wrong", network.arch, device=nowhere, dtype=torch.float32)


def test_a_broken_folder_is_refused(network: Network, tmp_path: Path) -> None:
    write_peft(tmp_path / "a", network.arch)
    os.truncate(tmp_path / "a" / WEIGHTS, 1000)
    with pytest.raises(ModelError, match="no whole safetensors file"):
        load(tmp_path / "a", network)
    (tmp_path / "a" / WEIGHTS).unlink()
    with pytest.raises(ModelError, match="adapter_model.safetensors is missing"):
        load(tmp_path / "a", network)
    (tmp_path / "a" / CONFIG).write_text("[]")
    with pytest.raises(ModelError, match="holds a list"):
        load(tmp_path / "a", network)
    (tmp_path / "a" / CONFIG).write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        load(tmp_path / "a", network)
    with pytest.raises(ModelError, match="cannot be read"):
        load(tmp_path / "b", network)


def test_a_written_adapter_is_never_changed(network: Network, tmp_path: Path) -> None:
    adapter = draw(network.arch, **SHAPES[1])
    adapter.save(tmp_path / "v1")
    before = (tmp_path / "v1" / WEIGHTS).read_bytes()
    with pytest.raises(ModelError, match="never changed"):
        draw(network.arch, seed=8, **SHAPES[1]).save(tmp_path / "v1")
    assert (tmp_path / "v1" / WEIGHTS).read_bytes() == before


def test_saving_leaves_a_whole_folder_or_none(network: Network, tmp_path: Path) -> None:
    (tmp_path / ".v1.partial").mkdir()
    (tmp_path / ".v1.partial" / "left by a killed process").touch()
    adapter = draw(network.arch, **SHAPES[1])
    adapter.save(tmp_path / "v1")
    assert sorted(path.name for path in tmp_path.rglob("*")) == [CONFIG, WEIGHTS, "v1"]
    adapter.alpha = object()  # type: ignore[assignment]
    with pytest.raises(TypeError):
        adapter.save(tmp_path / "v2")
    assert [path.name for path in tmp_path.iterdir()] == ["v1"]


def test_the_base_stays_as_it_was(network: Network) -> None:
    """Adapters write into a projection's output; that must be no view of a weight."""
    linear = network.weights.layers[0].down
    assert isinstance(linear, DenseLinear)
    before = linear.weight.clone()
    compute(network, some_ids(5), LoraRows([(ALL, draw(network.arch, **SHAPES[0]))]))
    assert torch.equal(linear.weight, before)
