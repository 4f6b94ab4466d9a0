"""Pieces of many sequences -> one forward pass -> the rows whose logits somebody wants.

All tokens of a step, those of answers and those of prompts, go through the linear layers as one flat batch, sorted so
that requests with the same adapter lie together; only attention looks at each sequence alone. Writes keys and values
into the strands and moves them forward. Knows no requests and no sampling.

Axes: T tokens of the batch, P tokens of one piece, H hidden, N query heads, K key/value heads, D head dimension,
C tokens in the cache, V vocabulary, R wanted rows, B sequences of L tokens.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional

from openclaw_rl.engine.embedded import sampling
from openclaw_rl.engine.embedded.cache import Strand, TensorStorage, new_tensor_storage
from openclaw_rl.engine.embedded.cpu.adapters import KernelAdapters
from openclaw_rl.model.adapter import AdapterWeights, LoraRows
from openclaw_rl.model.network import Lora, Network
from openclaw_rl.model.product import one_thread

_FEW_KEYS = 1024
"""A token of a CPU's batch that looks back no further does so faster with one thread."""

_LONGEST_REST_S = 0.01
"""So that prompt after prompt does not keep a new version away for ever."""


@dataclass(frozen=True, slots=True, eq=False)
class SequencePiece:
    """The next tokens of one sequence. The logits behind the last `num_wanted` of them are wanted."""

    strand: Strand[TensorStorage]
    token_ids: Sequence[int]
    version: str
    adapter: AdapterWeights | None
    num_wanted: int


class NetworkRunner:
    """Runs our own network (`model.network`) on a CPU or a GPU."""

    is_launch_bound = False
    max_adapters = 1 << 30  # no place of their own is set aside for them
    bytes_per_strand = 0

    def __init__(self, network: Network, adapters: KernelAdapters | None = None) -> None:
        arch = network.arch
        self._network = network
        self._adapters = adapters
        """What multiplies by adapters; None means torch."""
        self.vocab_size = arch.vocab_size
        self.context_window = arch.context_window
        self.num_layers = arch.num_layers
        self.device = network.device
        self.new_storage = new_tensor_storage(
            arch.num_layers, arch.num_kv_heads, arch.head_dim, dtype=network.dtype, device=network.device
        )
        self._between_passes = threading.Event()
        self._between_passes.set()
        self.bytes_per_token = 2 * arch.num_layers * arch.num_kv_heads * arch.head_dim * network.dtype.itemsize

    def rest(self) -> None:
        """Called by work beside the steps between its parts: waits while a pass on a GPU needs the interpreter.

        Such a pass is Python that launches kernels. Loading an adapter beside it took the interpreter from it so often
        that it lasted half as long again.
        """
        if self.is_launch_bound:
            self._between_passes.wait(_LONGEST_REST_S)

    def run(self, pieces: Sequence[SequencePiece]) -> list[Tensor]:
        """Feeds every piece to its strand, which has room for it; the wanted hidden rows [R, H] of each piece."""
        self._between_passes.clear()
        try:
            return self._pass(pieces)
        finally:
            self._between_passes.set()

    @torch.inference_mode()
    def _pass(self, pieces: Sequence[SequencePiece]) -> list[Tensor]:
        ordered = sorted(pieces, key=lambda piece: id(piece.adapter))
        device = self._network.device
        ids_T = torch.tensor([token for piece in ordered for token in piece.token_ids], device=device)
        starts = [piece.strand.length for piece in ordered]
        positions_T = torch.tensor(
            [start + i for start, piece in zip(starts, ordered, strict=True) for i in range(len(piece.token_ids))],
            device=device,
        )
        attend = StrandAttention(ordered)
        hidden_TH = self._network.hidden(ids_T, positions_T, attend, self._lora(ordered))
        wanted: dict[int, Tensor] = {}
        end = 0
        for piece in ordered:
            piece.strand.append(piece.token_ids, piece.version)
            end += len(piece.token_ids)
            wanted[id(piece)] = hidden_TH[end - piece.num_wanted : end]
        return [wanted[id(piece)] for piece in pieces]

    def _lora(self, ordered: Sequence[SequencePiece]) -> Lora | None:
        if not (groups := _groups(ordered)):
            return None
        return LoraRows(groups) if self._adapters is None else self._adapters.rows(groups)

    def decode(
        self, pieces: Sequence[SequencePiece], rows: Sequence[sampling.Row], positions: Sequence[int]
    ) -> sampling.Draws | None:
        """The next token of every piece, each of one token, at once; None if there is no shorter way than `run`."""
        return None

    def attach(self, adapter: AdapterWeights) -> AdapterWeights:
        """The adapter, loaded on a CPU, as pieces are to carry it; may be called beside a step."""
        return adapter if self.device.type == "cpu" else adapter.over(adapter.flat.to(self.device))

    def detach(self, adapter: AdapterWeights) -> None:
        """The adapter will not be used any more; called between two steps."""

    @torch.inference_mode()
    def read_whole(self, sequences: Sequence[Sequence[int]], adapter: AdapterWeights | None) -> list[Tensor]:
        """The hidden rows [P, H] behind all tokens of each sequence, in one pass that leaves nothing in the cache."""
        return self._side_by_side(sequences, adapter, None)

    @torch.inference_mode()
    def read_last(self, sequences: Sequence[Sequence[int]], layer: int) -> Tensor:
        """What the base holds behind `layer` blocks at the last token of each sequence, [B, H] in float32."""
        rows = self._side_by_side(sequences, None, layer)
        return torch.stack([hidden_PH[-1] for hidden_PH in rows]).float().cpu()

    def _side_by_side(
        self, sequences: Sequence[Sequence[int]], adapter: AdapterWeights | None, num_layers: int | None
    ) -> list[Tensor]:
        longest = max(map(len, sequences))
        device, shape = self._network.device, (len(sequences), longest)
        ids_BL = torch.tensor([[*ids, *[0] * (longest - len(ids))] for ids in sequences], device=device)
        positions_BL = torch.arange(longest, device=device).expand(shape)
        lora = None if adapter is None else LoraRows([(slice(0, ids_BL.numel()), adapter)])
        hidden_TH = self._network.hidden(
            ids_BL.flatten(), positions_BL.flatten(), partial(_attend_side_by_side, shape), lora, num_layers=num_layers
        )
        rows_BLH = hidden_TH.view(*shape, -1)
        return [rows_LH[: len(ids)] for rows_LH, ids in zip(rows_BLH, sequences, strict=True)]

    @torch.inference_mode()
    def logits(self, hidden_RH: Tensor) -> Tensor:
        """[R, V] in float32."""
        return self._network.logits(hidden_RH)


def _attend_side_by_side(shape: tuple[int, int], layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
    """`model.network.Attend` over B sequences of L tokens. What fills one up stands at its end: nobody sees it."""
    q, k, v = (x.view(*shape, *x.shape[1:]).transpose(1, 2) for x in (q_TND, k_TKD, v_TKD))
    out_BNLD = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out_BNLD.transpose(1, 2).reshape(len(q_TND), -1)


class StrandAttention:
    """`model.network.Attend` over the strands of a step: each token sees its own sequence up to itself."""

    def __init__(self, pieces: Sequence[SequencePiece]) -> None:
        self._spans: list[tuple[slice, Tensor, int, int, Tensor | None]] = []
        row = 0
        for piece in pieces:
            start, size = piece.strand.length, len(piece.token_ids)
            mask = None if size == 1 else _mask(start, size, piece.strand.kv)
            self._spans.append((slice(row, row + size), piece.strand.kv, start, start + size, mask))
            row += size
        self._is_small = all(
            end - start == 1 and end <= _FEW_KEYS and not kv.is_cuda for _, kv, start, end, _ in self._spans
        )

    def __call__(self, layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        with one_thread() if self._is_small else nullcontext():
            return self._all(layer, q_TND, k_TKD, v_TKD)

    def _all(self, layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        num_tokens, num_heads, head_dim = q_TND.shape
        if len(self._spans) == 1:
            return self._one(layer, self._spans[0], q_TND, k_TKD, v_TKD).reshape(num_tokens, num_heads * head_dim)
        out_TX = q_TND.new_empty(num_tokens, num_heads * head_dim)
        for span in self._spans:
            rows = span[0]
            out_TX[rows] = self._one(layer, span, q_TND[rows], k_TKD[rows], v_TKD[rows]).reshape(
                -1, num_heads * head_dim
            )
        return out_TX

    def _one(
        self,
        layer: int,
        span: tuple[slice, Tensor, int, int, Tensor | None],
        q_PND: Tensor,
        k_PKD: Tensor,
        v_PKD: Tensor,
    ) -> Tensor:
        """[P, N, D]"""
        _, kv, start, end, mask = span
        keys_KCD, values_KCD = kv[layer, 0], kv[layer, 1]
        keys_KCD[:, start:end] = k_PKD.transpose(0, 1)
        values_KCD[:, start:end] = v_PKD.transpose(0, 1)
        keys_KCD, values_KCD = keys_KCD[:, :end], values_KCD[:, :end]
        _, num_heads, head_dim = q_PND.shape
        if mask is None:
            # The queries of a group of heads see the same keys: as rows of one query no key is repeated.
            q_KGD = q_PND.view(keys_KCD.shape[0], -1, head_dim)
            out_KGD = functional.scaled_dot_product_attention(q_KGD[None], keys_KCD[None], values_KCD[None])
            return out_KGD.reshape(1, num_heads, head_dim)
        out_NPD = functional.scaled_dot_product_attention(
            q_PND.transpose(0, 1)[None],
            keys_KCD[None],
            values_KCD[None],
            attn_mask=mask,
            enable_gqa=True,
        )[0]
        return out_NPD.transpose(0, 1)


def _mask(start: int, size: int, kv: Tensor) -> Tensor:
    """What the tokens of a piece see: everything before it, and of it everything up to themselves."""
    if kv.is_cuda and kv.dtype != torch.float32:  # the kernel that needs no mask in memory knows no float32
        # Imported here, as it brings torch's compiler along: a second that a start on a CPU saves.
        from torch.nn.attention.bias import causal_lower_right

        bias: Tensor = causal_lower_right(size, start + size)
        return bias
    return torch.full((size, start + size), float("-inf"), device=kv.device).triu(start + 1)


def _groups(ordered: Sequence[SequencePiece]) -> list[tuple[slice, AdapterWeights]]:
    """The rows that wear each adapter."""
    groups: list[tuple[slice, AdapterWeights]] = []
    row = 0
    for _, same in groupby(ordered, key=lambda piece: id(piece.adapter)):
        together = list(same)
        size = sum(len(piece.token_ids) for piece in together)
        if (adapter := together[0].adapter) is not None:
            groups.append((slice(row, row + size), adapter))
        row += size
    return groups
