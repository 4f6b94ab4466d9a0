"""The arithmetic of the benchmark of training steps: its sessions, its counters, its fit; and that both sides agree."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.embedded import QWEN3_4B, random_network
from benchmarks.our_step import Bench, Ours
from benchmarks.sessions import Lengths, session
from benchmarks.step_arithmetic import (
    Flops,
    Keep,
    Load,
    Read,
    bill,
    learning,
    load_apart,
    load_folded,
    quadratic,
    reading,
    student_reads,
    teacher_reads,
)
from benchmarks.train_step import reference_step, without_hints
from benchmarks.train_step_plot import by_turns

SMALL = Lengths(head=7, context=3, answer=4, hint=2, num_hints=3)
ARCH = replace(
    QWEN3_4B, num_layers=2, hidden_size=8, mlp_size=16, num_heads=4, num_kv_heads=2, head_dim=4, vocab_size=200
)


def test_prompts_nest_and_hints_stand_right_before_the_answer() -> None:
    samples = session(SMALL, 4, vocab_size=200)
    for earlier, later in pairwise(samples):
        before = earlier.prompt_ids + earlier.response_ids
        assert later.prompt_ids[:-3] == before
    assert [len(sample.prompt_ids) for sample in samples] == [10, 17, 24, 31]
    assert [len(sample.prompt_ids) + 3 for sample in samples] == [SMALL.read(turn) for turn in range(4)]
    for sample in samples:
        assert sample.w_opd == 1.0
        prompts = [sample.teacher_prompt(one) for one in sample.candidates]
        assert all(prompt[:-2] == sample.prompt_ids for prompt in prompts)
        assert len({prompt[-2:] for prompt in prompts}) == 3


def test_thinking_is_trained_and_no_later_prompt_has_it() -> None:
    lengths = replace(SMALL, thinking=5)
    samples = session(lengths, 3, vocab_size=200)
    assert [len(sample.response_ids) for sample in samples] == [9, 9, 9]
    assert all(all(sample.loss_mask) for sample in samples)
    for earlier, later in pairwise(samples):
        assert later.prompt_ids[:-3] == earlier.prompt_ids + earlier.response_ids[5:]
    assert len(samples[2].prompt_ids) + 9 - 1 == lengths.read(2)


def test_a_shorter_session_begins_a_longer_one() -> None:
    assert session(SMALL, 4, vocab_size=200)[:2] == session(SMALL, 2, vocab_size=200)


def test_a_tenth() -> None:
    assert Lengths(thinking=1500).tenth() == Lengths(
        head=1100, context=60, answer=40, hint=6, thinking=150, num_hints=3
    )


def test_hints_go_and_the_reward_stays() -> None:
    (sample,) = without_hints(session(SMALL, 1, vocab_size=200))
    assert (sample.candidates, sample.w_opd, sample.w_rl) == ((), 0.0, 1.0)


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=8))
def test_the_folded_load_is_that_of_distinct_beginnings(sequences: list[list[int]]) -> None:
    reads = [Read(tuple(ids), 1) for ids in sequences]
    beginnings = {one.ids[:size] for one in reads for size in range(1, len(one.ids) + 1)}
    assert load_folded(reads) == Load(len(beginnings), sum(map(len, beginnings)), len(reads))
    apart = [ids[:size] for ids in sequences for size in range(1, len(ids) + 1)]
    assert load_apart(reads) == Load(len(apart), sum(map(len, apart)), len(reads))


def test_loads_of_a_session() -> None:
    samples = session(SMALL, 4, vocab_size=100_000)
    longest = 7 + 4 * (3 + 4) - 1
    assert load_folded(student_reads(samples)) == Load(longest, longest * (longest + 1) // 2, 16)
    branches = 4 * 3 * (2 + 4 - 1)
    assert load_folded(teacher_reads(samples)).tokens == longest - 3 + branches
    assert load_apart(student_reads(samples)).tokens == sum(SMALL.read(turn) for turn in range(4))
    assert load_apart(teacher_reads(samples)).tokens == 3 * sum(SMALL.read(turn) + 2 for turn in range(4))


# One layer: qkv 8 × 32, o 16 × 8, gate and up 8 × 32, down 16 × 8.
LINEAR = 2 * 2 * (256 + 128 + 256 + 128)
ADAPTER = 2 * 2 * 3 * ((8 + 16) + (8 + 8) + (8 + 8) + (16 + 8) + (8 + 16) + (8 + 16) + (16 + 8))
ATTENTION = 2 * 4 * 16
HEAD = 2 * 8 * 200
LOAD = Load(tokens=5, pairs=11, rows=2)


def test_flops_of_reading() -> None:
    plain = 5 * LINEAR + 11 * ATTENTION + 2 * HEAD
    assert reading(ARCH, LOAD) == Flops(forward=plain)
    assert reading(ARCH, LOAD, rank=3) == Flops(forward=plain + 5 * ADAPTER)


@pytest.mark.parametrize(("keep", "layers", "attention"), [("all", 0, 0.5), ("attention", 1, 0.5), ("nothing", 1, 1.5)])
def test_flops_of_learning(keep: Keep, layers: float, attention: float) -> None:
    adapter = learning(ARCH, LOAD, rank=3, keep=keep, head_again=True)
    assert adapter.forward == reading(ARCH, LOAD, rank=3).forward
    assert adapter.backward == 5 * (LINEAR + 2 * ADAPTER) + 2 * 11 * ATTENTION + 2 * HEAD
    assert adapter.recompute == 5 * layers * (LINEAR + ADAPTER) + attention * 11 * ATTENTION + 2 * HEAD
    full = learning(ARCH, LOAD, rank=0, keep=keep, head_again=False)
    assert full.backward == 2 * (5 * LINEAR + 11 * ATTENTION + 2 * HEAD)
    assert full.recompute == 5 * layers * LINEAR + attention * 11 * ATTENTION
    assert full.executed == full.model + full.recompute


def test_the_bill_of_the_session_that_is_published() -> None:
    """What prototypes counted: 76 thousand tokens against 1.87 million, 2.4 PFLOP against 36."""
    samples = session(Lengths(), 16, vocab_size=QWEN3_4B.vocab_size)
    due = bill(QWEN3_4B, samples, rank=32, keep="nothing", head_again=True)
    assert (due.our_tokens, due.reference_tokens) == (75_631, 1_874_784)
    assert due.ours.executed / 1e15 == pytest.approx(2.41, abs=0.01)
    assert due.reference.executed / 1e15 == pytest.approx(36.4, abs=0.05)
    assert due.bound == pytest.approx(15.1, abs=0.05)
    assert (
        due.bound_learn
        == pytest.approx(due.reference_learning.executed / due.our_learning.executed)
        != pytest.approx(due.bound)
    )


def test_the_fit_finds_what_made_the_seconds() -> None:
    def seconds(size: int) -> float:
        return 0.2 + 3e-5 * size + 7e-10 * size**2

    sizes = [11_999, 18_999, 26_999, 42_999, 74_999]
    fitted = quadratic(sizes, [seconds(size) for size in sizes])
    assert fitted(20_000) == pytest.approx(seconds(20_000), rel=1e-9)


def test_points_of_the_plot() -> None:
    found = {"turns_16_s": 3.0, "turns_4_s": 1.0, "turns_4_reference_fitted_s": 9.0, "turns_growth_ours": 1.4}
    assert by_turns(found, "s") == [(4, 1.0), (16, 3.0)]
    assert by_turns(found, "reference_fitted_s") == [(4, 9.0)]


@pytest.mark.parametrize("use_lora", [True, False])
@pytest.mark.parametrize("thinking", [0, 5])
def test_both_sides_do_the_same_maths(use_lora: bool, thinking: int) -> None:
    lengths = replace(SMALL, thinking=thinking)
    network = random_network(ARCH, device=torch.device("cpu"), dtype=torch.float32)
    bench = Bench(network=network, lengths=lengths, num_turns=3, recompute=None, gemm_tflop_s=1.0)
    samples = bench.samples(3, thinking=thinking > 0)
    assert len(samples[0].response_ids) == 4 + thinking
    ours, reference = Ours(bench, use_lora=use_lora), reference_step(bench, use_lora=use_lora)
    for _ in range(2):
        metrics, outcome = ours.take(samples).metrics, reference.take(samples)
        assert metrics["loss/total"] == pytest.approx(outcome.loss, abs=1e-6)
        assert metrics["gradient/norm"] == pytest.approx(outcome.gradient_norm, rel=1e-4)
        assert len(outcome.turns) == 3
        assert 0 < outcome.passes.needed < outcome.passes.total
