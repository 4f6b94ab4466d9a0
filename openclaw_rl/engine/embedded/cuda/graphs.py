"""Strands and their next tokens -> logits and drawn tokens: one decode step as one CUDA graph.

At a small batch a step is some 200 short kernels (`decode_step.py`), and launching them one by one costs more than
running them. Here they are captured once for each batch size and replayed. What differs from step to step (tokens,
positions, where the KV of each row lies, its adapter, its temperature) lies in a table that is copied to the device
before each replay, so strands may grow and move and adapters come and go without a new capture.

The simple ways of drawing a token (greedy, or a temperature and nothing else) happen inside the graph too, with the
token's log-prob; everything else takes the logits. Knows no requests, no scheduling and no prefill.

Axes: B rows, V vocabulary.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from openclaw_rl.engine.embedded.cuda.adapters import AdapterLayout, Courier
from openclaw_rl.engine.embedded.cuda.decode_step import DecodeStep, batch_sizes
from openclaw_rl.errors import ModelError
from openclaw_rl.model.adapter import AdapterWeights, Rest
from openclaw_rl.model.network import Network

_SCRATCH_TOKENS = 64


class GraphStrand(Protocol):
    """The KV of one row: [layers, 2, key/value heads, capacity, head dim], contiguous, `length` tokens of it used."""

    @property
    def kv(self) -> Tensor: ...

    @property
    def length(self) -> int: ...


def why_not(network: Network) -> str | None:
    """Why this network cannot be decoded by graphs, or None if it can."""
    arch = network.arch
    inner_sizes = (arch.hidden_size, arch.query_size, arch.mlp_size)
    if network.device.type != "cuda":
        return f"the weights are on {network.device}"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if arch.head_dim & (arch.head_dim - 1) or arch.head_dim < 16:
        return f"head_dim {arch.head_dim} is no power of two from 16 on"
    if any(size % 32 for size in inner_sizes):
        return f"{inner_sizes} are not all multiples of 32"
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Slot:
    """An adapter on the device."""

    flat: Tensor
    rank: int
    scale: float


class GraphDecoder:
    """Decodes up to `max_batch` strands at once, each with the adapter of its slot or none (slot 0).

    Runs on the caller's current stream. Not thread-safe, except that adapters may be loaded from another thread.
    """

    def __init__(
        self,
        network: Network,
        *,
        max_batch: int = 32,
        max_rank: int = 64,
        num_slots: int = 8,
    ) -> None:
        self._network = network
        self._max_rank = max_rank
        self._layout = AdapterLayout(network.arch)
        self._free = list(range(num_slots, 0, -1))
        self._slots: dict[int, _Slot] = {}
        self._sizes = batch_sizes(max_batch)
        self._step = DecodeStep(network, max_batch=max_batch, max_rank=max_rank, max_adapters=num_slots)
        self._is_cuda = network.device.type == "cuda"  # else Triton's interpreter: the same kernels without a graph
        self._table = _Table(self._step.inputs, self._step.drawn)
        self._graphs: dict[tuple[int, bool], torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle() if self._is_cuda else None
        arch = network.arch
        shape = (arch.num_layers, 2, arch.num_kv_heads, _SCRATCH_TOKENS, arch.head_dim)
        self._scratch = torch.zeros(shape, device=network.device, dtype=network.dtype)
        self._copies = torch.cuda.Stream(network.device) if self._is_cuda else None
        if self._is_cuda:
            self.courier = Courier(network.device)
        self._done = torch.cuda.Event() if self._is_cuda else None

    def load_adapter(self, adapter: AdapterWeights, rest: Rest = lambda: None) -> int:
        """Copies the adapter to the device beside the running steps; returns its slot when it is there."""
        if adapter.rank > self._max_rank:
            raise ModelError(f"the adapter has rank {adapter.rank}; this engine takes up to {self._max_rank}")
        try:
            slot = self._free.pop()
        except IndexError:
            raise ModelError(f"all {len(self._slots)} slots for adapters are taken; retire a version first") from None
        rank = -(-adapter.rank // 16) * 16
        try:
            # Put together where the adapter lies, a CPU as a rule: hundreds of small copies to the device would make
            # the steps that run meanwhile wait for the interpreter.
            flat = self._layout.packed(adapter, rank, device=adapter.flat.device, dtype=self._network.dtype, rest=rest)
            if flat.device.type != self._network.device.type:
                flat = self.courier.send(flat, rest)
        except BaseException:  # out of memory, above all: the slot stays free
            self._free.append(slot)
            raise
        self._slots[slot] = _Slot(flat, rank, adapter.scale)
        return slot

    def free_adapter(self, slot: int) -> None:
        """The slot may be given to another adapter; no step that is yet to come uses it."""
        with self._beside():  # so that its memory is not written again before the steps under way have read it
            del self._slots[slot]
        self._free.append(slot)

    def prepare(self, sizes: Sequence[int] = (), *, lora: bool = False) -> None:
        """Captures the graphs of these batch sizes (all by default), which the first step of a size would do else."""
        for size in sizes or self._sizes:
            self._graph(self._size_for(size), lora)

    @torch.no_grad()
    def decode(self, strands: Sequence[GraphStrand], token_ids: Sequence[int], slots: Sequence[int]) -> Tensor:
        """Reads one token into each strand; the logits [B, V] in float32, valid until the next call.

        Key and value are written at `strand.length`, where there must be room; the caller moves the strands on.
        """
        self._run(strands, token_ids, slots, [1.0] * len(strands), [0.0] * len(strands))
        return self._step.logits_BV[: len(strands)]

    @torch.no_grad()
    def decode_and_draw(
        self,
        strands: Sequence[GraphStrand],
        token_ids: Sequence[int],
        slots: Sequence[int],
        temperatures: Sequence[float],
        uniforms: Sequence[float],
    ) -> tuple[list[int], list[float]]:
        """Like `decode`, and draws: the tokens and their log-probs under softmax(logits / T), NaN if the logits are.

        Temperature 0 takes the likeliest token and gives its log-prob at temperature 1.
        """
        self._run(strands, token_ids, slots, temperatures, uniforms)
        self._wait()
        return self._table.read(len(strands))

    def _run(
        self,
        strands: Sequence[GraphStrand],
        token_ids: Sequence[int],
        slots: Sequence[int],
        temperatures: Sequence[float],
        uniforms: Sequence[float],
    ) -> None:
        size = self._size_for(len(strands))
        graph = self._graph(size, any(slots))
        self._wait()  # the copy of the step before may still be reading the table
        self._table.write(
            strands=[*strands, *[_Scratch(self._scratch)] * (size - len(strands))],
            token_ids=token_ids,
            temperatures=temperatures,
            uniforms=uniforms,
            slots=slots,
            adapters=self._slots,
        )
        graph()
        if self._done is not None:
            self._done.record()

    def _wait(self) -> None:
        """Until the last step is done."""
        if self._done is not None:
            self._done.synchronize()

    def _launch(self, size: int, lora: bool) -> None:
        """What a graph holds."""
        self._table.to_device()
        self._step.run(size, lora=lora)
        self._table.to_host()

    def _size_for(self, num_rows: int) -> int:
        assert 0 < num_rows <= self._sizes[-1], f"{num_rows} rows; the decoder takes 1 to {self._sizes[-1]}"
        return next(size for size in self._sizes if size >= num_rows)

    def _graph(self, size: int, lora: bool) -> Callable[[], None]:
        if self._pool is None:
            return lambda: self._launch(size, lora)
        if (size, lora) not in self._graphs:
            self._graphs[size, lora] = self._captured(size, lora)
        return self._graphs[size, lora].replay

    def _captured(self, size: int, lora: bool) -> torch.cuda.CUDAGraph:
        self._wait()
        self._table.write(
            strands=[_Scratch(self._scratch)] * size, token_ids=(), temperatures=(), uniforms=(), slots=(), adapters={}
        )
        current = torch.cuda.current_stream()
        # The default stream cannot be captured. Another one is kept: it may stand for a part of the GPU.
        stream = torch.cuda.Stream() if current == torch.cuda.default_stream() else current
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            self._launch(size, lora)  # compiles
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            self._launch(size, lora)
        current.wait_stream(stream)
        return graph

    @contextmanager
    def _beside(self) -> Iterator[None]:
        """On a stream of its own, behind what the current one has to do; done at the end."""
        if self._copies is None:
            yield
            return
        self._copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._copies):
            yield
        self._copies.synchronize()


@dataclass(frozen=True, slots=True)
class _Scratch:
    """The strand of the rows that are too many."""

    kv: Tensor
    length: int = 0


class _Table:
    """The host's side of the table that the kernels read and of what they drew: pinned, so that a graph can copy it."""

    def __init__(self, inputs: Tensor, drawn: Tensor) -> None:
        from openclaw_rl.engine.embedded.cuda import kernels

        self._fields = kernels
        self._inputs, self._drawn = inputs, drawn
        self._max_batch = inputs.shape[1]
        is_cuda = inputs.device.type == "cuda"
        self._host_inputs = torch.zeros(inputs.shape, dtype=inputs.dtype, pin_memory=is_cuda)
        self._host_drawn = torch.zeros(drawn.shape, dtype=drawn.dtype, pin_memory=is_cuda)
        # The same memory as Python sees it: setting items of a tensor costs 2 µs each.
        self._words = (ctypes.c_int64 * inputs.numel()).from_address(self._host_inputs.data_ptr())
        self._floats = (ctypes.c_double * inputs.numel()).from_address(self._host_inputs.data_ptr())
        self._results = (ctypes.c_double * drawn.numel()).from_address(self._host_drawn.data_ptr())

    def to_device(self) -> None:
        """Copies what was written; part of the graph."""
        self._inputs.copy_(self._host_inputs, non_blocking=True)

    def to_host(self) -> None:
        """Copies what was drawn; part of the graph."""
        self._host_drawn.copy_(self._drawn, non_blocking=True)

    def write(
        self,
        *,
        strands: Sequence[GraphStrand],
        token_ids: Sequence[int],
        temperatures: Sequence[float],
        uniforms: Sequence[float],
        slots: Sequence[int],
        adapters: Mapping[int, _Slot],
    ) -> None:
        """Rows behind the given tokens read token 0, greedily and without an adapter."""
        fields, num_rows = self._fields, len(strands)
        padding = num_rows - len(token_ids)
        self._put(self._words, fields.TOKEN, [*token_ids, *[0] * padding])
        self._put(self._words, fields.POSITION, [strand.length for strand in strands])
        self._put(self._words, fields.KV_ADDRESS, [strand.kv.data_ptr() for strand in strands])
        self._put(self._words, fields.KV_CAPACITY, [strand.kv.shape[3] for strand in strands])
        self._put(self._floats, fields.TEMPERATURE, [*temperatures, *[0.0] * padding])
        self._put(self._floats, fields.UNIFORM, [*uniforms, *[0.0] * padding])
        worn = [slot for slot in dict.fromkeys(slots) if slot]
        index = {slot: number for number, slot in enumerate(worn)}
        self._put(self._words, fields.ADAPTER, [*[index.get(slot, -1) for slot in slots], *[-1] * padding])
        held = [adapters[slot] for slot in worn]
        self._put(self._words, fields.ADAPTER_ADDRESS, [adapter.flat.data_ptr() for adapter in held])
        self._put(self._words, fields.ADAPTER_RANK_16, [adapter.rank // 16 for adapter in held])
        self._put(self._floats, fields.ADAPTER_SCALE, [adapter.scale for adapter in held])
        self._put(self._words, fields.NUM_ADAPTERS, [len(held)])

    def read(self, num_rows: int) -> tuple[list[int], list[float]]:
        """What was drawn, once the step is done."""
        token_ids = [int(token) for token in self._results[:num_rows]]
        return token_ids, self._results[self._max_batch : self._max_batch + num_rows]

    def _put(self, memory: Any, field: Any, values: Sequence[float]) -> None:
        start = field.value * self._max_batch
        memory[start : start + len(values)] = values
