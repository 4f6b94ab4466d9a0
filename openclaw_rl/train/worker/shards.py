"""Tensors of a trainer's state on disk: whole in one file, or in shards by rows that several processes wrote.

    NAME.safetensors                      one process
    NAME-00001-of-00002.safetensors       rows of each tensor; the header says from which row on, and how many there are

Whoever loads asks for rows, whichever way they were cut: so a line goes on with another number of processes. In memory
a tensor that is sharded over processes is a DTensor, by rows. No pickle.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from openclaw_rl.errors import TrainError
from openclaw_rl.train.worker.crew import Crew


@dataclass(frozen=True, slots=True, kw_only=True)
class SomeRows:
    """Rows [first, first + len(tensor)) of `total`."""

    tensor: Tensor
    first: int
    total: int


def rows_of(tensor: Tensor) -> Tensor | SomeRows:
    """What this process has of a tensor."""
    if (sharded := _sharded(tensor)) is None:
        return tensor.detach()
    total = tensor.shape[0]
    return SomeRows(tensor=sharded.to_local().detach(), first=_my_first_row(sharded), total=total)


def save_shard(folder: Path, name: str, tensors: Mapping[str, Tensor | SomeRows], crew: Crew) -> None:
    """This process's file of them. What every process has whole is in each file."""
    path = folder / (f"{name}.safetensors" if crew.size == 1 else _shard_name(name, crew.number, crew.size))
    places = {key: [one.first, one.total] for key, one in tensors.items() if isinstance(one, SomeRows)}
    plain = {key: (one.tensor if isinstance(one, SomeRows) else one).cpu().contiguous() for key, one in tensors.items()}
    save_file(plain, path, metadata={"rows": json.dumps(places)} if places else None)


def has_shards(folder: Path, name: str) -> bool:
    """Whether something was saved under that name."""
    return bool(_files(folder, name))


class Saved:
    """What was saved under a name, opened. Tensors are copies: a file's lie at odd addresses, and there a product may
    round otherwise than where torch puts its own, so that a line that was resumed would not be the same to the bit."""

    def __init__(self, folder: Path, name: str) -> None:
        self._stack = ExitStack()
        self._path = folder / f"{name}.safetensors"
        self._places: dict[str, list[tuple[int, int, Any]]] = {}
        self._wholes: dict[str, Any] = {}
        try:
            for path in _files(folder, name) or [self._path]:
                file = self._stack.enter_context(safe_open(path, framework="pt"))
                rows = json.loads((file.metadata() or {}).get("rows", "{}"))
                for key in file.keys():  # noqa: SIM118 (not a dict)
                    if key in rows:
                        self._places.setdefault(key, []).append((*rows[key], file))
                    else:
                        self._wholes[key] = file
        except (OSError, SafetensorError, ValueError) as error:
            self._stack.close()
            raise TrainError(f"{self._path} cannot be read ({error}); roll back to an earlier version") from error

    def __enter__(self) -> Saved:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def names(self) -> Iterator[str]:
        yield from self._wholes
        yield from self._places

    def take(self, name: str, like: Tensor | None = None) -> Tensor:
        """A tensor, whole, or cut as `like` is where this is a DTensor."""
        if like is None or (sharded := _sharded(like)) is None:
            return self._rows(name, 0, None)
        mine, first = sharded.to_local(), _my_first_row(sharded)
        local = self._rows(name, first, first + len(mine)).to(like.device) if len(mine) else torch.empty_like(mine)
        cut: Tensor = type(sharded).from_local(
            local, sharded.device_mesh, sharded.placements, run_check=False, shape=like.shape, stride=like.stride()
        )
        return cut

    def _rows(self, name: str, first: int, end: int | None) -> Tensor:
        try:
            if (file := self._wholes.get(name)) is not None:
                found: Tensor = file.get_tensor(name) if end is None else file.get_slice(name)[first:end]
                return found.clone()
            places = sorted(self._places[name], key=lambda place: place[0])
            end = places[0][1] if end is None else end
            pieces: list[Tensor] = []
            for start, _, file in places:
                piece = file.get_slice(name)
                low, high = max(first, start), min(end, start + piece.get_shape()[0])
                if low < high:
                    pieces.append(piece[low - start : high - start])
        except (KeyError, SafetensorError) as error:
            raise TrainError(f"{self._path} lacks {name} ({error}); roll back to an earlier version") from error
        if (num_found := sum(map(len, pieces))) != end - first:
            raise TrainError(
                f"{self._path} has {num_found} rows of {name}, not {end - first}: a shard is missing; roll back to an "
                "earlier version"
            )
        return torch.cat(pieces)


def _sharded(tensor: Tensor) -> Any:
    """The tensor as a DTensor; None if it is none. By what it can, as importing that class takes half a second."""
    return tensor if hasattr(tensor, "to_local") else None


def _my_first_row(sharded: Any) -> int:
    """Where this process's rows begin: as `torch.chunk` cuts, which FSDP follows."""
    total, mesh = sharded.shape[0], sharded.device_mesh
    return int(min(total, mesh.get_local_rank() * -(-total // mesh.size())))


def _shard_name(name: str, number: int, size: int) -> str:
    return f"{name}-{number + 1:05}-of-{size:05}.safetensors"


def _files(folder: Path, name: str) -> list[Path]:
    whole = folder / f"{name}.safetensors"
    return [whole] if whole.exists() else sorted(folder.glob(f"{name}-*-of-*.safetensors"))
