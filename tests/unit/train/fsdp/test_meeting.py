"""Ranks meet in one store again and again, as torchrun's do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from torch._C._distributed_c10d import HashStore, Store

from openclaw_rl.train.fsdp.meeting import answer, call


def met(store: Store, size: int, said: str) -> Store:
    """Threads as ranks of a new start; the store of rank 0."""
    with ThreadPoolExecutor(size) as threads:
        others = [threads.submit(answer, store, rank) for rank in range(1, size)]
        group = call(store, size, {"said": said})
        for one in others:
            theirs, words = one.result(timeout=10)
            assert words == {"said": said}
            theirs.set("from another", said)
            assert group.get("from another") == said.encode()
    return group


def test_a_new_group_sees_nothing_of_the_last_one() -> None:
    store = HashStore()
    for said in ("first", "second"):
        group = met(store, 3, said)
        assert not group.check(["address"])
        group.set("address", "of a process that is soon gone")
    assert not met(store, 1, "third").check(["address"])


def test_who_comes_too_late_waits_for_the_next_meeting() -> None:
    store = HashStore()
    met(store, 2, "first")
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(answer, store, 1)
        with pytest.raises(TimeoutError):
            late.result(timeout=0.3)
        call(store, 2, {"said": "second"})
        assert late.result(timeout=10)[1] == {"said": "second"}
