"""Matrix of numbers and their classes -> L2-regularised logistic regression; the same input gives the same weights.

Accelerated gradient descent from zero, its step from the curvature, for a fixed number of iterations: the problem is
convex, so nothing is searched. Axes: N rows, D features, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Matrix(Protocol):
    """A matrix [N, D] that is only multiplied with."""

    shape: tuple[int, int]

    def times(self, weights_DC: Floats) -> Floats: ...

    def transposed_times(self, values_NC: Floats) -> Floats: ...


class DenseMatrix:
    """A matrix as it is."""

    def __init__(self, x_ND: Floats) -> None:
        self.shape = (x_ND.shape[0], x_ND.shape[1])
        self._x_ND = x_ND

    def times(self, weights_DC: Floats) -> Floats:
        product: Floats = self._x_ND @ weights_DC
        return product

    def transposed_times(self, values_NC: Floats) -> Floats:
        product: Floats = self._x_ND.T @ values_NC
        return product


class GramMatrix:
    """Matrix of which each has some features of equal weight and length 1 as a whole."""

    def __init__(self, features: Sequence[Ints], num_features: int) -> None:
        self.shape = (len(features), num_features)
        sizes = [len(each) for each in features]
        self._rows = np.repeat(np.arange(len(features)), sizes)
        self._columns = np.concatenate(features)
        self._values = np.repeat(1.0 / np.sqrt(np.maximum(1, sizes)), sizes)

    def times(self, weights_DC: Floats) -> Floats:
        found = (self._values * column[self._columns] for column in weights_DC.T)
        return np.stack([np.bincount(self._rows, one, minlength=self.shape[0]) for one in found], axis=1)

    def transposed_times(self, values_NC: Floats) -> Floats:
        found = (self._values * column[self._rows] for column in values_NC.T)
        return np.stack([np.bincount(self._columns, one, minlength=self.shape[1]) for one in found], axis=1)


@dataclass(frozen=True, slots=True)
class Regression:
    """softmax(x · weights + bias): weights [D, C], bias [C]."""

    weights: Floats
    bias: Floats

    def probabilities(self, rows: Matrix) -> Floats:
        """[N, C]"""
        return _softmax(rows.times(self.weights) + self.bias)


def fit(rows: Matrix, classes_N: Ints, *, num_classes: int, l2: float, num_iterations: int = 300) -> Regression:
    """The weights. Rare classes weigh more than their number, by the square root of what they lack."""
    targets_NC = np.eye(num_classes)[classes_N]
    counts_C = np.maximum(1, np.bincount(classes_N, minlength=num_classes))
    row_weights_N = np.sqrt(len(classes_N) / (num_classes * counts_C))[classes_N]
    row_weights_N /= row_weights_N.sum()
    # Softmax has curvature 1/2 at most; the bias is a feature that is always 1.
    step = 1.0 / (0.5 * (_curvature(rows, row_weights_N) + 1.0) + l2)
    weights_DC, bias_C = np.zeros((rows.shape[1], num_classes)), np.zeros(num_classes)
    ahead_DC, ahead_C, momentum = weights_DC, bias_C, 1.0
    for _ in range(num_iterations):
        errors_NC = _softmax(rows.times(ahead_DC) + ahead_C) - targets_NC
        errors_NC *= row_weights_N[:, None]
        next_DC = ahead_DC - step * (rows.transposed_times(errors_NC) + l2 * ahead_DC)
        next_C = ahead_C - step * errors_NC.sum(axis=0)
        grown = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        pull = (momentum - 1.0) / grown
        ahead_DC, ahead_C = next_DC + pull * (next_DC - weights_DC), next_C + pull * (next_C - bias_C)
        weights_DC, bias_C, momentum = next_DC, next_C, grown
    return Regression(weights_DC, bias_C)


def _curvature(rows: Matrix, row_weights_N: Floats) -> float:
    """The largest eigenvalue of XᵀWX by power iteration, and a tenth more, since that comes from below."""
    vector_D1 = np.cos(np.arange(rows.shape[1], dtype=np.float64))[:, None]
    size = 1.0
    for _ in range(40):
        vector_D1 = vector_D1 / max(1e-300, float(np.linalg.norm(vector_D1)))
        vector_D1 = rows.transposed_times(row_weights_N[:, None] * rows.times(vector_D1))
        size = float(np.linalg.norm(vector_D1))
    return 1.1 * size


def _softmax(logits_NC: Floats) -> Floats:
    powers_NC = np.exp(logits_NC - logits_NC.max(axis=1, keepdims=True))
    scaled: Floats = powers_NC / powers_NC.sum(axis=1, keepdims=True)
    return scaled
