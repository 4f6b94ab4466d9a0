"""A change told twice: the same one, another one, none."""

from __future__ import annotations

import math
import random

import pytest

from openclaw_rl.release.gate.prove import Proof, Told, needed_correlation, prove

RANDOM = random.Random(3)
PARENT = tuple(-RANDOM.expovariate(1.0) for _ in range(300))
CHANGE = tuple(RANDOM.gauss(0.0, 0.05) for _ in range(300))


def told(change: tuple[float, ...], *, noise: float = 0.0, seed: int = 0) -> Told:
    drawn = random.Random(seed)
    parent = tuple(value + drawn.gauss(0.0, noise) for value in PARENT)
    candidate = tuple(a + b + drawn.gauss(0.0, noise) for a, b in zip(PARENT, change, strict=True))
    return Told(parent=parent, candidate=candidate)


def proof(trainer: Told, engine: Told) -> Proof:
    return prove(trainer, engine, min_correlation=0.99, min_tokens=256)


def test_both_tell_the_same_story() -> None:
    found = proof(told(CHANGE), told(CHANGE, noise=1e-5, seed=1))
    assert found.reason == ""
    assert found.correlation > 0.9999
    assert found.change == pytest.approx(0.05, rel=0.1)
    assert found.noise == pytest.approx(1e-5, rel=0.2)


@pytest.mark.parametrize(
    "served",
    [tuple(-value for value in CHANGE), tuple(reversed(CHANGE)), (0.0,) * 300],
    ids=["backwards", "another", "nothing"],
)
def test_an_engine_that_serves_something_else_is_found_out(served: tuple[float, ...]) -> None:
    assert proof(told(CHANGE), told(served)).reason.startswith("the engine does not serve what was trained")


def test_a_change_below_the_noise_has_no_effect() -> None:
    assert proof(told((0.0,) * 300), told((0.0,) * 300)).reason.startswith("no effect")
    small = tuple(value * 1e-4 for value in CHANGE)
    drowned = proof(told(small), told((0.0,) * 300, noise=1e-5, seed=2))
    assert drowned.reason.startswith("no effect"), "5e-6 nats under noise of 1e-5"
    quiet = proof(told(small), told(small))
    assert quiet.reason == "", "a small change that both see is a change"


@pytest.mark.parametrize("noise", [0.005, 0.015, 0.025], ids=["a tenth", "a third", "half"])
def test_rounding_leaves_less_to_agree_about_and_other_weights_are_still_found_out(noise: float) -> None:
    rounded = noise / math.sqrt(2)  # on each side, for the parent and for the candidate
    for seed in range(50):
        trainer = told(CHANGE, noise=rounded, seed=seed)
        same = proof(trainer, told(CHANGE, noise=rounded, seed=1000 + seed))
        assert same.reason == "", same
        assert same.noise == pytest.approx(noise, rel=0.2)
        another = proof(trainer, told(tuple(reversed(CHANGE)), noise=rounded, seed=1000 + seed))
        assert another.verdict == "other weights", another


def test_a_right_version_in_bfloat16_is_believed() -> None:
    """As measured on an H200: these tokens of this version correlated by 0.803."""
    assert needed_correlation(0.99, change=0.0805, noise=0.0297, num_tokens=267) < 0.803


def test_chance_is_never_enough() -> None:
    """However much of the change is rounding."""
    assert needed_correlation(0.99, change=0.0375, noise=0.03, num_tokens=256) >= 4 / math.sqrt(256)


def test_numbers_that_are_none_prove_nothing() -> None:
    broken = Told(parent=PARENT, candidate=(math.nan,) * 300)
    assert proof(broken, told(CHANGE)).reason == "its log-probs are not finite"


def test_few_tokens_are_no_proof() -> None:
    with pytest.raises(ValueError, match="256 tokens are needed, got 2"):
        proof(Told(parent=(0.0, 0.0), candidate=(1.0, 0.0)), Told(parent=(0.0, 0.0), candidate=(1.0, 0.0)))
