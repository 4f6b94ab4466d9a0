"""Token sequences -> hidden rows of their responses, in one flat pass of the network, with gradient or without.

Every sequence is a prompt and the response whose tokens are asked about; only rows that predict a response token leave
the network. Knows no loss and no adapter file. This is the plain way: each sequence carries its whole prompt.

Axes: T tokens of all sequences, R rows of one response, N query heads, K key/value heads, D head dim, H hidden.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional

from openclaw_rl.model.network import Lora, Network
from openclaw_rl.train.passes.activations import ALL, Kept
from openclaw_rl.train.passes.sequences import Sequenced


class PackedAttention:
    """`network.Attend` over sequences that lie one behind the other: each sees itself alone, up to each token."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = list(lengths)

    def __call__(self, layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        parts = zip(*(x.split(self._lengths) for x in (q_TND, k_TKD, v_TKD)), strict=True)
        return torch.cat([_causal(*part) for part in parts])


class GrowingAttention:
    """`network.Attend` over sequences that grow: each sees what of it came before, and itself."""

    def __init__(self) -> None:
        self._past: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self._num_known: defaultdict[int, int] = defaultdict(int)
        self._lengths: dict[int, int] = {}

    def expect(self, lengths: Mapping[int, int]) -> Tensor:
        """The next pass brings so many tokens of each sequence: their positions."""
        self._lengths = dict(lengths)
        starts = {name: self._num_known[name] for name in lengths}
        for name, length in lengths.items():
            self._num_known[name] += length
        return torch.cat([torch.arange(starts[name], self._num_known[name]) for name in lengths])

    def __call__(self, layer: int, q_TND: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        parts = zip(*(x.split(list(self._lengths.values())) for x in (q_TND, k_TKD, v_TKD)), strict=True)
        return torch.cat([self._one(layer, name, *part) for name, part in zip(self._lengths, parts, strict=True)])

    def _one(self, layer: int, name: int, q_PND: Tensor, k_PKD: Tensor, v_PKD: Tensor) -> Tensor:
        past = self._past.get((layer, name))
        assert past is None or len(q_PND) == 1, "behind what it has read, a sequence grows token by token"
        if past is not None:
            k_PKD, v_PKD = torch.cat((past[0], k_PKD)), torch.cat((past[1], v_PKD))
        self._past[layer, name] = (k_PKD, v_PKD)
        return _causal(q_PND, k_PKD, v_PKD)


def _causal(q_PND: Tensor, k_PKD: Tensor, v_PKD: Tensor) -> Tensor:
    group = q_PND.shape[1] // k_PKD.shape[1]
    if group > 1 and not q_PND.is_cuda:
        # On a CPU grouped heads would take the way that makes a [P, P] matrix for every head.
        k_PKD, v_PKD = k_PKD.repeat_interleave(group, 1), v_PKD.repeat_interleave(group, 1)
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q_PND, k_PKD, v_PKD))
    out = functional.scaled_dot_product_attention(
        q, k, v, is_causal=len(q_PND) > 1, enable_gqa=k.shape[1] != q.shape[1]
    )
    return out.squeeze(0).transpose(0, 1).reshape(len(q_PND), -1)


def response_rows(
    network: Network, sequences: Sequence[Sequenced], lora: Lora | None, *, kept: Kept = ALL
) -> list[Tensor]:
    """For each sequence the hidden rows [R, H] that its response tokens are predicted from."""
    device, lengths = network.device, [len(sequence) for sequence in sequences]
    ids_T = torch.tensor(
        [token for one in sequences for token in (*one.prompt_ids, *one.response_ids[:-1])], device=device
    )
    positions_T = torch.cat([torch.arange(length, device=device) for length in lengths])
    hidden_TH = network.hidden(ids_T, positions_T, PackedAttention(lengths), lora, kept)
    ends = list(accumulate(lengths))
    return [hidden_TH[end - len(one.response_ids) : end] for end, one in zip(ends, sequences, strict=True)]
