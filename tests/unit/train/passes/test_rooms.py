"""What is set is done, the rest follows from memory, and a shortage makes what comes after it smaller."""

from __future__ import annotations

from typing import Any

import torch

from openclaw_rl.train.passes.activations import Kept
from openclaw_rl.train.passes.rooms import READ_TOKENS, UNPLANNED_TOKENS, Rooms
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.train.worker.step import OutOfMemory, PassRoom
from tests.factories import orders
from tests.factories.networks import CPU, shape


def settings(**changes: Any) -> TrainSettings:
    return TrainSettings.from_training(orders.settings(**changes))


def rooms(*, shrink: int = 1, is_ours: bool = True) -> Rooms:
    return Rooms(shape("llama") if is_ours else None, device=CPU, dtype=torch.float32, shrink=shrink)


def room(of: Rooms, num_tokens: int = 100, **changes: Any) -> PassRoom:
    return of.room(num_tokens, settings=settings(**changes), num_learning=1000)


def test_memory_decides_what_nobody_set() -> None:
    found = room(rooms())
    assert found.kept == Kept(keep="all")
    assert found.max_tokens > 10_000
    assert room(rooms(), 1 << 60).kept == Kept(keep="nothing"), "what takes most tokens"
    assert room(rooms(), micro_batch_tokens=77).max_tokens == 77


def test_what_is_set_is_done() -> None:
    assert room(rooms(), use_gradient_checkpointing=True).kept == Kept(keep="nothing")
    assert room(rooms(), 1 << 60, use_gradient_checkpointing=False).kept == Kept(keep="all")
    assert not room(rooms(), offload_activations=True).kept.offload, "a CPU's activations are in the host's memory"


def test_another_architecture_gets_parts_of_a_fixed_size() -> None:
    assert room(rooms(is_ours=False)) == PassRoom(
        max_tokens=UNPLANNED_TOKENS, max_read_tokens=READ_TOKENS * UNPLANNED_TOKENS
    )
    assert room(rooms(is_ours=False), use_gradient_checkpointing=True).kept == Kept(keep="nothing")


def test_a_shortage_is_answered_by_recomputing_then_by_halves_then_by_no() -> None:
    of = rooms()
    first = room(of, micro_batch_tokens=1000)
    assert of.shrink(OutOfMemory(room=first, largest=100, total=600), settings())
    second = room(of, micro_batch_tokens=1000)
    assert (second.max_tokens, second.kept) == (1000, Kept(keep="nothing"))
    assert of.shrink(OutOfMemory(room=second, largest=100, total=600), settings())
    third = room(of, micro_batch_tokens=1000)
    assert third.max_tokens == 300, "half of what there was to compute"
    assert of.shrink(OutOfMemory(room=third, largest=200, total=600), settings())
    last = room(of, micro_batch_tokens=1000)
    assert last.max_tokens == 200, "no part is smaller than its largest sample"
    assert not of.shrink(OutOfMemory(room=last, largest=200, total=600), settings())


def test_who_forbids_recomputing_gets_smaller_parts_at_once() -> None:
    of = rooms()
    given = settings(use_gradient_checkpointing=False)
    assert of.shrink(OutOfMemory(room=PassRoom(max_tokens=1000), largest=100, total=600), given)
    found = room(of, use_gradient_checkpointing=False)
    assert (found.max_tokens, found.kept) == (300, Kept(keep="all"))


def test_who_cannot_recompute_gets_smaller_parts_at_once() -> None:
    of = Rooms(None, device=CPU, dtype=torch.float32, shrink=1, can_recompute=False)
    assert of.shrink(OutOfMemory(room=PassRoom(max_tokens=1000), largest=100, total=600), settings())
    assert (room(of).max_tokens, room(of).kept) == (300, Kept(keep="all"))


def test_what_learns_and_the_head_take_their_share() -> None:
    """Nothing is left for tokens where what learns takes all of the memory."""
    everything = rooms().room(100, settings=settings(), num_learning=1 << 50)
    assert everything.max_tokens == 1


def test_a_worker_that_was_killed_begins_with_smaller_parts() -> None:
    assert room(rooms(shrink=4), micro_batch_tokens=100).max_tokens == 25
    of = rooms(shrink=4)
    of.shrink(OutOfMemory(room=PassRoom(max_tokens=500, kept=Kept(keep="nothing")), largest=10, total=400), settings())
    assert room(of, use_gradient_checkpointing=True).max_tokens == 200
