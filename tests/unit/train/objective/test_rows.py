"""The obvious rows: log-probs, top-k and entropy of a matrix of logits."""

from __future__ import annotations

import pytest
import torch

from openclaw_rl.train.objective.rows import DenseRows
from tests.unit.train.objective import plain
from tests.unit.train.objective.cases import F64

LOGITS = torch.randn(3, 8, generator=torch.Generator().manual_seed(5), dtype=F64)
IDS = torch.tensor([[1, 1], [0, 7], [3, 2]])


def test_log_probs_are_those_of_the_logits_over_the_temperature() -> None:
    found = DenseRows(LOGITS, 0.6).logprob(IDS)
    for i, row in enumerate(LOGITS.tolist()):
        expected = plain.log_softmax(row, 0.6)
        assert found[i].tolist() == pytest.approx([expected[v] for v in IDS[i].tolist()])


def test_top_k_is_sorted_and_has_no_gradient() -> None:
    rows = DenseRows(LOGITS.clone().requires_grad_(), 0.6)
    ids, logprobs = rows.top_k(3)
    assert ids.tolist() == [plain.top_k(row, 3) for row in LOGITS.tolist()]
    assert torch.equal(logprobs, rows.logprob(ids))
    assert not logprobs.requires_grad


def test_gradients() -> None:
    logits = LOGITS.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: DenseRows(x, 0.6).logprob(IDS), logits)
    assert torch.autograd.gradcheck(lambda x: DenseRows(x, 0.6).entropy(), logits)
