"""What so many processes saved, another number of them reads: each its rows. Ranks one after the other, in this
process, over torch's group that talks to nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from openclaw_rl.errors import TrainError
from openclaw_rl.train.worker.crew import ALONE, Crew
from openclaw_rl.train.worker.shards import Saved, has_shards, rows_of, save_shard

WHOLE = torch.arange(10.0).reshape(5, 2)
STEP = torch.tensor(3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    number: int
    size: int


@contextmanager
def rows_of_rank(number: int, size: int) -> Iterator[Tensor]:
    """`WHOLE` as FSDP shards it, seen by one rank."""
    dist.init_process_group("fake", store=FakeStore(), rank=number, world_size=size)
    try:
        mesh = init_device_mesh("cpu", (size,))
        cut = WHOLE.chunk(size)
        mine = cut[number] if number < len(cut) else WHOLE[:0]
        yield DTensor.from_local(mine, mesh, [Shard(0)], run_check=False, shape=WHOLE.shape, stride=WHOLE.stride())
    finally:
        dist.destroy_process_group()


def save(folder: Path, size: int) -> None:
    for number in range(size):
        with rows_of_rank(number, size) as sharded:
            crew = cast(Crew, Member(number=number, size=size))
            save_shard(folder, "state", {"rows": rows_of(sharded), "step": rows_of(STEP)}, crew)


@pytest.mark.parametrize("writers", [1, 2, 4])
@pytest.mark.parametrize("readers", [2, 3, 4])
def test_each_reads_its_rows_however_they_were_cut(tmp_path: Path, writers: int, readers: int) -> None:
    if writers == 1:
        save_shard(tmp_path, "state", {"rows": WHOLE, "step": STEP}, ALONE)
    else:
        save(tmp_path, writers)
    with Saved(tmp_path, "state") as saved:
        assert sorted(saved.names()) == ["rows", "step"]
        assert torch.equal(saved.take("rows"), WHOLE)
        assert torch.equal(saved.take("step"), STEP)
        for number in range(readers):
            with rows_of_rank(number, readers) as like:
                found = saved.take("rows", like)
                assert isinstance(found, DTensor)
                assert isinstance(like, DTensor)
                assert torch.equal(found.to_local(), like.to_local())
                assert found.shape == WHOLE.shape


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_shard_that_is_missing_is_said(tmp_path: Path, lost: int) -> None:
    save(tmp_path, 3)
    assert has_shards(tmp_path, "state")
    (tmp_path / f"state-{lost:05}-of-00003.safetensors").unlink()
    with Saved(tmp_path, "state") as saved, pytest.raises(TrainError, match=r"rows, not .*: a shard is missing"):
        saved.take("rows")
