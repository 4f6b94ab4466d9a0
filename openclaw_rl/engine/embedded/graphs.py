"""Strands and their next tokens -> logits and drawn tokens: one decode step as one CUDA graph.

At a small batch a step is some 200 short kernels, and launching them one by one costs more than running them. Here
they are captured once for each batch size and replayed. What differs from step to step (tokens, positions, where the
KV of each row lies, its adapter, its temperature) lies in a table that is copied to the device before each replay, so
strands may grow and move and adapters come and go without a new capture.

The simple ways of drawing a token (greedy, or a temperature and nothing else) happen inside the graph too, with the
token's log-prob; everything else takes the logits. Knows no requests, no scheduling and no prefill.

Axes: B rows, V vocabulary, R rank.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from openclaw_rl.engine.embedded.courier import Courier
from openclaw_rl.errors import ModelError
from openclaw_rl.model.adapter import AdapterWeights, Rest
from openclaw_rl.model.architecture import MODULES, Architecture, Module
from openclaw_rl.model.network import DenseLinear, Linear, Network

BATCH_SIZES = (1, 2, 4, 8, 16, 32)
"""A batch runs on the graph of the next larger size; the rows that are too many work on a strand nobody reads."""


class Block(NamedTuple):
    """How a product is cut: outputs per program, inputs per turn of its loop, turns whose loads are under way."""

    outputs: int
    inputs: int
    turns: int


# Chosen by measuring on an H200 with the shape of Qwen3-4B; right on any GPU.
_ONE_ROW: Mapping[str, Block] = {
    "qkv": Block(4, 512, 6),
    "o": Block(4, 1024, 3),
    "gate_up": Block(2, 512, 6),
    "down": Block(8, 512, 4),
    "head": Block(4, 512, 3),
}
_ONE_ROW_LORA: Mapping[str, Block] = {
    "qkv": Block(8, 512, 5),
    "o": Block(4, 1024, 3),
    "gate_up": Block(4, 512, 5),
    "down": Block(4, 512, 4),
}
_MANY_ROWS: Mapping[str, Block] = {
    "qkv": Block(32, 128, 4),
    "o": Block(16, 128, 5),
    "gate_up": Block(16, 256, 3),
    "down": Block(16, 128, 5),
    "head": Block(16, 256, 3),
}
_CACHE_BLOCK = 64
"""Cached tokens in a turn of attention."""
_VOCABULARY_TILE = 1024
_SCRATCH_TOKENS = 64


class Strand(Protocol):
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


class DecodeStep:
    """The kernels of one step over fixed buffers; launches them on the current stream, for a graph to record."""

    def __init__(self, network: Network, *, max_batch: int, max_rank: int, max_adapters: int) -> None:
        from openclaw_rl.engine.embedded import kernels

        self._kernels = kernels
        self._network = network
        self._max_batch = max_batch
        self._max_rank = _power_of_two(max(16, max_rank))  # a block of Triton's
        self._max_adapters = max_adapters
        self._layout = AdapterLayout(network.arch)
        arch, device = network.arch, network.device
        self._can_overlap = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)

        def buffer(*shape: int, dtype: torch.dtype = network.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.inputs = buffer(kernels.NUM_FIELDS, max_batch, dtype=torch.int64)
        self.logits_BV = buffer(max_batch, arch.vocab_size, dtype=torch.float32)
        self.drawn = buffer(2, max_batch, dtype=torch.float64)
        """Token ids, then log-probs."""
        self._x = buffer(max_batch, arch.hidden_size)
        self._scaled = buffer(max_batch, arch.hidden_size)  # x times the weight of the next norm
        self._squares = buffer(max_batch, arch.hidden_size, dtype=torch.float32)  # parts of the sum of x²
        self._qkv = buffer(max_batch, arch.query_size + 2 * arch.kv_size)
        self._attended = buffer(max_batch, arch.query_size)
        self._inner = buffer(max_batch, arch.mlp_size)
        most_splits = max(self._num_splits(rows) * rows for rows in batch_sizes(max_batch))
        self._partial = buffer(most_splits * arch.query_size, dtype=torch.float32)
        self._partial_lse = buffer(most_splits * arch.num_heads, dtype=torch.float32)
        self._num_tiles = -(-arch.vocab_size // _VOCABULARY_TILE)
        self._tile_max = buffer(max_batch, self._num_tiles, dtype=torch.float32)
        self._tile_best = buffer(max_batch, self._num_tiles, dtype=torch.int32)
        self._tile_mass = buffer(max_batch, self._num_tiles, dtype=torch.float64)
        # A·x of every projection; the bits of floats, because what is not yet written is told by its bits.
        self._shrunk = buffer(max_batch, arch.num_layers, len(MODULES), 3 * self._max_rank, dtype=torch.int32)

    @torch.no_grad()
    def run(self, num_rows: int, *, lora: bool) -> None:
        """From the table `inputs` to `logits_BV` and `drawn`, for the first `num_rows` rows."""
        self.compute(num_rows, lora=lora)
        self.draw(num_rows)

    def compute(self, num_rows: int, *, lora: bool) -> None:
        """Up to the logits."""
        weights = self._network.weights
        rope = self._network.rope(self.inputs[self._kernels.POSITION.value, :num_rows])
        if lora:
            self._shrunk[:num_rows].fill_(self._kernels.UNWRITTEN.value)
        self._embed(num_rows, weights.layers[0].input_norm)
        num_squares = 1
        next_norms = [*(layer.input_norm for layer in weights.layers[1:]), weights.final_norm]
        for index, (layer, next_norm) in enumerate(zip(weights.layers, next_norms, strict=True)):
            multiply = partial(self._multiply, num_rows, lora_layer=index if lora else None)
            multiply("qkv", layer.qkv, self._scaled, self._qkv, num_squares=num_squares)
            self._attend(num_rows, index, rope, layer.q_norm, layer.k_norm)
            num_squares = multiply("o", layer.o, self._attended, self._x, next_norm=layer.post_norm)
            multiply("gate_up", layer.gate_up, self._scaled, self._inner, num_squares=num_squares)
            num_squares = multiply("down", layer.down, self._inner, self._x, next_norm=next_norm)
        self._multiply(num_rows, "head", weights.head, self._scaled, self.logits_BV, num_squares=num_squares)

    def draw(self, num_rows: int) -> None:
        """One token of each row of `logits_BV`."""
        rows = {"MAX_BATCH": self._max_batch, "V": self._network.arch.vocab_size, "TILE": _VOCABULARY_TILE}
        tiles = (self._tile_max, self._tile_best, self._tile_mass)
        self._kernels.weigh[(num_rows, self._num_tiles)](
            self.logits_BV, self.inputs, *tiles, **rows, **self._overlap(num_rows)
        )
        self._kernels.draw[(num_rows,)](
            self.logits_BV,
            self.inputs,
            *tiles,
            self.drawn,
            **rows,
            NUM_TILES=self._num_tiles,
            BLOCK_T=_power_of_two(self._num_tiles),
            **self._overlap(num_rows),
        )

    def _attend(
        self, num_rows: int, index: int, rope: tuple[Tensor, Tensor], q_norm: Tensor | None, k_norm: Tensor | None
    ) -> None:
        arch, kernels = self._network.arch, self._kernels
        num_splits = self._num_splits(num_rows)
        shape = {"MAX_BATCH": self._max_batch, "NUM_HEADS": arch.num_heads, "D": arch.head_dim}
        split = {"NUM_SPLITS": num_splits, "BLOCK_C": _CACHE_BLOCK}
        kernels.attend[(num_rows * arch.num_kv_heads, num_splits)](
            self._qkv,
            self._x if q_norm is None else q_norm,
            self._x if k_norm is None else k_norm,
            *rope,
            self.inputs,
            self._partial,
            self._partial_lse,
            index,
            arch.rms_eps,
            **shape,
            NUM_KV_HEADS=arch.num_kv_heads,
            QK_NORM=q_norm is not None,
            BLOCK_G=max(16, _power_of_two(arch.num_heads // arch.num_kv_heads)),
            NUM_STAGES=3 if num_rows == 1 else 2,
            **split,
            num_warps=4,
        )
        kernels.combine[(num_rows * arch.num_heads,)](
            self._partial,
            self._partial_lse,
            self.inputs,
            self._attended,
            **shape,
            **split,
            **self._overlap(num_rows),
        )

    def _overlap(self, num_rows: int) -> dict[str, bool]:
        """Options of a launch that begins before the one before it ends.

        With one row that saves 10 % of a step. With more it costs 10 %: attention finds the multiprocessors unevenly
        taken. It is never begun early itself.
        """
        overlaps = self._can_overlap and num_rows == 1
        return {"DEPENDENT": True, "launch_pdl": True} if overlaps else {"DEPENDENT": False}

    def _embed(self, num_rows: int, norm: Tensor) -> None:
        hidden_size = self._network.arch.hidden_size
        self._kernels.embed[(num_rows,)](
            self._network.weights.embedding,
            norm,
            self.inputs,
            self._x,
            self._scaled,
            self._squares,
            MAX_BATCH=self._max_batch,
            MAX_SQUARES=self._squares.shape[1],
            H=hidden_size,
            BLOCK_H=_power_of_two(hidden_size),
            **self._overlap(num_rows),
        )

    def _multiply(
        self,
        num_rows: int,
        name: Module | Literal["head"],
        linear: Linear,
        x: Tensor,
        out: Tensor,
        *,
        num_squares: int = 0,
        next_norm: Tensor | None = None,
        lora_layer: int | None = None,
    ) -> int:
        """One product: `out` = `linear` of `x`, or `out` += that, ready for the norm `next_norm`.

        `num_squares` programs left parts of the sum of x², by which x is to be normed; 0 if it is not. Gives how many
        programs did that here.
        """
        arch = self._network.arch
        weight = _matrix(linear)
        num_outputs, num_inputs = weight.shape
        epilogue = {"o": "add", "down": "add", "gate_up": "swiglu"}.get(name, "store")
        num_outputs = num_outputs // 2 if epilogue == "swiglu" else num_outputs
        blocks = _MANY_ROWS if num_rows > 1 else _ONE_ROW if lora_layer is None else _ONE_ROW_LORA
        block_outputs, block_inputs, turns = blocks[name]
        if name == "qkv":  # a block lies in one part
            block_outputs = min(block_outputs, _divisor(math.gcd(arch.query_size, arch.kv_size)))
        num_blocks = -(-num_outputs // block_outputs)
        shrunk, adapter_offset, num_parts, max_rank, shrink_blocks, num_shrinking = self._shrunk, 0, 0, 0, 1, 0
        if lora_layer is not None and name != "head":
            shrunk = self._shrunk[0, lora_layer, list(MODULES).index(name)]
            adapter_offset = self._layout.offset(lora_layer, name)
            num_parts, max_rank = len(arch.projections(name)), self._max_rank
            shrink_rows = max_rank if epilogue == "swiglu" else num_parts * max_rank
            shrink_blocks = -(-shrink_rows // block_outputs)
            num_shrinking = shrink_blocks * min(num_rows, self._max_adapters)
        shared = {
            "MAX_BATCH": self._max_batch,
            "K": num_inputs,
            "N": num_outputs,
            "NUM_SQUARES": num_squares,
            "BLOCK_SQUARES": _power_of_two(max(1, num_squares)),
            "MAX_SQUARES": self._squares.shape[1],
            "EPILOGUE": epilogue,
            "MAX_RANK": max_rank,
            "NUM_PARTS": num_parts,
            "FIRST_END": arch.query_size,
            "SECOND_END": arch.query_size + arch.kv_size,
            "SHRUNK_STRIDE": self._shrunk.stride(0),
            "SHRINK_BLOCKS": shrink_blocks,
            "NUM_SHRINKING": num_shrinking,
            "BLOCK_N": block_outputs,
        }
        next_norm = self._x if next_norm is None else next_norm
        tensors = (x, self._squares, weight, out, next_norm, self._scaled, shrunk, self.inputs)
        grid = (num_shrinking + num_blocks,)
        if num_rows == 1:
            block_inputs = min(block_inputs, _divisor(num_inputs))
            self._kernels.vector_linear[grid](
                *tensors,
                adapter_offset,
                arch.rms_eps,
                **shared,
                BLOCK_K=block_inputs,
                NUM_STAGES=turns,
                num_warps=max(1, block_inputs // 256),
                **self._overlap(num_rows),
            )
        else:
            self._kernels.matrix_linear[grid](
                *tensors,
                num_rows,
                adapter_offset,
                arch.rms_eps,
                **shared,
                BLOCK_B=max(8, _power_of_two(num_rows)),
                BLOCK_K=min(block_inputs, _divisor(num_inputs) // 2),
                num_warps=2,
                num_stages=turns,
            )
        return num_blocks

    def _num_splits(self, num_rows: int) -> int:
        """A power of two, so that rows times heads times splits fill the GPU."""
        wanted = (256 if num_rows == 1 else 512) // (num_rows * self._network.arch.num_kv_heads)
        return 1 << max(2, min(6, wanted.bit_length() - 1))


class AdapterLayout:
    """An adapter of rank R as one flat buffer: for each layer and fused projection A [parts·R, in], then B [out, R]."""

    def __init__(self, arch: Architecture) -> None:
        self._num_layers = arch.num_layers
        self._shapes: dict[Module, tuple[int, int, int]] = {}
        self._begins: dict[Module, int] = {}
        self._starts: dict[Module, list[int]] = {}
        self._per_layer = 0
        for module in MODULES:
            parts = arch.projections(module)
            shape = (len(parts), parts[0].in_features, sum(part.out_features for part in parts))
            self._shapes[module], self._begins[module] = shape, self._per_layer
            self._starts[module] = [sum(part.out_features for part in parts[:i]) for i in range(len(parts))]
            self._per_layer += shape[0] * shape[1] + shape[2]

    def offset(self, layer: int, module: Module) -> int:
        """Where the projection's A begins, to be multiplied by the rank."""
        return layer * self._per_layer + self._begins[module]

    def packed(
        self, adapter: AdapterWeights, rank: int, *, device: torch.device, dtype: torch.dtype, rest: Rest
    ) -> Tensor:
        """The buffer for `rank`, which is the adapter's or more; what it does not train is zero."""
        flat = torch.zeros(self._num_layers * self._per_layer * rank, device=device, dtype=dtype)
        for layer in range(self._num_layers):
            for module, (num_parts, num_inputs, num_outputs) in self._shapes.items():
                if (parts := adapter.parts(layer, module)) is None:
                    continue
                begin = self.offset(layer, module) * rank
                middle = begin + num_parts * num_inputs * rank
                a = flat[begin:middle].view(num_parts, rank, num_inputs)
                b = flat[middle : middle + num_outputs * rank].view(num_outputs, rank)
                rest()
                for part in parts.parts:
                    a[self._starts[module].index(part.out.start), : adapter.rank] = parts.a[part.rank]
                    b[part.out, : adapter.rank] = part.b
        return flat


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
    def decode(self, strands: Sequence[Strand], token_ids: Sequence[int], slots: Sequence[int]) -> Tensor:
        """Reads one token into each strand; the logits [B, V] in float32, valid until the next call.

        Key and value are written at `strand.length`, where there must be room; the caller moves the strands on.
        """
        self._run(strands, token_ids, slots, [1.0] * len(strands), [0.0] * len(strands))
        return self._step.logits_BV[: len(strands)]

    @torch.no_grad()
    def decode_and_draw(
        self,
        strands: Sequence[Strand],
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
        strands: Sequence[Strand],
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
        from openclaw_rl.engine.embedded import kernels

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
        strands: Sequence[Strand],
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


def batch_sizes(max_batch: int) -> tuple[int, ...]:
    """The sizes that graphs are captured for."""
    return (*[size for size in BATCH_SIZES if size < max_batch], max_batch)


def _matrix(linear: Linear) -> Tensor:
    if not isinstance(linear, DenseLinear) or not linear.weight.is_contiguous():
        raise ModelError("graphs decode dense weights only; load them onto the device with load_weights")
    return linear.weight


def _power_of_two(size: int) -> int:
    """The smallest that is not smaller."""
    return 1 << (size - 1).bit_length()


def _divisor(size: int) -> int:
    """The largest power of two that divides it."""
    return size & -size
