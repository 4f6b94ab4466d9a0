"""Rows of known tokens answer as rows of the whole vocabulary do, where they answer at all."""

from __future__ import annotations

import pytest
import torch

from openclaw_rl.errors import ConfigError, TrainError
from openclaw_rl.train.cloud.form import check_form
from openclaw_rl.train.cloud.rows import KnownRows
from openclaw_rl.train.objective.rows import DenseRows
from tests.factories.orders import settings

LOGITS = torch.randn(3, 11, generator=torch.Generator().manual_seed(0))


def test_known_tokens_have_their_logprobs_and_gradients() -> None:
    dense = DenseRows(LOGITS)
    ids, _ = dense.top_k(4)
    columns = torch.cat((ids[:, 1:2], ids), dim=-1)  # one of them twice
    known = dense.logprob(columns).requires_grad_()
    rows = KnownRows(columns, known, likely_RK=ids)
    asked = ids.flip(-1)
    assert torch.equal(rows.logprob(asked), dense.logprob(asked))
    assert torch.equal(rows.top_k(2)[0], dense.top_k(2)[0])
    assert torch.equal(rows.top_k(2)[1], dense.top_k(2)[1])
    rows.logprob(asked).sum().backward()
    assert known.grad is not None
    assert torch.equal(known.grad, torch.tensor([[1.0, 1.0, 0.0, 1.0, 1.0]] * 3)), "the first of two counts"


def test_what_nobody_said_is_no_number() -> None:
    rows = KnownRows(torch.tensor([[3, 4]]), torch.tensor([[-1.0, -2.0]]), likely_RK=None)
    assert rows.logprob(torch.tensor([[4, 5]])).isnan().tolist() == [[False, True]]
    with pytest.raises(TrainError, match=r"training.distillation=token"):
        rows.top_k(1)
    with pytest.raises(TrainError, match=r"training.entropy_coef=0"):
        rows.entropy()


@pytest.mark.parametrize(
    "wrong", [{"use_lora": False}, {"critic": True}, {"lora_alpha": 8.0}, {"teacher": "path"}, {"lora_dropout": 0.1}]
)
def test_what_a_service_cannot_follow_is_refused_with_the_setting(wrong: dict[str, object]) -> None:
    able = settings(backend="tinker", logprob_temperature=1.0)
    check_form(able)
    (name,) = wrong
    with pytest.raises(ConfigError, match=f"^training.{name}="):
        check_form(able | wrong)


def test_layers_are_attention_mlp_or_both() -> None:
    able = settings(backend="tinker", logprob_temperature=1.0)
    check_form(able | {"lora_target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]})
    with pytest.raises(ConfigError, match="a service trains all projections"):
        check_form(able | {"lora_target_modules": ["q_proj", "gate_proj"]})
