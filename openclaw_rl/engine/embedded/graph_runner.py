"""A `NetworkRunner` on a GPU: steps in which every sequence takes one token are CUDA graphs (`graphs.py`).

Steps that also read a prompt run as one eager batch: they are long, so launching their kernels costs little.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from openclaw_rl.engine.embedded import sampling
from openclaw_rl.engine.embedded.graphs import BATCH_SIZES, GraphDecoder
from openclaw_rl.engine.embedded.runner import NetworkRunner, Piece
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.network import Network

NUM_SLOTS = 64
"""Adapters on the device at once. A slot costs memory only while it is taken."""


class GraphRunner(NetworkRunner):
    """Captures its graphs when it is made, for batches of up to `max_batch`."""

    def __init__(self, network: Network, *, max_batch: int) -> None:
        super().__init__(network)
        self._max_batch = min(max_batch, BATCH_SIZES[-1])
        self._decoder = GraphDecoder(network, max_batch=self._max_batch, max_rank=128, num_slots=NUM_SLOTS)
        for lora in (False, True):  # now: a first capture compiles for seconds, in which nobody would get a token
            self._decoder.prepare(lora=lora)
        self._slots: dict[AdapterWeights, int] = {}

    def attach(self, adapter: AdapterWeights) -> AdapterWeights:
        slot = self._decoder.load_adapter(adapter)
        attached = adapter.over(self._decoder.courier.send(adapter.flat))
        self._slots[attached] = slot
        return attached

    def detach(self, adapter: AdapterWeights) -> None:
        self._decoder.free_adapter(self._slots.pop(adapter))

    @torch.inference_mode()
    def decode(
        self, pieces: Sequence[Piece], rows: Sequence[sampling.Row], positions: Sequence[int]
    ) -> sampling.Draws | None:
        if len(pieces) > self._max_batch:
            return None
        strands, ids = [piece.strand for piece in pieces], [piece.token_ids[0] for piece in pieces]
        slots = [0 if piece.adapter is None else self._slots[piece.adapter] for piece in pieces]
        if any(row.is_penalised or row.is_truncated or row.sampling.top_logprobs for row in rows):
            draws = sampling.draw(self._decoder.decode(strands, ids, slots), rows, positions)
        else:
            points = [sampling.uniform(row.seed, position) for row, position in zip(rows, positions, strict=True)]
            temperatures = [row.sampling.temperature for row in rows]
            draws = sampling.Draws.of(*self._decoder.decode_and_draw(strands, ids, slots, temperatures, points))
        for piece in pieces:
            piece.strand.append(piece.token_ids, piece.version)
        return draws
