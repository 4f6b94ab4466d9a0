"""The regression finds the minimum, and finds it again."""

from __future__ import annotations

import numpy as np

from openclaw_rl.judge.heads.grams import NUM_FEATURES, features
from openclaw_rl.judge.heads.regression import DenseMatrix, Floats, GramMatrix, Ints, fit


def loss(weights: Floats, bias: Floats, x_ND: Floats, classes_N: Ints, l2: float) -> float:
    """What `fit` minimises, written plainly."""
    num_classes = weights.shape[1]
    counts = np.bincount(classes_N, minlength=num_classes)
    share = np.sqrt(len(classes_N) / (num_classes * counts))[classes_N]
    logits = x_ND @ weights + bias
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    picked = logprobs[np.arange(len(classes_N)), classes_N]
    return float(-(share / share.sum() * picked).sum() + l2 / 2 * (weights**2).sum())


def test_no_step_in_any_direction_is_better() -> None:
    random = np.random.default_rng(3)
    x_ND, classes_N = random.normal(size=(60, 5)), random.integers(0, 3, size=60)
    found = fit(DenseMatrix(x_ND), classes_N, num_classes=3, l2=0.05, num_iterations=2000)
    best = loss(found.weights, found.bias, x_ND, classes_N, 0.05)
    for _ in range(50):
        moved = found.weights + 1e-3 * random.normal(size=found.weights.shape)
        shifted = found.bias + 1e-3 * random.normal(size=3)
        assert loss(moved, shifted, x_ND, classes_N, 0.05) >= best - 1e-9


def test_the_same_rows_in_either_form_give_the_same_weights() -> None:
    sparse = [features(text)[:9] % 40 for text in ("shorter please", "thanks a lot", "what about mars", "no, wrong")]
    sparse = [np.unique(each) for each in sparse]
    dense = np.zeros((4, 40))
    for row, each in enumerate(sparse):
        dense[row, each] = 1 / np.sqrt(len(each))
    classes = np.array([0, 1, 1, 0])
    one = fit(GramMatrix(sparse, 40), classes, num_classes=2, l2=0.01)
    other = fit(DenseMatrix(dense), classes, num_classes=2, l2=0.01)
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-9)
    again = fit(GramMatrix(sparse, 40), classes, num_classes=2, l2=0.01)
    assert (again.weights == one.weights).all()


def test_features_are_of_any_language_and_few_for_long_texts() -> None:
    assert len(features("もっと短く")) > 5
    assert len(features("x" * 100_000)) < 50
    assert (features("Shorter,  please") == features("shorter, please\n")).all()
    assert features("a b c").max() < NUM_FEATURES
