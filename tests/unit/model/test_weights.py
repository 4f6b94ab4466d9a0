from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from openclaw_rl.errors import ModelError
from openclaw_rl.model.architecture import MODULES, Architecture
from openclaw_rl.model.network import DenseLinear, LayerWeights, Linear, SplitLinear, Weights
from openclaw_rl.model.weights import load_weights
from tests.factories.oracle import CPU, compute, load_network, make_model, some_ids

FILE = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_model("qwen3, own head").save_pretrained(tmp_path)
    return tmp_path


def tensors_of(folder: Path) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in load_file(folder / FILE).items()}


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Weights:
    return load_network(folder, dtype).weights


def write(path: Path, tensors: dict[str, Tensor], *, pad: int = 0) -> None:
    """In the order given, which the safetensors package would change; `pad` puts the data off its alignment."""
    header: dict[str, Any] = {}
    start = 0
    for name, tensor in tensors.items():
        end = start + tensor.nbytes
        header[name] = {
            "dtype": "F32" if tensor.dtype == torch.float32 else "F16",
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 + pad)
    data = b"".join(tensor.contiguous().numpy().tobytes() for tensor in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def side_by_side(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As the embedded model's conversion orders them."""
    parts = [part for module in MODULES.values() for part in module]

    def place(name: str) -> tuple[str, int]:
        stem = name.removesuffix(".weight")
        found = next((part for part in parts if stem.endswith(part)), None)
        return ("", 0) if found is None else (stem.removesuffix(found), 1 + parts.index(found))

    return {name: tensors[name] for name in sorted(tensors, key=place)}


def fused(layer: LayerWeights) -> dict[str, Linear]:
    return {"qkv": layer.qkv, "o": layer.o, "gate_up": layer.gate_up, "down": layer.down}


def matrices(linear: Linear) -> list[Tensor]:
    if isinstance(linear, SplitLinear):
        return [part.weight for part in linear.parts]
    assert isinstance(linear, DenseLinear)
    return [linear.weight]


def check_values(weights: Weights, tensors: dict[str, Tensor]) -> None:
    assert torch.equal(weights.embedding.float(), tensors["model.embed_tokens.weight"])
    for index, layer in enumerate(weights.layers):
        prefix = f"model.layers.{index}."
        for module, linear in fused(layer).items():
            stacked = torch.cat([tensors[f"{prefix}{name}.weight"] for name in MODULES[module]])  # type: ignore[index]
            own = torch.cat(matrices(linear))
            assert torch.equal(own.float(), stacked), f"{index} {module}"
            assert linear.out_features == len(stacked)
        assert layer.q_norm is not None
        assert torch.equal(layer.q_norm.float(), tensors[f"{prefix}self_attn.q_norm.weight"])


def all_tensors(weights: Weights) -> list[Tensor]:
    found = [weights.embedding, weights.final_norm]
    for linear in (weights.head, *(linear for layer in weights.layers for linear in fused(layer).values())):
        found += matrices(linear)
    return found


def test_what_lies_side_by_side_is_one_matrix_of_the_mapped_file(folder: Path) -> None:
    tensors = tensors_of(folder)
    write(folder / FILE, side_by_side(tensors))
    weights = load(folder)
    assert all(isinstance(linear, DenseLinear) for layer in weights.layers for linear in fused(layer).values())
    assert len({tensor.untyped_storage().data_ptr() for tensor in all_tensors(weights)}) == 1
    check_values(weights, tensors)


def test_what_lies_apart_is_not_copied_either(folder: Path) -> None:
    """The package writes by name: k, o, q, v."""
    weights = load(folder)
    assert all(isinstance(layer.qkv, SplitLinear) for layer in weights.layers)
    assert all(isinstance(layer.gate_up, DenseLinear) for layer in weights.layers)
    assert len({tensor.untyped_storage().data_ptr() for tensor in all_tensors(weights)}) == 1
    check_values(weights, tensors_of(folder))


def test_side_by_side_in_another_order_is_not_one_matrix(folder: Path) -> None:
    tensors = side_by_side(tensors_of(folder))
    write(folder / FILE, dict(reversed(tensors.items())))
    weights = load(folder)
    assert isinstance(weights.layers[0].gate_up, SplitLinear)
    check_values(weights, tensors)


def test_neighbours_of_two_precisions_are_not_one_matrix(folder: Path) -> None:
    tensors = side_by_side(tensors_of(folder))
    name = "model.layers.0.mlp.up_proj.weight"
    tensors[name] = tensors[name].half()
    write(folder / FILE, tensors)
    weights = load(folder)
    assert isinstance(weights.layers[0].gate_up, SplitLinear)
    assert all(tensor.dtype == torch.float32 for tensor in all_tensors(weights))
    check_values(weights, tensors | {name: tensors[name].float()})


def test_writing_into_weights_leaves_the_file_alone(folder: Path) -> None:
    before = (folder / FILE).read_bytes()
    load(folder).embedding.zero_()
    assert (folder / FILE).read_bytes() == before


def test_another_precision_is_a_fused_copy(folder: Path) -> None:
    weights = load(folder, torch.float64)
    assert all(isinstance(linear, DenseLinear) for layer in weights.layers for linear in fused(layer).values())
    assert all(tensor.dtype == torch.float64 for tensor in all_tensors(weights))
    check_values(weights, tensors_of(folder))


def test_a_bfloat16_file_is_read_in_float32(folder: Path) -> None:
    tensors = {name: tensor.bfloat16() for name, tensor in tensors_of(folder).items()}
    save_file(tensors, folder / FILE)
    check_values(load(folder), {name: tensor.float() for name, tensor in tensors.items()})
    assert load(folder, torch.bfloat16).embedding.dtype == torch.bfloat16


def test_shards(folder: Path) -> None:
    tensors = tensors_of(folder)
    (folder / FILE).unlink()
    make_model("qwen3, own head").save_pretrained(folder, max_shard_size="30KB")
    assert len(list(folder.glob("*.safetensors"))) > 3
    check_values(load(folder), tensors)


def test_a_file_off_its_alignment_is_copied_and_right(folder: Path) -> None:
    tensors = tensors_of(folder)
    write(folder / FILE, tensors, pad=1)
    check_values(load(folder), tensors)


def test_a_tied_head_is_the_embedding_and_a_second_copy_is_ignored(tmp_path: Path) -> None:
    make_model("llama").save_pretrained(tmp_path)
    extra = {"lm_head.weight": torch.zeros(97, 48), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)}
    save_file(tensors_of(tmp_path) | extra, tmp_path / FILE)
    weights = load(tmp_path)
    assert isinstance(weights.head, DenseLinear)
    assert weights.head.weight is weights.embedding
    assert weights.layers[0].q_norm is None


def test_two_matrices_compute_what_one_does() -> None:
    first, second = torch.randn(5, 7), torch.randn(3, 7)
    split, x = SplitLinear((first, second)), torch.randn(4, 7)
    assert split.out_features == 8
    torch.testing.assert_close(split(x), DenseLinear(torch.cat((first, second)))(x))


Damage = Callable[[Path], None]


def without(name: str) -> Damage:
    def damage(folder: Path) -> None:
        tensors = tensors_of(folder)
        del tensors[name]
        save_file(tensors, folder / FILE)

    return damage


def having(name: str, tensor: Tensor) -> Damage:
    def damage(folder: Path) -> None:
        save_file(tensors_of(folder) | {name: tensor}, folder / FILE)

    return damage


def cut(folder: Path) -> None:
    os.truncate(folder / FILE, (folder / FILE).stat().st_size - 1)


def pointer(folder: Path) -> None:
    (folder / FILE).write_text("version https://git-lfs.github.com/spec/v1\n")


def lose(folder: Path) -> None:
    (folder / FILE).unlink()


def only_pickle(folder: Path) -> None:
    (folder / FILE).rename(folder / "pytorch_model.bin")


def lose_a_shard(folder: Path) -> None:
    (folder / FILE).unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "model-1.safetensors"}}))


def garble_the_index(folder: Path) -> None:
    (folder / FILE).unlink()
    (folder / "model.safetensors.index.json").write_text("[]")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without("model.layers.1.mlp.up_proj.weight"), "lacks the tensor model.layers.1.mlp.up_proj.weight"),
        (without("lm_head.weight"), "lacks the tensor lm_head.weight"),
        (without("model.layers.0.self_attn.k_norm.weight"), "lacks the tensor .*k_norm.weight"),
        (having("model.norm.weight", torch.ones(47)), r"model.norm.weight in .* has the shape \[47\].*asks for \[48\]"),
        (
            having("model.norm.weight", torch.ones(48, dtype=torch.int8)),
            "model.norm.weight in .* has the type I8.*F32, BF16, F16",
        ),
        (having("model.layers.0.self_attn.q_proj.bias", torch.ones(48)), "has the tensor .*q_proj.bias"),
        (having("model.layers.2.input_layernorm.weight", torch.ones(48)), "has the tensor model.layers.2.input"),
        (cut, "is no whole safetensors file"),
        (pointer, "is no whole safetensors file"),
        (lose, "neither model.safetensors nor"),
        (only_pickle, "neither model.safetensors nor"),
        (lose_a_shard, "model-1.safetensors is missing"),
        (garble_the_index, "index.json cannot be read"),
    ],
)
def test_a_wrong_or_partial_checkpoint_is_named(folder: Path, damage: Damage, message: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    arch = Architecture.from_config(config)
    assert arch is not None
    damage(folder)
    with pytest.raises(ModelError, match=message):
        load_weights(folder, arch, device=CPU, dtype=torch.float32)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.mlp.up_proj.weight", "lm_head.weight"])
def test_numbers_that_are_not_finite_are_refused_where_that_is_asked_for(folder: Path, name: str, bad: float) -> None:
    arch = Architecture.from_config(json.loads((folder / "config.json").read_text()))
    assert arch is not None
    load_weights(folder, arch, device=CPU, dtype=torch.float32, check_numbers=True)
    tensors = tensors_of(folder)
    tensors[name].view(-1)[-1] = bad
    save_file(tensors, folder / FILE)
    with pytest.raises(ModelError, match=f"{name} in .*{FILE} holds numbers that are not finite"):
        load_weights(folder, arch, device=CPU, dtype=torch.float32, check_numbers=True)
    load_weights(folder, arch, device=CPU, dtype=torch.float32)  # a base is not read before it is used


def test_a_number_that_only_another_precision_holds_is_not_finite(folder: Path) -> None:
    arch = Architecture.from_config(json.loads((folder / "config.json").read_text()))
    assert arch is not None
    having("model.norm.weight", torch.full((48,), 3.4e38))(folder)
    load_weights(folder, arch, device=CPU, dtype=torch.float32, check_numbers=True)
    with pytest.raises(ModelError, match="model.norm.weight in .* not finite"):
        load_weights(folder, arch, device=CPU, dtype=torch.bfloat16, check_numbers=True)


def test_the_embedded_layout_computes_what_transformers_order_does(folder: Path) -> None:
    ids = some_ids(6)
    apart = compute(load_network(folder), ids)
    write(folder / FILE, side_by_side(tensors_of(folder)))
    torch.testing.assert_close(compute(load_network(folder), ids), apart, atol=1e-5, rtol=1e-5)
