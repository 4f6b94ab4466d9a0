"""What two processes agree on: numbers in their order, sums of gradients, the length of one that lies in shards."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

TIMEOUT_S = 60.0


def member(rank: int, folder: Path) -> dict[str, Any]:
    """What rank `rank` of two sees; runs in a process of its own."""
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore, PrefixStore
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    from openclaw_rl.train.fsdp.ranks import Ranks

    torch.set_num_threads(1)
    store = FileStore(str(folder / "meet"), 2)
    dist.init_process_group("gloo", store=PrefixStore("group", store), rank=rank, world_size=2)
    ranks = Ranks(PrefixStore("orders", store))
    mesh = init_device_mesh("cpu", (2,))

    both, one = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    both.grad = torch.tensor([1.0, 10.0]) * (rank + 1)
    if rank == 0:
        one.grad = torch.tensor([5.0, 0.0])  # the other has nothing that moves it
    ranks.add_gradients([both, one])
    assert both.grad is not None
    assert one.grad is not None

    def cut(value: float) -> DTensor:
        return DTensor.from_local(torch.tensor([value]), mesh, [Shard(0)])

    sharded = torch.nn.Parameter(cut(0.0))
    sharded.grad = cut(3.0 if rank == 0 else 4.0)
    norm = ranks.clip([sharded], 1.0)
    assert isinstance(sharded.grad, DTensor)
    seen = {
        "level": list(ranks.level(["a", "b", "c"][: 3 - 2 * rank])),
        "gathered": ranks.gathered(["long enough", None] if rank else "ä"),
        "said": ranks.from_first("ä to all" if rank == 0 else None),
        "sums": [both.grad.tolist(), one.grad.tolist()],
        "norm": norm,
        "clipped": float(sharded.grad.to_local()[0]),
        "settled": [ranks.settle(None), ranks.settle("no luck" if rank else None), ranks.settle(None)],
    }
    dist.destroy_process_group()
    return seen


def test_two_processes_agree(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        asked = [processes.submit(member, rank, tmp_path) for rank in (0, 1)]
        first, second = (one.result(timeout=TIMEOUT_S) for one in asked)
    assert (first.pop("level"), second.pop("level")) == (["a", "b", "c"], ["a", None, None])
    assert (first.pop("clipped"), second.pop("clipped")) == (pytest.approx(0.6), pytest.approx(0.8))
    assert first == second
    assert first["gathered"] == ["ä", ["long enough", None]]
    assert first["said"] == "ä to all"
    assert first["sums"] == [[3.0, 30.0], [5.0, 0.0]]
    assert first["norm"] == pytest.approx(5.0)
    assert first["settled"] == [None, "rank 1: no luck", None]
