"""A candidate that passed its gate -> proof that the engine serves what was trained, or why there is none.

Asks both for the log-probs of the same tokens, the parent's answers to the frozen probes, under parent and candidate:
the trainer reads the files of the row, the engine has loaded them. prove.py compares what they say. That both hashed
the same bytes, those of the row, is asked as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from openclaw_rl.protocols import Engine
from openclaw_rl.release.probes import Answer, Prober
from openclaw_rl.release.prove import Proof, Told, prove
from openclaw_rl.types import BASE_VERSION, Json, Version


class Read(Protocol):
    """What a trainer makes of tokens under two versions' files."""

    @property
    def parent(self) -> Sequence[Sequence[float]]: ...

    @property
    def candidate(self) -> Sequence[Sequence[float]]: ...

    @property
    def sha256(self) -> str:
        """Of the candidate's files."""
        ...


class Prover(Protocol):
    """The trainer, as far as it is needed here: it reads with the weights in two folders, None for the base model."""

    async def read(
        self,
        sequences: Sequence[tuple[int, ...]],
        starts: Sequence[int],
        *,
        parent: str | None,
        candidate: str,
        settings: Mapping[str, Json],
    ) -> Read: ...


class Proving:
    """Compares one engine with one trainer. `settings` is the section `training`."""

    def __init__(
        self,
        engine: Engine,
        prober: Prober,
        prover: Prover,
        *,
        settings: Mapping[str, Json],
        min_tokens: int,
        min_correlation: float,
    ) -> None:
        self._engine = engine
        self._prober = prober
        self._prover = prover
        self._settings = settings
        self._min_tokens = min_tokens
        self._min_correlation = min_correlation

    async def prove(self, candidate: Version, parent: Version | None) -> Proof:
        """Both are loaded; no parent is the base model. `TrainError` if the trainer cannot say."""
        label = BASE_VERSION if parent is None else parent.label
        passages = _passages(await self._prober.frozen(label), self._min_tokens)
        read = await self._prover.read(
            [prompt + said for prompt, said in passages],
            [len(prompt) for prompt, _ in passages],
            parent=None if parent is None else parent.path,
            candidate=candidate.path,
            settings=self._settings,
        )
        served = [await self._prober.logprobs(passages, version) for version in (label, candidate.label)]
        state = await self._engine.state()
        proof = prove(
            Told(parent=_flat(read.parent), candidate=_flat(read.candidate)),
            Told(parent=_flat(served[0]), candidate=_flat(served[1])),
            min_correlation=self._min_correlation,
            min_tokens=self._min_tokens,
        )
        if other := _other_bytes(candidate, read.sha256, state.checksums):
            return replace(proof, verdict="other weights", reason=other)
        return proof


def _other_bytes(candidate: Version, trainer: str, engine: Mapping[str, str]) -> str:
    loaded = engine.get(candidate.label, "")
    if loaded != candidate.sha256:
        return f"the engine loaded {loaded[:16] or 'nothing'} for it, and {candidate.sha256[:16]} was trained"
    if trainer != candidate.sha256:
        return f"its files hash to {trainer[:16]} now, and to {candidate.sha256[:16]} when they were made"
    return ""


def _passages(answers: Sequence[Answer], min_tokens: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """What is read, and from where on it counts: as many answers as it takes, or all, with their prompts."""
    if sum(len(answer.token_ids) for answer in answers) < min_tokens:
        whole = [(*answer.probe.prompt_ids, *answer.token_ids) for answer in answers]
        return [(ids[:1], ids[1:]) for ids in whole if len(ids) > 1]
    chosen: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for answer in answers:
        if answer.token_ids and sum(len(said) for _, said in chosen) < min_tokens:
            chosen.append((answer.probe.prompt_ids, answer.token_ids))
    return chosen


def _flat(values: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(value for each in values for value in each)
