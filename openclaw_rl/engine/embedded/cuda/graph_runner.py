"""A `NetworkRunner` on a GPU: the next tokens of all answers are one CUDA graph (`graphs.py`).

Prompts are read eagerly. Launching the kernels for a short one takes longer than running them, three times a step of
eight answers; the scheduler therefore reads one prompt at a time between the steps of answers that are being written.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from openclaw_rl.engine.embedded import sampling
from openclaw_rl.engine.embedded.cuda.decode_step import BATCH_SIZES
from openclaw_rl.engine.embedded.cuda.graphs import GraphDecoder
from openclaw_rl.engine.embedded.runner import NetworkRunner, SequencePiece
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.network import Network

NUM_SLOTS = 64
"""Adapters on the device at once. A slot costs memory only while it is taken."""


class GraphRunner(NetworkRunner):
    """Captures its graphs when it is made, for batches of up to `max_batch`."""

    is_launch_bound = True
    max_adapters = NUM_SLOTS - 2  # one that goes and one that comes overlap

    def __init__(self, network: Network, *, max_batch: int) -> None:
        super().__init__(network)
        self._max_batch = min(max_batch, BATCH_SIZES[-1])
        self._decoder = GraphDecoder(network, max_batch=self._max_batch, max_rank=128, num_slots=NUM_SLOTS)
        for lora in (False, True):  # now: a first capture compiles for seconds, in which nobody would get a token
            self._decoder.prepare(lora=lora)
        self._slots: dict[AdapterWeights, int] = {}

    def attach(self, adapter: AdapterWeights) -> AdapterWeights:
        slot = self._decoder.load_adapter(adapter, self.rest)
        attached = adapter.over(self._decoder.courier.send(adapter.flat, self.rest), self.rest)
        self._slots[attached] = slot
        return attached

    def detach(self, adapter: AdapterWeights) -> None:
        self._decoder.free_adapter(self._slots.pop(adapter))

    @torch.inference_mode()
    def decode(
        self, pieces: Sequence[SequencePiece], rows: Sequence[sampling.Row], positions: Sequence[int]
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
