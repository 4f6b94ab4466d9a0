"""The embedded model's own 4- and 8-bit blocks -> the `Linear`s of a network: the fp32 weights' values in a sixth of
their bytes.

A CPU that decodes waits for weights: fp32 ones are 540 MB per token, these 97 MB. The kernel multiplies the blocks as
they are and adds in fp32, so that a log-prob differs from that of the fp32 weights, which the trainer uses, by rounding
alone (see `tests/unit/engine/embedded/test_quantised.py` for how much). Norms and the embedding's rows come from the
fp32 file, of which nothing else is touched. Used only where a child process has survived the kernel.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from openclaw_rl.engine.embedded.cpu.dtype_probe import why_not
from openclaw_rl.engine.embedded.cpu.tile_code import Bits
from openclaw_rl.engine.embedded.cpu.tile_kernel import TileKernel
from openclaw_rl.errors import ModelError
from openclaw_rl.model.architecture import MODULES, Architecture, Module
from openclaw_rl.model.network import Weights
from openclaw_rl.model.tiles import BLOCK, LANES, TILES_FILE
from openclaw_rl.model.weights import load_weights

_log = logging.getLogger(__name__)

_PROBE = (sys.executable, "-m", "openclaw_rl.engine.embedded.cpu.tile_kernel")


def why_not_quantised() -> str | None:
    """None if a child process ran the kernel and computed right, else what happened to it."""
    return why_not("quantised weights", _PROBE)


def try_quantised(
    folder: Path, arch: Architecture, probe: Callable[[], str | None] = why_not_quantised
) -> Weights | None:
    """The quantised weights of a model, or None where it has none or this CPU cannot run them; the log says why."""
    if not (folder / TILES_FILE).is_file():
        _log.info("%s has no %s, so the model runs on its full weights", folder, TILES_FILE)
        return None
    reason = probe()
    if reason is not None:
        _log.warning("quantised weights do not work on this machine, so the model runs in float32: %s", reason)
        return None
    return load_quantised(folder, arch)


def load_quantised(folder: Path, arch: Architecture) -> Weights:
    """Maps both files; a ModelError names the tensor that is missing or wrong."""
    dense = load_weights(folder, arch, device=torch.device("cpu"), dtype=torch.float32)
    tiles = _Tiles(folder / TILES_FILE)
    layers = []
    for index, layer in enumerate(dense.layers):
        linears: dict[str, Any] = {
            module: tiles.linear(f"layers.{index}.{module}", *_size(arch, module)) for module in MODULES
        }
        layers.append(replace(layer, **linears))
    head = tiles.linear("head", arch.vocab_size, arch.hidden_size)
    return replace(dense, layers=tuple(layers), head=head)


def _size(arch: Architecture, module: Module) -> tuple[int, int]:
    parts = arch.projections(module)
    return sum(part.out_features for part in parts), parts[0].in_features


class QuantisedLinear:
    """A matrix [out, in] in tiles (`model.tiles`). No gradient passes through."""

    __slots__ = ("_bits", "_kernel", "_minima", "_pointers", "_quants", "_scales", "_sizes", "_width", "out_features")

    def __init__(
        self, kernel: TileKernel, quants: Tensor, scales: Tensor, minima: Tensor | None, out_features: int
    ) -> None:
        self._kernel = kernel
        self._bits: Bits = 8 if minima is None else 4
        self._quants, self._scales, self._minima = quants, scales, minima
        self._pointers = (quants.data_ptr(), scales.data_ptr(), 0 if minima is None else minima.data_ptr())
        num_tiles, num_blocks = scales.shape[:2]
        self._sizes = (num_blocks, num_tiles)
        self._width = num_tiles * LANES
        self.out_features = out_features

    def __call__(self, x: Tensor) -> Tensor:
        # 120 of these make a token: nothing here that could be done once.
        assert x.dtype == torch.float32, f"the kernel adds in float32; the activations are {x.dtype}"
        assert not (x.requires_grad and torch.is_grad_enabled()), "quantised weights are for inference"
        x, num_rows = x.contiguous(), len(x)
        out = torch.empty(num_rows, self._width)
        if num_rows:
            threads = torch.get_num_threads()
            self._kernel.multiply(
                self._bits, x.data_ptr(), *self._pointers, out.data_ptr(), num_rows, *self._sizes, threads
            )
        return out if self._width == self.out_features else out[:, : self.out_features].contiguous()


class _Tiles:
    """The mapped file, and the kernel for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            file: Any = safe_open(path, framework="pt")
        except (OSError, SafetensorError) as error:
            raise self._wrong(f"cannot be read ({error})") from error
        self._file = file
        self._names: frozenset[str] = frozenset(file.keys())
        self._kernel = TileKernel()

    def linear(self, name: str, out_features: int, in_features: int) -> QuantisedLinear:
        num_tiles, num_blocks = -(-out_features // LANES), in_features // BLOCK
        has_minima = f"{name}.minima" in self._names
        quants = self._take(f"{name}.quants", torch.int32, (num_tiles, num_blocks, 4 if has_minima else 8, LANES))
        scales = self._take(f"{name}.scales", torch.float16, (num_tiles, num_blocks, LANES))
        minima = self._take(f"{name}.minima", torch.float16, (num_tiles, num_blocks, LANES)) if has_minima else None
        return QuantisedLinear(self._kernel, quants, scales, minima, out_features)

    def _take(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        if name not in self._names:
            raise self._wrong(f"lacks {name}")
        tensor: Tensor = self._file.get_tensor(name)
        if (tensor.dtype, tensor.shape) != (dtype, shape):
            raise self._wrong(f"has {name} as {tensor.dtype} {list(tensor.shape)}, not {dtype} {list(shape)}")
        return tensor

    def _wrong(self, what: str) -> ModelError:
        return ModelError(f"{self._path} {what}. Delete its folder, and the model is made anew.")
