"""`worker.crew.Crew` of the ranks of a process group: numbers go over gloo, gradients over the tensors' own backend.

An order ends when all ranks say how it went (`settle`). They say so through the group's key-value store and not through
a collective: a rank that failed alone is heard while the others still wait for it in the middle of a pass.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store
from torch.distributed.tensor import DTensor

from openclaw_rl.errors import TrainerLost
from openclaw_rl.train.fsdp.meeting import FOREVER

_Part = TypeVar("_Part")

_LAST_WORDS_S = 5.0
"""How long a rank that failed is listened for by others, and waits for them to fail as well."""


class Ranks:
    """All ranks of the default process group, as one of them sees them."""

    def __init__(self, store: Store) -> None:
        self.number = dist.get_rank()
        self.size = dist.get_world_size()
        self._store = store
        self._numbers = dist.new_group(backend="gloo", timeout=FOREVER)
        self._num_settled = 0

    def level(self, parts: Iterable[_Part]) -> Iterator[_Part | None]:
        mine = list(parts)
        for at in range(max(self.gathered(len(mine)))):
            yield mine[at] if at < len(mine) else None

    def gathered(self, value: Any) -> list[Any]:
        mine = _bytes(json.dumps(value))
        sizes = [torch.zeros(1, dtype=torch.long) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(mine)]), group=self._numbers)
        longest = max(int(size) for size in sizes)
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(mine)] = mine
        found = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(found, padded, group=self._numbers)
        return [json.loads(one[: int(size)].numpy().tobytes()) for one, size in zip(found, sizes, strict=True)]

    def from_first(self, text: str | None) -> str:
        """What rank 0 says to all; it alone gives a text."""
        mine = torch.empty(0, dtype=torch.uint8) if text is None else _bytes(text)
        size = torch.tensor([len(mine)])
        dist.broadcast(size, src=0, group=self._numbers)
        said = mine if text is not None else torch.zeros(int(size), dtype=torch.uint8)
        dist.broadcast(said, src=0, group=self._numbers)
        return said.numpy().tobytes().decode()

    def add_gradients(self, parameters: Sequence[Tensor]) -> None:
        for one in parameters:
            one.grad = torch.zeros_like(one) if one.grad is None else one.grad
            dist.all_reduce(one.grad)

    def clip(self, parameters: Sequence[Tensor], most: float) -> float:
        norm = torch.nn.utils.clip_grad_norm_(parameters, most)
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)

    def settle(self, failed: str | None) -> str | None:
        """How an order ended for all of them: None, or what one rank says went wrong.

        `TrainerLost` if a rank failed while others cannot follow: then every rank has to begin anew.
        """
        order, self._num_settled = self._num_settled, self._num_settled + 1
        self._store.set(f"{order}/{self.number}", json.dumps(failed))
        heard: dict[int, str | None] = {self.number: failed}
        began_at = time.monotonic()
        while len(heard) < self.size:
            for rank in set(range(self.size)) - heard.keys():
                if self._store.check([f"{order}/{rank}"]):
                    heard[rank] = json.loads(self._store.get(f"{order}/{rank}"))
            if failed is not None and len(heard) < self.size and time.monotonic() - began_at > _LAST_WORDS_S:
                silent = sorted(set(range(self.size)) - heard.keys())
                raise TrainerLost(f"{failed} (ranks {silent} are still at it)")
            time.sleep(0.005)
        self._store.delete_key(f"{order - 1}/{self.number}")
        return next((f"rank {rank}: {why}" for rank, why in sorted(heard.items()) if why is not None), None)


def _bytes(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
