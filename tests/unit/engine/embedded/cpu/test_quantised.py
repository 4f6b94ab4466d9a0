"""Quantised weights: the fp32 file's values, multiplied right, and left alone where they would not work."""

from __future__ import annotations

import ctypes
import json
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from openclaw_rl.config import load_config
from openclaw_rl.engine.embedded.cpu.compiling import require_fma
from openclaw_rl.engine.embedded.cpu.quantised import QuantisedLinear, load_quantised, try_quantised, why_not_quantised
from openclaw_rl.engine.embedded.cpu.tile_kernel import TileKernel, is_right
from openclaw_rl.errors import ModelError
from openclaw_rl.model.architecture import MODULES, Architecture
from openclaw_rl.model.conversion import convert, pack_tiles
from openclaw_rl.model.files import resolve_model
from openclaw_rl.model.network import DenseLinear, Network, Weights
from openclaw_rl.model.tiles import TILES_FILE
from openclaw_rl.model.weights import load_weights
from tests.factories.checkpoints import make_llama, write_gguf

CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=[True, False], ids=["wide", "narrow"])
def kernel(request: pytest.FixtureRequest) -> TileKernel:
    return TileKernel(wide=request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny converted model whose matrices are all Q4_1; its vocabulary fills no whole number of tiles."""
    folder = tmp_path_factory.mktemp("tiny")
    write_gguf(folder / "tiny.gguf", make_llama(), quantise=True)
    convert(folder / "tiny.gguf", folder, lambda done, total: None)
    return folder


@pytest.fixture
def two_threads() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def architecture(folder: Path) -> Architecture:
    arch = Architecture.from_config(json.loads((folder / "config.json").read_text()))
    assert arch is not None
    return arch


def random_linear(kernel: TileKernel, bits: int, num_tiles: int, num_blocks: int, seed: int = 0) -> QuantisedLinear:
    """Any bits at all as weights, and scales and minima of both signs, some of them subnormal."""
    random = torch.Generator().manual_seed(seed)
    quants = torch.randint(-(2**31), 2**31, (num_tiles, num_blocks, bits, 16), generator=random).int()
    halves = torch.randn(2, num_tiles, num_blocks, 16, generator=random) * torch.tensor([1e-6, 1e-2, 0.5, 1.0]).repeat(
        4
    )
    scales, minima = halves.half()
    return QuantisedLinear(kernel, quants, scales, minima if bits == 4 else None, num_tiles * 16)


def causal(layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
    q, k, v = (x.transpose(0, 1)[None] for x in (q_TND, k_TKD, v_TKD))
    attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return attended[0].transpose(0, 1).flatten(1)


def all_logits(arch: Architecture, weights: Weights, ids: Tensor) -> Tensor:
    network = Network(arch, weights)
    with torch.inference_mode():
        return network.logits(network.hidden(ids, torch.arange(len(ids)), causal))


def dequantised(linear: QuantisedLinear) -> torch.Tensor:
    """[out, in] in fp32, bit for bit what the fp32 file has."""
    quants, minima = linear._quants, linear._minima
    bits = quants.shape[2]
    down = 32 - bits
    ups = torch.arange(down, -1, -bits, dtype=torch.int32)[:, None]
    columns = quants.unsqueeze(3) << ups  # each to the top of a word, to come down with or without its sign
    columns = columns >> down if minima is None else (columns >> down) & (2**bits - 1)
    values = columns.flatten(2, 3).float() * linear._scales.float().unsqueeze(2)
    if minima is not None:
        values = values + minima.float().unsqueeze(2)
    return values.permute(0, 3, 1, 2).reshape(linear._width, -1)[: linear.out_features]


@settings(max_examples=60)
@given(st.sampled_from([4, 8]), st.integers(1, 20), st.integers(1, 5), st.integers(1, 24), st.integers(0, 2**31))
def test_a_product_is_that_of_the_dequantised_matrix(
    kernel: TileKernel, bits: int, num_tiles: int, num_blocks: int, num_rows: int, seed: int
) -> None:
    linear = random_linear(kernel, bits, num_tiles, num_blocks, seed)
    x = torch.randn(num_rows, num_blocks * 32, generator=torch.Generator().manual_seed(seed))
    weight = dequantised(linear).double()
    terms = x.double().abs() @ weight.abs().T  # what the rounding of sums is measured by
    assert ((linear(x) - x.double() @ weight.T).abs() <= 2e-6 * terms + 1e-30).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_a_row_has_the_same_bits_alone_and_among_others_on_any_number_of_threads(
    kernel: TileKernel, bits: int, two_threads: None
) -> None:
    linear = random_linear(kernel, bits, 37, 5)
    x = torch.randn(31, 160, generator=torch.Generator().manual_seed(1))
    together = linear(x)
    torch.set_num_threads(1)
    assert torch.equal(linear(x), together)
    assert torch.equal(torch.cat([linear(row[None]) for row in x]), together)
    assert torch.equal(linear(x[5:12]), together[5:12])


def test_many_threads_may_multiply_at_once(kernel: TileKernel, two_threads: None) -> None:
    linear = random_linear(kernel, 4, 40, 4)
    xs = [torch.randn(1 + i % 9, 128, generator=torch.Generator().manual_seed(i)) for i in range(40)]
    expected = [linear(x) for x in xs]
    with ThreadPoolExecutor(4) as pool:
        assert all(map(torch.equal, pool.map(linear, xs), expected))


def test_rows_may_be_none_or_lie_apart(kernel: TileKernel) -> None:
    linear = random_linear(kernel, 4, 2, 3)
    assert linear(torch.empty(0, 96)).shape == (0, 32)
    apart = torch.randn(96, 7, generator=torch.Generator().manual_seed(0)).T
    assert torch.equal(linear(apart), linear(apart.contiguous()))


def test_only_fp32_without_gradients_is_multiplied(kernel: TileKernel) -> None:
    linear = random_linear(kernel, 8, 1, 1)
    with pytest.raises(AssertionError, match="bfloat16"):
        linear(torch.ones(1, 32, dtype=torch.bfloat16))
    with pytest.raises(AssertionError, match="inference"):
        linear(torch.ones(1, 32, requires_grad=True))


@pytest.mark.parametrize(("kind", "bits"), [(GGMLQuantizationType.Q4_1, 4), (GGMLQuantizationType.Q8_0, 8)])
@pytest.mark.parametrize("num_rows", [16, 41])
def test_tiles_hold_the_values_of_their_blocks(
    kernel: TileKernel, kind: GGMLQuantizationType, bits: int, num_rows: int
) -> None:
    matrix = np.random.default_rng(bits).standard_normal((num_rows, 96)).astype(np.float32)
    blocks = gguf.quants.quantize(matrix, kind)
    tiles = {name: torch.from_numpy(array.copy()) for name, array in pack_tiles(blocks, kind).items()}
    assert tiles["quants"].shape == (-(-num_rows // 16), 3, bits, 16)
    linear = QuantisedLinear(kernel, tiles["quants"], tiles["scales"], tiles.get("minima"), num_rows)
    expected = torch.from_numpy(gguf.quants.dequantize(blocks, kind))
    assert torch.equal(dequantised(linear), expected)
    x = torch.randn(3, 96, generator=torch.Generator().manual_seed(0))
    assert linear(x).is_contiguous()
    torch.testing.assert_close(linear(x), x @ expected.T, rtol=1e-5, atol=1e-5)


def assert_same_values(quantised: Weights, dense: Weights) -> None:
    pairs = [(quantised.head, dense.head)]
    for ours, theirs in zip(quantised.layers, dense.layers, strict=True):
        pairs += [(getattr(ours, module), getattr(theirs, module)) for module in MODULES]
        assert torch.equal(ours.input_norm, theirs.input_norm)
    for linear, weights in pairs:
        assert isinstance(linear, QuantisedLinear)
        assert isinstance(weights, DenseLinear)
        assert torch.equal(dequantised(linear), weights.weight)


def test_a_converted_model_has_the_same_values_twice(folder: Path) -> None:
    arch = architecture(folder)
    quantised, dense = load_quantised(folder, arch), load_weights(folder, arch, device=CPU, dtype=torch.float32)
    assert_same_values(quantised, dense)
    ids = torch.arange(3, 40)
    torch.testing.assert_close(all_logits(arch, quantised, ids), all_logits(arch, dense, ids), rtol=1e-4, atol=1e-4)


def test_the_embedded_model_has_the_same_values_twice_and_nearly_the_same_logprobs() -> None:
    """The gap is what importance weights would have to correct; 6e-6 on average and 3e-5 at most when measured."""
    files = resolve_model(load_config().config.model)
    arch = architecture(files.path)
    quantised, dense = load_quantised(files.path, arch), load_weights(files.path, arch, device=CPU, dtype=torch.float32)
    assert_same_values(quantised, dense)
    text = (
        "<|im_start|>user\nWhy is the sky blue? Explain it to a child.<|im_end|>\n<|im_start|>assistant\nSunlight is "
        "made of many colours, and the air scatters the blue ones most. So wherever you look up in the day, some of "
        "that scattered blue light finds its way to your eyes, and in the evening, when the light of 1 star has come "
        "a longer way through the air, the red that is left paints the clouds.<|im_end|>\n"
    )
    ids = torch.tensor(Tokenizer.from_file(str(files.tokenizer_path / "tokenizer.json")).encode(text).ids)
    ours, theirs = (torch.log_softmax(all_logits(arch, some, ids), dim=-1) for some in (quantised, dense))
    gap = (ours - theirs)[:-1].gather(1, ids[1:, None]).abs()
    assert len(gap) > 80
    assert gap.mean() < 3e-5
    assert gap.max() < 3e-4
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


def test_a_cpu_that_would_multiply_and_add_by_library_calls_is_refused() -> None:
    with pytest.raises(RuntimeError, match="fused"):
        require_fma({"sse2": True, "fma": False})
    require_fma({"avx2": True, "fma": True})
    require_fma({"neon": True})


def test_the_child_finds_the_kernel_in_order() -> None:
    assert why_not_quantised() is None


@pytest.mark.parametrize("bits", [4, 8])
def test_a_kernel_that_computes_something_else_is_found_out(kernel: TileKernel, bits: Any) -> None:
    class Broken(TileKernel):
        def __init__(self) -> None:
            pass

        def multiply(self, bits: Any, x: int, *rest: int, **options: int) -> None:
            kernel.multiply(bits, x, *rest, **options)
            out = ctypes.cast(rest[3], ctypes.POINTER(ctypes.c_float))
            out[100] += 0.01

    assert is_right(kernel, bits)
    assert not is_right(Broken(), bits)


def test_where_the_child_dies_the_model_runs_on_full_weights(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    arch = architecture(folder)
    with caplog.at_level(logging.WARNING):
        assert try_quantised(folder, arch, lambda: "the probe died of SIGILL") is None
    assert "died of SIGILL" in caplog.text
    got = try_quantised(folder, arch, lambda: None)
    assert got is not None
    assert isinstance(got.head, QuantisedLinear)


def test_a_model_without_blocks_runs_on_full_weights(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_gguf(tmp_path / "tiny.gguf", make_llama())
    convert(tmp_path / "tiny.gguf", tmp_path, lambda done, total: None)
    assert not (tmp_path / TILES_FILE).exists()

    def probe() -> str | None:
        raise AssertionError("there is nothing to try")

    with caplog.at_level(logging.INFO):
        assert try_quantised(tmp_path, architecture(tmp_path), probe) is None
    assert f"has no {TILES_FILE}" in caplog.text


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def lose(path: Path) -> None:
    save_file({name: tensor for name, tensor in load_file(path).items() if name != "layers.1.o.scales"}, path)


def stretch(path: Path) -> None:
    tensors = load_file(path)
    save_file(tensors | {"layers.0.down.quants": tensors["layers.0.qkv.quants"].clone()}, path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "cannot be read"),
        (lose, "lacks layers.1.o.scales"),
        (stretch, r"has layers.0.down.quants as torch.int32 \[8, 2, 4, 16\], not torch.int32 \[4, 3, 4, 16\]"),
    ],
)
def test_a_damaged_file_is_refused_by_name(
    folder: Path, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    for name in ("config.json", "model.safetensors", TILES_FILE):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    damage(tmp_path / TILES_FILE)
    with pytest.raises(ModelError, match=message):
        load_quantised(tmp_path, architecture(folder))
