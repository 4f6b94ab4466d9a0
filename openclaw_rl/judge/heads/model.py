"""Fitted heads: what a reaction says of a reply, by its n-grams and by what the served base model holds of it.

Three questions, each answered by a head on either side, and the two averaged: the score, whether there is a correction
or a wish, and whether it is about the matter. The heads on n-grams hold for every model and are shipped. Those on
hidden states belong to one model: shipped for the embedded one, fitted at the first start for any other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np

from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.heads import grams
from openclaw_rl.judge.heads.examples import EXAMPLES, FOLDER, Example, Said, digest
from openclaw_rl.judge.heads.regression import DenseMatrix, Floats, GramMatrix, Ints, Regression, fit
from openclaw_rl.types import Score

CODE = 1
"""Counts up with every change of how heads are fitted or read: what was fitted before is fitted again."""

QUESTIONS: Mapping[str, int] = {"score": 3, "hint": 2, "matter": 2}
"""Each with the number of its classes."""

GRAMS_FILE = FOLDER / "grams.npz"

_L2_GRAMS, _L2_HIDDEN = 3e-5, 6e-4
_SMALLEST_SPREAD = 1e-3


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the heads make of one reaction: probabilities."""

    bad: float
    neutral: float
    good: float
    hint: float
    matter: float

    @property
    def score(self) -> Score:
        """The likeliest."""
        return -1 if self.bad == self.sureness else 1 if self.good == self.sureness else 0

    @property
    def sureness(self) -> float:
        return max(self.bad, self.neutral, self.good)


@dataclass(frozen=True, slots=True)
class GramHeads:
    """Heads on n-grams."""

    heads: Mapping[str, Regression]

    @classmethod
    def fitted(cls, examples: Sequence[Example]) -> Self:
        features = [grams.features(one.next) for one in examples]
        heads: dict[str, Regression] = {}
        for question, num_classes in QUESTIONS.items():
            kept, classes = _classes(question, examples)
            rows = GramMatrix([features[at] for at in kept], grams.NUM_FEATURES)
            heads[question] = fit(rows, classes, num_classes=num_classes, l2=_L2_GRAMS, num_iterations=150)
        return cls(heads)

    @classmethod
    def shipped(cls) -> Self:
        """Those of grams.npz."""
        return cls(_load(GRAMS_FILE, _wanted("")).heads)

    def save(self, file: Path) -> None:
        _save(file, _Kept(heads=self.heads, meta=_wanted("")), np.float16)

    def probabilities(self, texts: Sequence[str]) -> dict[str, Floats]:
        """[N, C] for each question."""
        rows = GramMatrix([grams.features(text) for text in texts], grams.NUM_FEATURES)
        return {question: head.probabilities(rows) for question, head in self.heads.items()}

    def opinions(self, reactions: Sequence[Said]) -> list[Opinion]:
        """One for each reaction, without a model."""
        return _opinions(self.probabilities([one.said for one in reactions]))


@dataclass(frozen=True, slots=True)
class HiddenHeads:
    """Heads on one model's hidden states behind `layer` blocks."""

    heads: Mapping[str, Regression]
    layer: int
    mean: Floats
    """[H]"""
    scale: Floats
    """[H]"""

    @classmethod
    def fitted(cls, examples: Sequence[Example], hidden_NH: Floats, *, layer: int) -> Self:
        mean_H = hidden_NH.mean(axis=0)
        scale_H = (hidden_NH.std(axis=0) + _SMALLEST_SPREAD) * np.sqrt(hidden_NH.shape[1])
        plain_NH = (hidden_NH - mean_H) / scale_H
        heads: dict[str, Regression] = {}
        for question, num_classes in QUESTIONS.items():
            kept, classes = _classes(question, examples)
            heads[question] = fit(DenseMatrix(plain_NH[kept]), classes, num_classes=num_classes, l2=_L2_HIDDEN)
        return cls(heads, layer, mean_H, scale_H)

    @classmethod
    def load(cls, file: Path, *, model: str) -> Self:
        """JudgeError if the file is of another model, other examples or another code."""
        stored = _load(file, _wanted(model))
        return cls(stored.heads, int(stored.meta["layer"]), stored.arrays["mean"], stored.arrays["scale"])

    def save(self, file: Path, *, model: str) -> None:
        arrays = {"mean": self.mean, "scale": self.scale}
        _save(file, _Kept(heads=self.heads, meta={**_wanted(model), "layer": str(self.layer)}, arrays=arrays))

    def probabilities(self, hidden_NH: Floats) -> dict[str, Floats]:
        """[N, C] for each question."""
        rows = DenseMatrix((hidden_NH - self.mean) / self.scale)
        return {question: head.probabilities(rows) for question, head in self.heads.items()}


@dataclass(frozen=True, slots=True)
class Heads:
    """Both kinds, averaged."""

    grams: GramHeads
    hidden: HiddenHeads

    def opinions(self, reactions: Sequence[Said], hidden_NH: Floats) -> list[Opinion]:
        """One for each reaction; `hidden_NH` are the states at the ends of their prompts."""
        by_grams = self.grams.probabilities([one.said for one in reactions])
        by_hidden = self.hidden.probabilities(hidden_NH)
        return _opinions({question: (by_grams[question] + by_hidden[question]) / 2 for question in QUESTIONS})


def _opinions(probabilities: Mapping[str, Floats]) -> list[Opinion]:
    rows = zip(*(probabilities[question] for question in ("score", "hint", "matter")), strict=True)
    return [
        Opinion(
            bad=float(score_C[0]),
            neutral=float(score_C[1]),
            good=float(score_C[2]),
            hint=float(hint_C[1]),
            matter=float(matter_C[1]),
        )
        for score_C, hint_C, matter_C in rows
    ]


@cache
def shipped_grams() -> GramHeads:
    """Those of grams.npz, loaded once."""
    return GramHeads.shipped()


def shipped_file(model_name: str) -> Path:
    """Where the heads of a model lie that are shipped, if they are."""
    return FOLDER / f"{model_name}.npz"


def model_digest(folder: Path) -> str:
    """Which weights these are, by what describes them: reading gigabytes at each start would be too slow."""
    told = hashlib.sha256((folder / "config.json").read_bytes())
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as opened:
            told.update(f"{file.name} {file.stat().st_size} ".encode() + opened.read(1 << 20))
    return told.hexdigest()[:16]


def _wanted(model: str) -> dict[str, str]:
    return {"code": str(CODE), "examples": digest(EXAMPLES), "model": model}


def _classes(question: str, examples: Sequence[Example]) -> tuple[list[int], Ints]:
    """Which examples have a label for a question, and their classes."""
    labels = [getattr(one, question) for one in examples]
    kept = [at for at, label in enumerate(labels) if label is not None]
    return kept, np.array([int(labels[at]) + (question == "score") for at in kept], dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    heads: Mapping[str, Regression]
    meta: Mapping[str, str]
    arrays: Mapping[str, Floats] = field(default_factory=dict)


def _save(file: Path, stored: _Kept, dtype: type[np.floating] = np.float32) -> None:
    arrays: dict[str, Any] = {name: array.astype(np.float32) for name, array in stored.arrays.items()}
    for question, head in stored.heads.items():
        arrays |= {f"{question}.weights": head.weights.astype(dtype), f"{question}.bias": head.bias}
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".part.npz")
    arrays["meta"] = np.array(json.dumps(dict(stored.meta)))
    np.savez_compressed(partial, **arrays)
    partial.replace(file)


def _load(file: Path, wanted: Mapping[str, str]) -> _Kept:
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        meta = json.loads(str(arrays.pop("meta")))
        heads = {
            question: Regression(
                arrays.pop(f"{question}.weights").astype(np.float64), arrays.pop(f"{question}.bias").astype(np.float64)
            )
            for question in QUESTIONS
        }
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise JudgeError(f"the heads in {file} cannot be read ({error}); fit them again") from error
    if other := [key for key, value in wanted.items() if meta.get(key) != value]:
        raise JudgeError(f"the heads in {file} were fitted for another {' and '.join(other)}; fit them again")
    return _Kept(heads=heads, meta=meta, arrays={name: array.astype(np.float64) for name, array in arrays.items()})
