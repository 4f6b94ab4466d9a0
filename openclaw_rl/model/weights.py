"""A folder of safetensors becomes the `Weights` of a network, without a copy where the device allows; and back.

On a CPU, in the precision of the file, every tensor is a view of the mapped file: nothing is read before it is used,
and processes share the pages. The parts of a fused projection become one view where they lie side by side in the file,
as the embedded model's conversion writes them; else they stay apart. On another device or in another precision they are
copied into one fused tensor, one projection after the other: the peak is the model and one tensor.
Opens safetensors and nothing else. Knows neither the network's maths nor quantised blocks.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from openclaw_rl.errors import ModelError
from openclaw_rl.model.architecture import MODULES, Architecture, Module
from openclaw_rl.model.folder import sync, sync_folder
from openclaw_rl.model.network import DenseLinear, LayerWeights, Linear, SplitLinear, Weights

_DTYPES: Mapping[str, torch.dtype] = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}

_IGNORED = (".rotary_emb.inv_freq",)
"""Old Llama checkpoints carry these buffers; they follow from the config."""

_COPIED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def load_weights(
    folder: Path, arch: Architecture, *, device: torch.device, dtype: torch.dtype, check_numbers: bool = False
) -> Weights:
    """The weights of the model in `folder`; a ModelError names the tensor that is missing or wrong.

    `check_numbers` reads all of them first, and refuses one that holds anything but finite numbers.
    """
    opened = WeightsOnDisk(folder, arch, device=device, dtype=dtype)
    if check_numbers:
        opened.check_numbers()
    layers = tuple(opened.layer(index) for index in range(arch.num_layers))
    return opened.around(layers)


class WeightsOnDisk:
    """The weights of the model in `folder`, piece by piece: for those who keep less than the whole in memory."""

    def __init__(self, folder: Path, arch: Architecture, *, device: torch.device, dtype: torch.dtype) -> None:
        """`ModelError` if a tensor is missing or wrong; none is read yet."""
        self._arch = arch
        self._tensors = _Tensors(folder, _shapes(arch), device=torch.device(device), dtype=dtype)

    def check_numbers(self) -> None:
        """Reads all of them; `ModelError` if one holds anything but finite numbers."""
        self._tensors.check_numbers(_shapes(self._arch))

    def layer(self, index: int) -> LayerWeights:
        return _layer(self._tensors, f"model.layers.{index}.", self._arch)

    def around(self, layers: Sequence[LayerWeights]) -> Weights:
        """What stands before and behind the layers, with these."""
        embedding = self._tensors.take("model.embed_tokens.weight")
        head = embedding if self._arch.tied_head else self._tensors.take("lm_head.weight")
        final_norm = self._tensors.take("model.norm.weight")
        return Weights(embedding=embedding, layers=layers, final_norm=final_norm, head=DenseLinear(head))


def _layer(tensors: _Tensors, prefix: str, arch: Architecture) -> LayerWeights:
    def fuse(module: Module) -> Linear:
        return tensors.fuse([f"{prefix}{name}.weight" for name in MODULES[module]])

    return LayerWeights(
        input_norm=tensors.take(f"{prefix}input_layernorm.weight"),
        qkv=fuse("qkv"),
        q_norm=tensors.take(f"{prefix}self_attn.q_norm.weight") if arch.qk_norm else None,
        k_norm=tensors.take(f"{prefix}self_attn.k_norm.weight") if arch.qk_norm else None,
        o=fuse("o"),
        post_norm=tensors.take(f"{prefix}post_attention_layernorm.weight"),
        gate_up=fuse("gate_up"),
        down=fuse("down"),
    )


def _shapes(arch: Architecture) -> dict[str, tuple[int, ...]]:
    """Every tensor that the checkpoint must have."""
    table = (arch.vocab_size, arch.hidden_size)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": table, "model.norm.weight": (arch.hidden_size,)}
    if not arch.tied_head:
        shapes["lm_head.weight"] = table
    for index in range(arch.num_layers):
        prefix = f"model.layers.{index}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{prefix}{norm}.weight"] = (arch.hidden_size,)
        if arch.qk_norm:
            for norm in ("q_norm", "k_norm"):
                shapes[f"{prefix}self_attn.{norm}.weight"] = (arch.head_dim,)
        for module in MODULES:
            for part in arch.projections(module):
                shapes[f"{prefix}{part.name}.weight"] = (part.out_features, part.in_features)
    return shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a tensor lies: bytes [start, end) of a mapped file."""

    file: Path
    mapped: Tensor
    start: int
    end: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    def view(self) -> Tensor:
        data = self.mapped[self.start : self.end]
        if data.data_ptr() % self.dtype.itemsize:  # the format aligns nothing; almost every writer does
            data = data.clone()
        return data.view(self.dtype).view(self.shape)

    def precedes(self, other: _Place) -> bool:
        return (self.mapped is other.mapped, self.end, self.dtype) == (True, other.start, other.dtype)


class _Tensors:
    """The tensors of a checkpoint, checked against the shapes that are wanted, on their way to a device."""

    def __init__(
        self, folder: Path, shapes: Mapping[str, tuple[int, ...]], *, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._device = device
        self._dtype = dtype
        self._places = {name: place for file in _shards(folder) for name, place in _map(file)}
        for name, shape in shapes.items():
            if (place := self._places.get(name)) is None:
                raise ModelError(
                    f"{folder} lacks the tensor {name}. The download or the save was cut short: fetch or save it again."
                )
            if place.shape != shape:
                raise ModelError(
                    f"{name} in {place.file} has the shape {list(place.shape)}, but config.json asks for "
                    f"{list(shape)}. Config and weights belong to different models: fetch or save both again."
                )
        # A bias, a packed weight or a further layer would be left out of the computation without a word.
        for name in sorted(self._places.keys() - {*shapes, "lm_head.weight"}):
            if not name.endswith(_IGNORED):
                raise ModelError(
                    f"{self._places[name].file} has the tensor {name}, which no part of this architecture uses. "
                    "Save the model unquantised and with the config it was trained with."
                )

    def check_numbers(self, names: Iterable[str]) -> None:
        for name in names:
            place = self._places[name]
            extremes = torch.stack(torch.aminmax(place.view()))  # both are NaN if any number is
            if not extremes.to(self._dtype).isfinite().all():
                raise ModelError(f"{name} in {place.file} holds numbers that are not finite. Publish earlier weights.")

    def take(self, name: str) -> Tensor:
        view = self._places[name].view()
        return view if self._stays(view) else view.to(device=self._device, dtype=self._dtype)

    def fuse(self, names: Sequence[str]) -> Linear:
        places = [self._places[name] for name in names]
        first, last = places[0], places[-1]
        if not self._stays(first.view()):
            return DenseLinear(self._copied(places))
        if all(place.precedes(following) for place, following in pairwise(places)):
            rows = sum(place.shape[0] for place in places)
            joined = replace(first, end=last.end, shape=(rows, first.shape[1]))
            return DenseLinear(joined.view())
        return SplitLinear([self.take(name) for name in names])

    def _copied(self, places: Sequence[_Place]) -> Tensor:
        fused = torch.empty(
            (sum(place.shape[0] for place in places), places[0].shape[1]), device=self._device, dtype=self._dtype
        )
        for target, place in zip(fused.split([place.shape[0] for place in places]), places, strict=True):
            target.copy_(place.view())
        return fused

    def _stays(self, view: Tensor) -> bool:
        return (self._device.type, self._dtype) == ("cpu", view.dtype)


def _shards(folder: Path) -> list[Path]:
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.exists():
        return [whole]
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        if outside := [name for name in names if Path(name).name != name]:
            raise ModelError(f"{index} names {outside[0]!r}, which is no file of this folder. Save the model again.")
        return [folder / name for name in names]
    except FileNotFoundError as error:
        raise ModelError(
            f"{folder} has neither model.safetensors nor model.safetensors.index.json. Save the model with "
            "save_pretrained(…), which writes safetensors."
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} cannot be read ({error!r}). Fetch or save it again.") from error


def _map(file: Path) -> Iterator[tuple[str, _Place]]:
    """Every tensor of one file. The package checks the header (offsets, overlaps, size); it does not tell offsets."""
    try:
        with safe_open(file, framework="pt"):
            pass
        with file.open("rb") as raw:
            length = int.from_bytes(raw.read(8), "little")
            header: dict[str, dict[str, list[int] | str]] = json.loads(raw.read(length))
        # Private: a write by mistake changes this process's copy of a page and never the file.
        mapped = torch.from_file(str(file), shared=False, size=file.stat().st_size, dtype=torch.uint8)
    except FileNotFoundError as error:
        raise ModelError(f"{file} is missing. Fetch or save the model again.") from error
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"{file} is no whole safetensors file ({error}). Fetch or save it again.") from error
    header.pop("__metadata__", None)
    for name, entry in header.items():
        start, end = (8 + length + int(offset) for offset in entry["data_offsets"])
        if (dtype := _DTYPES.get(str(entry["dtype"]))) is None:
            raise ModelError(
                f"{name} in {file} has the type {entry['dtype']}; read are {', '.join(_DTYPES)}. "
                "Save the model unquantised, in float32 or bfloat16."
            )
        shape = tuple(int(size) for size in entry["shape"])
        yield name, _Place(file=file, mapped=mapped, start=start, end=end, dtype=dtype, shape=shape)


def save_weights(weights: Weights, arch: Architecture, folder: Path, *, source: Path) -> None:
    """`source` is the model that it was trained from: its configuration and tokenizer go along."""
    folder.mkdir(parents=True)
    copy_description(source, folder)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in _named(weights, arch)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    sync_folder(folder)


def copy_description(source: Path, folder: Path) -> None:
    """A model's files beside its weights: what describes it, and its tokenizer."""
    for name in _COPIED:
        if (source / name).exists():
            shutil.copyfile(source / name, folder / name)


def save_part(tensors: Mapping[str, Tensor], folder: Path, *, number: int, num_parts: int) -> None:
    """Part `number`, counted from 0, of a model that is saved in several files; the folder is there, and is not synced:
    others write into it."""
    save_file(dict(tensors), path := folder / _part_name(number, num_parts), metadata={"format": "pt"})
    sync(path)


def save_index(folder: Path, arch: Architecture, parts: Sequence[Collection[str]], *, itemsize: int) -> None:
    """Says which tensor is in which of the parts; one part needs nobody who says so."""
    if len(parts) == 1:
        return
    where = {name: _part_name(number, len(parts)) for number, names in enumerate(parts) for name in names}
    total = sum(math.prod(shape) for shape in _shapes(arch).values()) * itemsize
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _part_name(number: int, num_parts: int) -> str:
    return "model.safetensors" if num_parts == 1 else f"model-{number + 1:05}-of-{num_parts:05}.safetensors"


def _named(weights: Weights, arch: Architecture) -> Iterator[tuple[str, Tensor]]:
    yield from named_ends(weights, arch)
    for index, layer in enumerate(weights.layers):
        yield from named_layer(index, layer, arch)


def named_ends(weights: Weights, arch: Architecture) -> Iterator[tuple[str, Tensor]]:
    """What stands before and behind the layers, by the checkpoint's names."""
    yield "model.embed_tokens.weight", weights.embedding
    yield "model.norm.weight", weights.final_norm
    if not arch.tied_head:
        yield "lm_head.weight", dense_matrix(weights.head)


def named_layer(index: int, layer: LayerWeights, arch: Architecture) -> Iterator[tuple[str, Tensor]]:
    """A layer's tensors by the checkpoint's names."""
    stem = f"model.layers.{index}."
    yield f"{stem}input_layernorm.weight", layer.input_norm
    yield f"{stem}post_attention_layernorm.weight", layer.post_norm
    if layer.q_norm is not None and layer.k_norm is not None:
        yield f"{stem}self_attn.q_norm.weight", layer.q_norm
        yield f"{stem}self_attn.k_norm.weight", layer.k_norm
    for module in MODULES:
        parts = arch.projections(module)
        split = torch.split(dense_matrix(getattr(layer, module)), [part.out_features for part in parts])
        for part, matrix in zip(parts, split, strict=True):
            yield f"{stem}{part.name}.weight", matrix.clone()


def dense_matrix(linear: Linear) -> Tensor:
    """The matrix [out, in] of a projection that is one."""
    if not isinstance(linear, DenseLinear):
        raise ModelError(f"{type(linear).__name__} cannot be saved; load the weights in float32")
    return linear.weight
