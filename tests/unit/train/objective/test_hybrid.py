"""The whole loss: every cell of subset and selection, every option, and which passes it asks for."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.train.objective.hybrid import HybridLoss, hybrid_loss
from openclaw_rl.train.objective.rows import DenseRows, Rows
from openclaw_rl.train.objective.sample import SampleTensors, Target
from openclaw_rl.train.objective.settings import Distillation, HintSelection, KlType, LossSettings, SubsetMode
from tests.unit.train.objective import plain
from tests.unit.train.objective.cases import F64, CountingRows, Drawn, draw, settings

CELLS = list(itertools.product(get_args(SubsetMode), get_args(HintSelection)))
OPTIONS: list[dict[str, Any]] = [
    {"distillation": "token"},
    {"distillation": "reverse_kl", "subset_mode": "teacher"},
    {"distillation": "reverse_kl", "subset_mode": "overlap"},
    {"distillation": "forward_kl"},
    {"distillation": "forward_kl", "teacher_top_k": 2},
    {"importance_clip": 2.0},
    {"importance_clip": 1.1, "distillation": "token"},
    {"sequence_ratio": True},
    {"dual_clip": 1.1},
    {"kl_coef": 0.3, "kl_type": "k1"},
    {"kl_coef": 0.3, "kl_type": "k2"},
    {"kl_coef": 0.3, "kl_type": "k3"},
    {"entropy_coef": 0.1},
    {"adv_diff_clip": 0.0},
    {"ppo_clip_ratio_high": None},
]


def check(drawn: Drawn, chosen: LossSettings) -> None:
    """Where a token counts: with none that does, not even a teacher is asked."""
    loss_R, _ = drawn.loss(chosen)
    mask_R = drawn.tensors.mask
    torch.testing.assert_close(loss_R[mask_R], torch.tensor(drawn.expected(chosen), dtype=F64)[mask_R])


@pytest.mark.parametrize(("mode", "selection"), CELLS)
@pytest.mark.parametrize("seed", range(4))
def test_every_cell_is_the_formula(mode: SubsetMode, selection: HintSelection, seed: int) -> None:
    check(draw(seed), settings(subset_mode=mode, hint_selection=selection))


@pytest.mark.parametrize("option", OPTIONS, ids=str)
@pytest.mark.parametrize("on_policy", [True, False])
def test_every_option_is_the_formula_and_changes_something(option: dict[str, Any], on_policy: bool) -> None:
    drawn = draw(11, num_tokens=12, on_policy=on_policy)
    check(drawn, settings(**option))
    assert not torch.equal(drawn.loss(settings(**option))[0], drawn.loss(settings())[0])


@given(st.data())
def test_random_ragged_samples(data: st.DataObject) -> None:
    drawn = draw(
        data.draw(st.integers(0, 10**6), label="seed"),
        num_tokens=data.draw(st.integers(1, 9), label="tokens"),
        num_hints=data.draw(st.integers(1, 4), label="hints"),
        vocab_size=data.draw(st.integers(5, 20), label="vocabulary"),
        w_rl=data.draw(st.sampled_from([0.0, 0.5, 1.0]), label="w_rl"),
        w_opd=data.draw(st.sampled_from([0.0, 0.7, 1.0]), label="w_opd"),
        is_sampled=data.draw(st.booleans(), label="sampled"),
        on_policy=data.draw(st.booleans(), label="on_policy"),
    )
    chosen = settings(
        top_k=data.draw(st.integers(1, 5), label="k"),
        teacher_top_k=data.draw(st.integers(1, 5), label="teacher's k"),
        subset_mode=data.draw(st.sampled_from(get_args(SubsetMode))),
        hint_selection=data.draw(st.sampled_from(get_args(HintSelection))),
        distillation=data.draw(st.sampled_from(get_args(Distillation))),
        adv_diff_clip=data.draw(st.sampled_from([0.0, 0.5, 1.0])),
        importance_clip=data.draw(st.sampled_from([None, 2.0])),
        sequence_ratio=data.draw(st.booleans()),
        dual_clip=data.draw(st.sampled_from([None, 2.0])),
        kl_coef=data.draw(st.sampled_from([0.0, 0.1])),
        kl_type=data.draw(st.sampled_from(get_args(KlType))),
        entropy_coef=data.draw(st.sampled_from([0.0, 0.1])),
    )
    check(drawn, chosen)


@pytest.mark.parametrize(("mode", "selection"), CELLS)
def test_gradients_reach_the_logits(mode: SubsetMode, selection: HintSelection) -> None:
    drawn = draw(2, num_tokens=3, vocab_size=8)
    loss = HybridLoss(settings(subset_mode=mode, hint_selection=selection, kl_coef=0.1, entropy_coef=0.1))
    target = drawn.target(loss)
    logits = drawn.new.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(DenseRows(x, 0.7), drawn.tensors, target)[0], logits)


def test_the_gradient_of_the_forward_kl_reaches_the_logits() -> None:
    drawn = draw(2, num_tokens=3, vocab_size=8)
    loss = HybridLoss(settings(distillation="forward_kl"))
    target = drawn.target(loss)
    logits = drawn.new.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(DenseRows(x, 0.7), drawn.tensors, target)[0], logits)


def test_targets_and_metrics_have_no_gradient() -> None:
    drawn = draw(0)
    loss = HybridLoss(settings(kl_coef=0.1, entropy_coef=0.1, importance_clip=2.0))
    logits = drawn.old.clone().requires_grad_()
    rows = DenseRows(logits)
    teachers = [DenseRows(x.clone().requires_grad_()) for x in drawn.teachers]
    target = loss.target(rows, drawn.tensors, teachers=teachers, base=DenseRows(drawn.base))
    loss_R, metrics = loss(rows, drawn.tensors, target)
    assert loss_R.requires_grad
    assert target.guidance is not None
    assert not any(x.requires_grad for x in (target.old, target.guidance.old, target.guidance.teacher))
    assert not any(value.requires_grad or value.ndim for value in metrics.values())


def test_in_the_first_epoch_every_ratio_is_exactly_one() -> None:
    drawn = draw(7)
    rows = DenseRows(drawn.old)
    loss = HybridLoss(settings())
    target = loss.target(rows, drawn.tensors, teachers=[DenseRows(x) for x in drawn.teachers])
    loss_R, metrics = loss(rows, drawn.tensors, target)
    assert metrics["clipped_rl"].item() == metrics["clipped_opd"].item() == 0.0
    assert target.guidance is not None
    rl_only = HybridLoss(settings())(rows, drawn.tensors, replace(target, guidance=None))[0]
    assert torch.equal(rl_only, -drawn.tensors.advantages)
    assert not torch.equal(loss_R, rl_only)


def test_metrics_say_what_happened() -> None:
    drawn = draw(5, mask=[True, True, False, True, True, False, True])
    chosen = settings(hint_selection="token_optimal", subset_mode="overlap", importance_clip=2.0)
    _, metrics = drawn.loss(chosen)
    case = drawn.plain
    assert case.sampled is not None
    students = [plain.top_k(row, 4) for row in case.old]
    overlaps = [
        [plain.overlap(s, plain.top_k(t, 4)) for s, t in zip(students, rows, strict=True)] for rows in case.teachers
    ]
    hints = plain.select(overlaps, case.mask, "token_optimal")
    sizes = [overlaps[h][i] for i, h in enumerate(hints)]
    olds = [case.old[i][y] for i, y in enumerate(case.response)]
    rl, rl_clipped, opd, opd_clipped, gaps, weights = [], [], [], [], [], []
    for i, (y, h) in enumerate(zip(case.response, hints, strict=True)):
        loss, clipped = plain.surrogate(case.new[i][y] - case.old[i][y], case.advantages[i], 0.2, 0.28)
        weights.append(plain.importance(olds[i], case.sampled[i], 2.0, True))
        rl.append(loss * weights[-1])
        rl_clipped.append(float(clipped))
        members = plain.subset(students[i], plain.top_k(case.teachers[h][i], 4), "overlap")
        loss, share, gap = plain.topk_loss(case.new[i], case.old[i], case.teachers[h][i], members, 1.0, 0.2, 0.28)
        opd.append(loss)
        opd_clipped.append(share)
        gaps.append(gap)
    per_token: dict[str, list[float] | list[int]] = {
        "loss_rl": rl,
        "loss_opd": opd,
        "clipped_rl": rl_clipped,
        "clipped_opd": opd_clipped,
        "teacher_gap": gaps,
        "overlap": sizes,
        "subset_size": sizes,
        "hint": hints,
        "sampler_gap": [abs(old - sampled) for old, sampled in zip(olds, case.sampled, strict=True)],
        "importance": weights,
    }
    assert metrics == pytest.approx({name: plain.sample_mean(x, case.mask) for name, x in per_token.items()})


def asked_of(drawn: Drawn, chosen: LossSettings) -> tuple[list[str], list[list[str]], set[str]]:
    """What the student and each teacher are asked in one step, and the metrics that come of it."""
    loss = HybridLoss(chosen)
    student = CountingRows(drawn.old)
    teachers = [CountingRows(x) for x in drawn.teachers[: loss.num_teachers(drawn.tensors)]]
    base = CountingRows(drawn.base) if loss.needs_base else None
    target = loss.target(student, drawn.tensors, teachers=teachers, base=base)
    _, metrics = loss(student, drawn.tensors, target)
    return student.asked, [teacher.asked for teacher in teachers], set(metrics)


def test_scores_alone_ask_no_teacher() -> None:
    student, teachers, metrics = asked_of(draw(0, w_opd=0.0), settings())
    assert (student, teachers) == (["logprob 1", "logprob 1"], [])
    assert metrics == {"sampler_gap", "loss_rl", "clipped_rl"}


def test_hints_alone_compute_no_policy_loss() -> None:
    drawn = draw(0, w_rl=0.0)
    student, teachers, metrics = asked_of(drawn, settings())
    assert student == ["top_k 4", "logprob 4", "logprob 1", "logprob 5"], "top_k first: a fused head wants that"
    assert teachers == [["top_k 4", "logprob 4"]] * 3
    assert not {"loss_rl", "clipped_rl", "kl", "entropy"} & metrics
    garbage = replace(drawn.tensors, advantages=torch.full_like(drawn.tensors.advantages, torch.nan))
    assert replace(drawn, tensors=garbage).loss(settings())[0].isfinite().all()


def test_the_shortest_hint_needs_one_teacher() -> None:
    _, teachers, _ = asked_of(draw(0), settings(hint_selection="shortest"))
    assert len(teachers) == 1


def test_penalties_are_asked_for_only_when_on() -> None:
    off, on = HybridLoss(settings()), HybridLoss(settings(kl_coef=0.1, entropy_coef=0.1))
    assert (off.needs_base, off.needs_entropy, on.needs_base, on.needs_entropy) == (False, False, True, True)
    student, _, metrics = asked_of(draw(0), on.settings)
    assert student.count("entropy") == 1
    assert {"kl", "entropy"} <= metrics


@pytest.mark.parametrize(
    ("change", "needs_student", "num_teachers"),
    [
        ({}, True, 3),
        ({"w_opd": 0.0}, True, 0),
        ({"w_rl": 0.0}, True, 3),
        ({"has_tokens": False}, False, 0),
        ({"w_opd": 0.0, "has_advantage": False}, False, 0),
        ({"w_rl": 0.0, "w_opd": 0.0}, False, 0),
    ],
)
def test_which_passes_a_sample_needs(change: dict[str, Any], needs_student: bool, num_teachers: int) -> None:
    loss, sample = HybridLoss(settings()), replace(draw(0).tensors, **change)
    assert loss.needs_student(sample) == needs_student
    assert loss.num_teachers(sample) == num_teachers


def test_a_penalty_needs_every_sample_with_tokens() -> None:
    sample = replace(draw(0).tensors, w_rl=0.0, w_opd=0.0)
    assert HybridLoss(settings(kl_coef=0.1)).needs_student(sample)
    assert HybridLoss(settings(entropy_coef=0.1)).needs_student(sample)
    assert not HybridLoss(settings(kl_coef=0.1)).needs_student(replace(sample, has_tokens=False))


def test_passes_that_are_missing_or_too_many_are_refused() -> None:
    drawn, rows = draw(0), DenseRows(draw(0).old)
    with pytest.raises(ValueError, match="3 candidates have to be read by the teacher, got 1"):
        HybridLoss(settings()).target(rows, drawn.tensors, teachers=[rows])
    with pytest.raises(ValueError, match="needs_base is True, got None"):
        HybridLoss(settings(kl_coef=0.1)).target(rows, draw(0, w_opd=0.0).tensors)


def test_a_loss_of_your_own_stands_in_its_place() -> None:
    def doubled(rows: Rows, sample: SampleTensors, target: Target, chosen: LossSettings) -> Any:
        loss_R, metrics = hybrid_loss(rows, sample, target, chosen)
        return 2 * loss_R, {"mine": metrics["loss_rl"]}

    drawn = draw(0)
    loss = HybridLoss(settings(), doubled)
    loss_R, metrics = loss(DenseRows(drawn.new), drawn.tensors, drawn.target(loss))
    torch.testing.assert_close(loss_R, 2 * drawn.loss(settings())[0])
    assert set(metrics) == {"mine"}


def test_a_loss_of_the_wrong_shape_is_refused() -> None:
    drawn = draw(0)
    loss = HybridLoss(settings(), lambda rows, sample, target, chosen: (sample.advantages.mean(), {}))
    with pytest.raises(ValueError, match=r"one number for each of 7 response tokens, got shape \(\)"):
        loss(DenseRows(drawn.new), drawn.tensors, drawn.target(loss))
