"""What a step asks of a model: sequences in, one reading of each response out. The seam between steps and networks.

A reader is a model at certain weights; `student.py` has those that learn. Here are those with our own network:

    NetworkReader     folds sequences into a tree and computes no token twice
    RecallingReader   the same for weights that never move: it also remembers what it read
    PlainReader       reads each sequence whole, as the published recipe does
    NetworkFollower   reads on token by token, for answers that are being written

`fallback.py` has the one for architectures of others. Knows no loss and no file.

Axes: T tokens of the batch, R rows of one response, H hidden.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from openclaw_rl.model.network import Attend, DenseLinear, Lora, Network
from openclaw_rl.train.head.rows import FusedRows, HeadWeights
from openclaw_rl.train.objective.rows import DenseRows, Rows
from openclaw_rl.train.passes.activations import ALL, Kept
from openclaw_rl.train.passes.memory import free_bytes
from openclaw_rl.train.passes.plain import GrowingAttention, response_rows
from openclaw_rl.train.passes.sequences import Counter, Each, Sequenced
from openclaw_rl.train.tree.attention import TreeAttention
from openclaw_rl.train.tree.fold import Fold, Tree
from openclaw_rl.train.tree.past import MIN_TOKENS, Past, Recalling, cut

PAST_SHARE = 1 / 16
"""Of the free memory, for what is remembered."""


@dataclass(frozen=True, slots=True, eq=False)
class ResponseReading:
    """A response as a model read it. Row i is what token i of the response was predicted from."""

    hidden: Tensor
    """[R, H], what goes into the model's head."""
    rows: Callable[[float], Rows]
    """What the head makes of them at a temperature."""


class Reader(Protocol):
    """A model at certain weights, on one device."""

    @property
    def device(self) -> torch.device: ...

    @property
    def hidden_size(self) -> int: ...

    @property
    def num_computed(self) -> int:
        """Tokens that went through it so far."""
        ...

    @property
    def plain(self) -> Reader:
        """The same weights, every sequence read whole and with all its logits."""
        ...

    def counter(self) -> Counter:
        """Counts the tokens that it computes to read sequences together."""
        ...

    def read(
        self, sequences: Sequence[Sequenced], *, kept: Kept = ALL, dropout_seed: int | None = None
    ) -> list[ResponseReading]:
        """One reading for each sequence, with gradient where there is one.

        `kept` says which activations wait for the backward pass; the others are computed again there. With a seed,
        dropout is on where the weights have one, and the same seed drops the same numbers.
        """
        ...

    def follower(self) -> Follower:
        """One that has read nothing yet."""
        ...


class Follower(Protocol):
    """Reads on where it stopped: for those who write an answer token by token."""

    def read(self, more: Mapping[int, Sequence[int]]) -> list[Rows]:
        """For each sequence by its number, with more tokens at its end, what follows the last one, at T = 1; R is 1."""
        ...


class LoraFor(Protocol):
    """The adapter for a pass over so many tokens; with a seed, behind dropout."""

    def __call__(self, num_tokens: int, *, dropout_seed: int | None = None) -> Lora | None: ...


def no_adapter(num_tokens: int, *, dropout_seed: int | None = None) -> None:
    """The network as it is."""


class _OnNetwork:
    def __init__(self, network: Network, lora: LoraFor = no_adapter) -> None:
        self._network = network
        self._lora = lora
        self.device = network.device
        self.hidden_size = network.arch.hidden_size
        self.num_computed = 0

    def follower(self) -> Follower:
        return NetworkFollower(self._network, self._lora)


class NetworkReader(_OnNetwork):
    """Our own network, wearing at most one adapter. What sequences have in common is computed once."""

    @property
    def plain(self) -> Reader:
        return PlainReader(self._network, self._lora)

    def counter(self) -> Counter:
        return Fold()

    def read(
        self, sequences: Sequence[Sequenced], *, kept: Kept = ALL, dropout_seed: int | None = None
    ) -> list[ResponseReading]:
        tree = Fold(sequences).tree()
        attend = self._attention(tree)
        return self._readings(tree, attend, kept=kept, dropout_seed=dropout_seed)

    def _attention(self, tree: Tree) -> TreeAttention:
        network = self._network
        return TreeAttention(tree.paths, device=self.device, dtype=network.dtype, head_dim=network.arch.head_dim)

    def _readings(self, tree: Tree, attend: Attend, *, kept: Kept, dropout_seed: int | None) -> list[ResponseReading]:
        self.num_computed += len(tree)
        hidden_TH = self._network.hidden(
            torch.from_numpy(tree.ids).to(self.device),
            torch.from_numpy(tree.positions).to(self.device),
            attend,
            self._lora(len(tree), dropout_seed=dropout_seed),
            kept,
        )
        asked = torch.from_numpy(np.concatenate(tree.rows)).to(self.device)
        parts = hidden_TH.index_select(0, asked).split([len(rows) for rows in tree.rows])
        return [ResponseReading(rows_RH, partial(self._rows, rows_RH)) for rows_RH in parts]

    def _rows(self, rows_RH: Tensor, temperature: float) -> Rows:
        head = self._network.weights.head
        assert isinstance(head, DenseLinear)
        return FusedRows(rows_RH, HeadWeights(weight=head.weight), temperature)


class RecallingReader(NetworkReader):
    """A network that never moves. It remembers the longest beginning of its last read: the next turn begins with it.

    What it says depends in its last bits on what it remembers.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self._past: Past | None = None

    def read(
        self, sequences: Sequence[Sequenced], *, kept: Kept = ALL, dropout_seed: int | None = None
    ) -> list[ResponseReading]:
        assert not torch.is_grad_enabled(), "what is remembered has no gradient"
        tree = Fold(sequences).tree()
        rest = cut(tree, self._past)
        remembers = len(rest.root) >= MIN_TOKENS and self._fits(len(rest.root) + rest.num_known)
        attend = Recalling(rest, self._past, self._attention(rest.tree), remembers=remembers)
        readings = self._readings(rest.tree, attend, kept=kept, dropout_seed=dropout_seed)
        if remembers:
            self._past = attend.past(tree)
        return readings

    def _fits(self, num_tokens: int) -> bool:
        """Whether a beginning is short enough for the memory that is free."""
        arch = self._network.arch
        num_bytes = num_tokens * arch.num_layers * 2 * arch.kv_size * self._network.dtype.itemsize
        return num_bytes <= PAST_SHARE * free_bytes(self.device)


class PlainReader(_OnNetwork):
    """Our own network without what makes it fast: an independent way to the same numbers."""

    @property
    def plain(self) -> Reader:
        return self

    def counter(self) -> Counter:
        return Each()

    def read(
        self, sequences: Sequence[Sequenced], *, kept: Kept = ALL, dropout_seed: int | None = None
    ) -> list[ResponseReading]:
        num_tokens = sum(map(len, sequences))
        self.num_computed += num_tokens
        lora = self._lora(num_tokens, dropout_seed=dropout_seed)
        rows = response_rows(self._network, sequences, lora, kept=kept)
        return [ResponseReading(rows_RH, partial(self._rows, rows_RH)) for rows_RH in rows]

    def _rows(self, rows_RH: Tensor, temperature: float) -> Rows:
        return DenseRows(self._network.logits(rows_RH), temperature)


class NetworkFollower:
    """Our own network with what it has read in memory."""

    def __init__(self, network: Network, lora: LoraFor) -> None:
        # At a token at a time calling what is compiled costs more than it saves, and compiling it for one token, too.
        self._network = network.unfused()
        self._lora = lora
        self._attend = GrowingAttention()

    @torch.no_grad()
    def read(self, more: Mapping[int, Sequence[int]]) -> list[Rows]:
        device, num_tokens = self._network.device, sum(map(len, more.values()))
        ids_T = torch.tensor([token for ids in more.values() for token in ids], device=device)
        positions_T = self._attend.expect({name: len(ids) for name, ids in more.items()}).to(device)
        hidden_TH = self._network.hidden(ids_T, positions_T, self._attend, self._lora(num_tokens))
        ends = torch.tensor(list(accumulate(map(len, more.values()))), device=device) - 1
        return [DenseRows(row_V.unsqueeze(0)) for row_V in self._network.logits(hidden_TH[ends])]


class RereadingFollower:
    """Any reader: all that was read is read again."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._ids: defaultdict[int, tuple[int, ...]] = defaultdict(tuple)

    @torch.no_grad()
    def read(self, more: Mapping[int, Sequence[int]]) -> list[Rows]:
        for name, ids in more.items():
            self._ids[name] += tuple(ids)
        nobody_reads_it = (0,)
        return [one.rows(1.0) for one in self._reader.read([Sequenced(self._ids[n], nobody_reads_it) for n in more])]


@torch.no_grad()
def token_logprobs(reader: Reader, sequences: Sequence[Sequenced]) -> list[tuple[float, ...]]:
    """The log-prob of each response token of each sequence at T = 1, in one pass."""
    found: list[tuple[float, ...]] = []
    for one, reading in zip(sequences, reader.read(sequences), strict=True):
        ids_R1 = torch.tensor(one.response_ids, device=reader.device).unsqueeze(-1)
        found.append(tuple(reading.rows(1.0).logprob(ids_R1)[:, 0].tolist()))
    return found
