"""A PEFT folder becomes a LoRA adapter in memory, added to the projections of the rows that wear it; and back.

An adapter replaces W by W + scale·B·A in the projections it targets. In memory it is one flat buffer (one copy moves it
to a device or into a slot) of which every matrix is a view, grouped for the network's fused projections. What PEFT can
write and this maths does not cover is refused by the name of its key. Knows no version, no checksum and no request.

Axes: T tokens, H hidden, R rank.
"""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from openclaw_rl.errors import ModelError
from openclaw_rl.model.architecture import MODULES, Architecture, Module, Projection
from openclaw_rl.model.folder import sync, sync_folder, unfinished
from openclaw_rl.model.product import one_thread
from openclaw_rl.types import Json

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"

TARGETS = tuple(name.rpartition(".")[2] for names in MODULES.values() for name in names)
"""The projections that an adapter may target, by PEFT's names: q_proj, k_proj, v_proj, o_proj, gate_proj, …"""

_ALIGNMENT = 32
"""Where matrices start in the buffer, in elements: 64 bytes in bfloat16, what the kernels of both devices like."""

_FEW_ROWS = 64
"""With so many, one thread of a CPU is as fast as two."""

_HARMLESS = frozenset(
    {"peft_type", "task_type", "base_model_name_or_path", "revision", "inference_mode", "auto_mapping", "peft_version"}
    | {"r", "lora_alpha", "use_rslora", "target_modules", "lora_dropout"}
    | {"megatron_core", "qalora_group_size"}  # set by default, read only with megatron_config and use_qalora
)
"""Keys of adapter_config.json that are read here or change nothing in a forward pass. Any other must be off."""

_PLAIN_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")
"""`init_lora_weights` of adapters that stand on the base weights as they are; others (PiSSA, LoftQ, …) change those."""

MAX_RANK, MAX_ALPHA = 4096, 1e6
"""Beyond these a file is wrong, and loading it would cost memory or make numbers that are none."""

Rest = Callable[[], object]
"""What work beside running steps calls between its parts; it returns when there is time for the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraPart:
    """One targeted projection within a fused one."""

    out: slice
    """Its columns of the fused output."""
    rank: slice
    """Its columns of x·Aᵀ."""
    b: Tensor
    """[out, R]; its transpose is what lies in memory, which is quicker to multiply by"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraParts:
    """What an adapter adds to one fused projection: y[:, part.out] += scale · (x·Aᵀ)[:, part.rank] · part.bᵀ."""

    a: Tensor
    """[sum of the parts' ranks, in]"""
    parts: tuple[LoraPart, ...]
    scale: float


class AdapterWeights:
    """One adapter in memory, all zero when made. `flat` holds everything; the rest are views of it."""

    def __init__(
        self,
        arch: Architecture,
        *,
        rank: int,
        alpha: float,
        targets: Collection[str] = TARGETS,
        rslora: bool = False,
        device: torch.device,
        dtype: torch.dtype,
        rest: Rest = lambda: None,
    ) -> None:
        if unknown := sorted(set(targets) - set(TARGETS)):
            raise ModelError(f"an adapter cannot target {unknown[0]!r}; it can: {', '.join(TARGETS)}")
        if not targets or rank < 1:
            raise ModelError(f"an adapter needs a rank above 0 and a target; got {rank} and {sorted(targets)}")
        if rank > MAX_RANK or not 0 < alpha < MAX_ALPHA:
            raise ModelError(f"an adapter has a rank of up to {MAX_RANK} and an alpha below {MAX_ALPHA:g}")
        self.arch = arch
        self.rank = rank
        self.alpha = alpha
        self.targets = tuple(name for name in TARGETS if name in targets)
        self.rslora = rslora
        self._targeted: dict[Module, list[Projection]] = {}
        for module in MODULES:
            if chosen := [part for part in arch.projections(module) if part.name.rpartition(".")[2] in self.targets]:
                self._targeted[module] = chosen
        num_numbers = sum(size for _, module in self._places() for size in self._sizes(module))
        self._place(torch.zeros(num_numbers, device=device, dtype=dtype), rest)

    @property
    def scale(self) -> float:
        """What B·A is multiplied by: alpha/r, or alpha/√r (https://arxiv.org/abs/2312.03732)."""
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)

    def over(self, flat: Tensor, rest: Rest = lambda: None) -> Self:
        """The same adapter in another buffer, on another device perhaps, that holds a copy of `self.flat`."""
        moved = copy.copy(self)
        moved._place(flat, rest)
        return moved

    def parts(self, layer: int, module: Module) -> LoraParts | None:
        return self._parts.get((layer, module))

    def parameters(self) -> list[Tensor]:
        """Every A and B. Once they require gradients, what `parts` gives is part of the graph."""
        return [tensor for parts in self._parts.values() for tensor in (parts.a, *(part.b for part in parts.parts))]

    @classmethod
    def random(
        cls,
        arch: Architecture,
        *,
        rank: int,
        alpha: float,
        targets: Collection[str] = TARGETS,
        rslora: bool = False,
        seed: int,
        b_std: float = 0.0,
        device: torch.device,
        dtype: torch.dtype,
    ) -> Self:
        """Where training starts, as in PEFT: A uniform within ±1/√in, B zero (or, with `b_std`, normal)."""
        made = cls(arch, rank=rank, alpha=alpha, targets=targets, rslora=rslora, device=device, dtype=dtype)
        generator = torch.Generator().manual_seed(seed)  # on the CPU: the same numbers for every device
        for parts in made._parts.values():
            bound = 1 / math.sqrt(parts.a.shape[1])
            parts.a.copy_(torch.empty(parts.a.shape).uniform_(-bound, bound, generator=generator))
            for part in parts.parts:
                part.b.copy_(torch.empty(part.b.shape).normal_(generator=generator) * b_std)
        return made

    @classmethod
    def load(
        cls, folder: Path, arch: Architecture, *, device: torch.device, dtype: torch.dtype, rest: Rest = lambda: None
    ) -> Self:
        """An adapter that PEFT, or `save`, wrote. Refuses what it cannot compute and what is not whole."""
        config = read_adapter_config(folder)
        path = folder / WEIGHTS_FILE
        try:
            with safe_open(path, framework="pt") as file:
                found = {name: file.get_slice(name).get_shape() for name in list(file.keys())}
                # Without memory: a config may ask for any rank, and what the file holds is compared first.
                outline = cls(
                    arch,
                    rank=config["r"],
                    alpha=config["lora_alpha"],
                    targets=_targets_of(found, config["target_modules"], folder),
                    rslora=bool(config.get("use_rslora")),
                    device=torch.device("meta"),
                    dtype=dtype,
                    rest=rest,
                )
                outline._check_shapes(found, path)
                made = outline.over(torch.zeros(outline.flat.shape, device=device, dtype=dtype), rest)
                for name, view in made._named():
                    tensor: Tensor = file.get_tensor(name)
                    if not tensor.is_floating_point():
                        raise ModelError(f"{name} in {path} is {tensor.dtype}, not floats. Save the adapter again.")
                    view.copy_(tensor)
                    rest()
        except FileNotFoundError as error:
            raise ModelError(f"{path} is missing. Save the adapter with safetensors.") from error
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path} is no whole safetensors file ({error}). Save the adapter again.") from error
        if not made.flat.isfinite().all():
            raise ModelError(f"{path} holds numbers that are not finite. Publish an earlier adapter.")
        return made

    def save(self, folder: Path, *, dropout: float = 0.0) -> None:
        """Write a folder that PEFT loads: whole or not at all. `dropout` is for those who go on training it in PEFT."""
        if folder.exists():
            raise ModelError(f"{folder} exists; an adapter that was written is never changed. Choose another name.")
        work = unfinished(folder)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            shape = (self.rank, self.alpha, self.rslora, list(self.targets))
            write_adapter_config(work, *shape, dropout)
            dense = torch.contiguous_format
            tensors = {name: view.detach().cpu().clone(memory_format=dense) for name, view in self._named()}
            save_file(tensors, work / WEIGHTS_FILE, metadata={"format": "pt"})
            sync_folder(work)
            work.rename(folder)
            sync(folder.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _places(self) -> list[tuple[int, Module]]:
        return [(layer, module) for layer in range(self.arch.num_layers) for module in self._targeted]

    def _place(self, flat: Tensor, rest: Rest) -> None:
        """All A and B become views of `flat`."""
        self.flat = flat
        pieces = iter(flat.split([size for _, module in self._places() for size in self._sizes(module)]))
        self._parts: dict[tuple[int, Module], LoraParts] = {}
        for place in self._places():
            rest()
            self._parts[place] = self._group(place[1], pieces)

    def _sizes(self, module: Module) -> list[int]:
        """Elements of A and of each B, rounded up to the alignment."""
        targeted = self._targeted[module]
        exact = [len(targeted) * self.rank * targeted[0].in_features]
        exact += [part.out_features * self.rank for part in targeted]
        return [size + -size % _ALIGNMENT for size in exact]

    def _group(self, module: Module, pieces: Iterator[Tensor]) -> LoraParts:
        targeted = self._targeted[module]
        shape = (len(targeted) * self.rank, targeted[0].in_features)
        a = next(pieces)[: math.prod(shape)].view(shape)
        parts: list[LoraPart] = []
        start = 0
        for projection in self.arch.projections(module):
            out = slice(start, start + projection.out_features)
            start = out.stop
            if projection in targeted:
                rank = slice(len(parts) * self.rank, (len(parts) + 1) * self.rank)
                b = next(pieces)[: projection.out_features * self.rank].view(self.rank, projection.out_features)
                parts.append(LoraPart(out=out, rank=rank, b=b.t()))
        return LoraParts(a=a, parts=tuple(parts), scale=self.scale)

    def _check_shapes(self, found: Mapping[str, list[int]], path: Path) -> None:
        """Whether a file has all matrices of this adapter and no others."""
        wanted = {name: list(view.shape) for name, view in self._named()}
        if odd := sorted(found.keys() ^ wanted.keys()):
            verb = "has the tensor" if odd[0] in found else "lacks the tensor"
            raise ModelError(
                f"{path} {verb} {odd[0]}: an adapter of a model with {self.arch.num_layers} layers targets "
                f"{', '.join(self.targets)} in each. Train or save it for this model."
            )
        for name, shape in wanted.items():
            if found[name] != shape:
                raise ModelError(
                    f"{name} in {path} has the shape {found[name]}; this model and rank {self.rank} ask for {shape}. "
                    "Train or save it for this model."
                )

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        """Every matrix by PEFT's name."""
        for (layer, module), parts in self._parts.items():
            for projection, part in zip(self._targeted[module], parts.parts, strict=True):
                stem = f"base_model.model.model.layers.{layer}.{projection.name}"
                yield f"{stem}.lora_A.weight", parts.a[part.rank]
                yield f"{stem}.lora_B.weight", part.b


class LoraRows:
    """The adapters of a flat batch: each group of rows has its own; rows of no group stay as they are.

    Writes into the projections' outputs. Autograd follows that: no gradient of a projection needs its output.
    """

    def __init__(self, groups: Sequence[tuple[slice, AdapterWeights]]) -> None:
        self._groups = tuple(groups)

    def add(self, layer: int, module: Module, x: Tensor, y: Tensor) -> Tensor:
        if x.is_cuda or len(x) > _FEW_ROWS:
            return self._add(layer, module, x, y)
        with one_thread():
            return self._add(layer, module, x, y)

    def _add(self, layer: int, module: Module, x: Tensor, y: Tensor) -> Tensor:
        everything = slice(0, len(x))
        for rows, adapter in self._groups:
            parts = adapter.parts(layer, module)
            if parts is None:
                continue
            # A slice takes a third of the time of these small products, so none is made that would be the whole.
            x_rows, y_rows = (x, y) if rows == everything else (x[rows], y[rows])
            reduced = functional.linear(x_rows, parts.a)
            if len(parts.parts) == 1 and parts.parts[0].out.stop - parts.parts[0].out.start == y.shape[1]:
                y_rows.addmm_(reduced, parts.parts[0].b.t(), alpha=parts.scale)
                continue
            for part in parts.parts:
                y_rows[:, part.out].addmm_(reduced[:, part.rank], part.b.t(), alpha=parts.scale)
        return y


def read_adapter_config(folder: Path) -> dict[str, Json]:
    path = folder / CONFIG_FILE
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({error}). An adapter is a folder that PEFT saved.") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} holds a {type(config).__name__}, not an object. Save the adapter again.")
    _check_config(config, path)
    return config


def write_adapter_config(
    folder: Path, rank: int, alpha: float, rslora: bool, targets: list[str] | str, dropout: float
) -> None:
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": alpha,
        "use_rslora": rslora,
        "target_modules": targets,
        "lora_dropout": dropout,
        "bias": "none",
        "fan_in_fan_out": False,  # the file is the same for both kinds of linear layers; peft finds out by itself
    }
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _check_config(config: Mapping[str, Json], path: Path) -> None:
    rank, alpha = config.get("r", 0), config.get("lora_alpha", 0)
    wanted: dict[str, tuple[bool, str]] = {
        "peft_type": (config.get("peft_type") == "LORA", '"LORA"'),
        "r": (type(rank) is int and rank > 0, "a whole number above 0"),
        "lora_alpha": (type(alpha) in (int, float) and 0 < alpha < math.inf, "a number above 0"),
        "bias": (config.get("bias") in (None, False, "none"), '"none"'),
        "init_lora_weights": (config.get("init_lora_weights") in _PLAIN_STARTS, "a start on the plain base weights"),
        "target_modules": (isinstance(config.get("target_modules"), list | str), "a list of names"),
    }
    for key, (right, meaning) in wanted.items():
        if not right:
            raise ModelError(
                f"{key} in {path} is {config.get(key)!r}, but must be {meaning}. Train the adapter with that, or merge "
                "it into the model and publish full weights."
            )
    for key in sorted(config.keys() - _HARMLESS - wanted.keys()):
        if config[key]:
            raise ModelError(
                f"{key} in {path} is {config[key]!r}, which changes the adapter's maths and is not supported. Train it "
                "without, or merge the adapter into the model and publish full weights."
            )


def _targets_of(names: Collection[str], given: list[str] | str, folder: Path) -> list[str]:
    """What the file's tensors target, which must agree with a list in the config.

    A string there is a pattern over module names, or "all-linear"; the tensors say what it meant.
    """
    found = sorted({name.rpartition(".lora_")[0].rpartition(".")[2] for name in names})
    listed = sorted({str(name).rpartition(".")[2] for name in given}) if isinstance(given, list) else found
    if found != listed:
        raise ModelError(
            f"{folder}: target_modules in {CONFIG_FILE} lists {', '.join(listed)}, but {WEIGHTS_FILE} is for "
            f"{', '.join(found)}. Save the adapter again."
        )
    return found
