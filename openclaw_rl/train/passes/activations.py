"""What of a layer is kept for the backward pass, where, and what is computed again there.

    all         everything that a gradient needs
    attention   the layer's input, q, k, v and what was attended to; the rest is computed again
    nothing     the layer's input; all of the layer is computed again

What is kept lies where it was computed or, offloaded, in the host's memory until the backward pass wants it. Gradients
are the same in all cases, to the bit where the kernels are deterministic. Knows no sizes: `memory.py` says what fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeVar

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from openclaw_rl.model.network import After, Attention, Before

Keep = Literal["all", "attention", "nothing"]

_Out = TypeVar("_Out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A `network.RunLayer`. Nothing in a layer may draw random numbers from torch's own state."""

    keep: Keep
    offload: bool = False

    def __call__(self, before: Before, attention: Attention, after: After, x_TH: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return after(x_TH, attention(*before(x_TH)))
        with offloaded(len(x_TH)) if self.offload else nullcontext():
            return self._run(before, attention, after, x_TH)

    def _run(self, before: Before, attention: Attention, after: After, x_TH: Tensor) -> Tensor:
        match self.keep:
            case "all":
                return after(x_TH, attention(*before(x_TH)))
            case "attention":
                q_TND, k_TKD, v_TKD = _recomputed(before, x_TH)
                # Plain kernels leave the values within their projection's output, which would be kept whole.
                return _recomputed(after, x_TH, attention(q_TND, k_TKD, v_TKD.contiguous()))
            case "nothing":
                return _recomputed(lambda x_TH: after(x_TH, attention(*before(x_TH))), x_TH)


ALL = Kept(keep="all")


def _recomputed(function: Callable[..., _Out], *args: Tensor) -> _Out:
    out: _Out = checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)
    return out


@contextmanager
def offloaded(num_tokens: int) -> Iterator[None]:
    """What autograd saves of so many tokens in here waits in the host's memory; a storage is copied once for all views.

    Weights stay: they have no axis of tokens. On a GPU the copies to the host run beside the computing.
    """
    hosts: dict[int, tuple[Tensor, _Host]] = {}  # the tensors too: while they live, no other storage has their address

    def pack(tensor: Tensor) -> Tensor | _View:
        if num_tokens not in tensor.shape:
            return tensor
        key = tensor.untyped_storage().data_ptr()
        if key not in hosts:
            hosts[key] = tensor, _Host(tensor)
        return _View(hosts[key][1], tensor)

    def unpack(packed: Tensor | _View) -> Tensor:
        return packed.tensor() if isinstance(packed, _View) else packed

    with saved_tensors_hooks(pack, unpack):
        yield
    hosts.clear()


class _Host:
    """One storage, in the host's memory until somebody asks for it."""

    def __init__(self, tensor: Tensor) -> None:
        self._device = tensor.device
        self._back: torch.UntypedStorage | None = None
        self._num_views = 0
        self._num_asked = 0
        self._copied: torch.cuda.Event | None = None
        source = torch.empty(0, dtype=torch.uint8, device=self._device).set_(tensor.untyped_storage())
        self._bytes = torch.empty(source.shape, dtype=torch.uint8, pin_memory=source.is_cuda)
        if not source.is_cuda:
            self._bytes.copy_(source)
            return
        beside = _stream(self._device)
        beside.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(beside):
            self._bytes.copy_(source, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record(beside)
        source.record_stream(beside)

    def count(self) -> None:
        """One more who will ask."""
        self._num_views += 1

    def storage(self) -> torch.UntypedStorage:
        """On the device again: one copy for all who ask, let go when the last has asked."""
        back = self._back
        if back is None:
            if self._copied is not None:
                torch.cuda.current_stream(self._device).wait_event(self._copied)
            moved = torch.empty_like(self._bytes, device=self._device)
            back = moved.copy_(self._bytes, non_blocking=True).untyped_storage()
        self._num_asked += 1
        self._back = None if self._num_asked % self._num_views == 0 else back
        return back


class _View:
    """A saved tensor: a part of a storage that is away."""

    def __init__(self, host: _Host, tensor: Tensor) -> None:
        host.count()
        self._host = host
        self._like = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        self._place = tensor.storage_offset(), tensor.shape, tensor.stride()

    def tensor(self) -> Tensor:
        return self._like.new_empty(0).set_(self._host.storage(), *self._place)


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """What copies to the host beside the computing."""
    return torch.cuda.Stream(device)
