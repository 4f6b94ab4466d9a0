"""A candidate that passed its gate -> proof that the engine serves what was trained, or why there is none.

Asks both for the log-probs of the same tokens, the parent's answers to the frozen probes, under parent and candidate:
the trainer reads the files of the row, the engine has loaded them. `prove.py` compares what they say. Both must also
have read the bytes that the row names, as far as the engine reports what it loaded. Where several engines answer as
one, each is asked: what one of them serves says nothing of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from openclaw_rl.errors import EngineLost, TrainError
from openclaw_rl.protocols import Engine, EngineGroup, Scorer, Trainer
from openclaw_rl.release.gate.probes import Passage, ProbeAnswer, Prober
from openclaw_rl.release.gate.prove import Proof, Told, prove
from openclaw_rl.types import BASE_VERSION, Json, ScoreOrder, Version, WeightsRef


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerReading:
    """What the trainer says of passages under both versions; the first `num_proving` of them are for the proof."""

    of: tuple[str, str]
    """The labels of candidate and parent."""
    passages: tuple[Passage, ...]
    num_proving: int
    parent: tuple[tuple[float, ...], ...]
    candidate: tuple[tuple[float, ...], ...]
    sha256: str
    """What the files of the candidate hash to."""


class Proving:
    """Compares one engine with one trainer. `settings` is the section `training`; `reports_checksum` as in
    `Capabilities`."""

    def __init__(
        self,
        engine: Engine,
        prober: Prober,
        trainer: Trainer,
        *,
        settings: Mapping[str, Json],
        min_tokens: int,
        min_correlation: float,
        reports_checksum: bool = True,
        group: EngineGroup | None = None,
    ) -> None:
        self._engine = engine
        self._prober = prober
        self._trainer = trainer
        self._settings = settings
        self._min_tokens = min_tokens
        self._min_correlation = min_correlation
        self._reports_checksum = reports_checksum
        self._group = group
        self._reading: TrainerReading | None = None

    async def read(self, candidate: Version, parent: Version | None, *, also: Sequence[Passage] = ()) -> TrainerReading:
        """What the trainer says of the parent's answers, and of the passages in `also`, which come last.

        No parent is the base model. The proof of the same candidate takes it from here. `TrainError` if the trainer
        cannot say.
        """
        label = BASE_VERSION if parent is None else parent.label
        proving = await self.passages(label)
        passages = (*proving, *also)
        report = await self._trainer.score(
            ScoreOrder(
                sequences=tuple(prompt + said for prompt, said in passages),
                starts=tuple(len(prompt) for prompt, _ in passages),
                parent=None if parent is None else _weights(parent),
                candidate=_weights(candidate),
                settings=self._settings,
            )
        )
        self._reading = TrainerReading(
            of=(candidate.label, label),
            passages=passages,
            num_proving=len(proving),
            parent=report.parent,
            candidate=report.candidate,
            sha256=report.sha256,
        )
        return self._reading

    async def passages(self, label: str) -> list[Passage]:
        """What a version that answers says to frozen probes: as much as the proof of the next one needs."""
        answers = await self._prober.begun(label)
        if sum(len(answer.token_ids) for answer in answers) < self._min_tokens:
            answers = await self._prober.frozen(label)
        return _passages(answers, self._min_tokens)

    async def prove(self, candidate: Version, parent: Version | None) -> Proof:
        """Both are loaded; no parent is the base model. `TrainError` if the trainer cannot say."""
        label = BASE_VERSION if parent is None else parent.label
        read, self._reading = self._reading, None
        if read is None or read.of != (candidate.label, label):
            read, self._reading = await self.read(candidate, parent), None
        if self._group is None:
            return await self._prove_on(self._engine, candidate, label, read)
        asked = self._group.scorers((label, candidate.label))
        found = await asyncio.gather(
            *(self._prove_on(one, candidate, label, read, name=name) for name, one in asked.items()),
            return_exceptions=True,
        )
        proofs = [one for one in found if isinstance(one, Proof)]
        failures = [one for one in found if isinstance(one, BaseException)]
        # One that died proves itself before it answers again; any other failure is none of that.
        for failure in failures:
            if not proofs or not isinstance(failure, EngineLost):
                raise failure
        if not proofs:
            raise EngineLost(f"no engine answers with {candidate.label}")
        return min(proofs, key=lambda one: (one.verdict == "proved", one.correlation))

    async def _prove_on(
        self, engine: Scorer, candidate: Version, label: str, read: TrainerReading, *, name: str = "the engine"
    ) -> Proof:
        num, passages = read.num_proving, read.passages[: read.num_proving]
        served = [await self._prober.logprobs(passages, version, on=engine) for version in (label, candidate.label)]
        state = await engine.state()
        proof = prove(
            Told(parent=_flat(read.parent[:num]), candidate=_flat(read.candidate[:num])),
            Told(parent=_flat(served[0]), candidate=_flat(served[1])),
            min_correlation=self._min_correlation,
            min_tokens=self._min_tokens,
            name=name,
        )
        trained, loaded = candidate.sha256, state.checksums.get(candidate.label, "")
        if self._reports_checksum and loaded != trained:
            reason = f"{name} loaded {loaded[:16] or 'nothing'} for it, and {trained[:16]} was trained"
            return replace(proof, verdict="other weights", checksum="differs", reason=reason)
        if read.sha256 != trained:
            reason = f"its files hash to {read.sha256[:16]} now, and to {trained[:16]} when they were made"
            return replace(proof, verdict="other weights", checksum="differs", reason=reason)
        return proof if self._reports_checksum else replace(proof, checksum="not reported by this engine")


def _weights(version: Version) -> WeightsRef:
    if version.weights is None:
        raise TrainError(f"the weights of {version.label} are gone")
    return version.weights


def _passages(answers: Sequence[ProbeAnswer], min_tokens: int) -> list[Passage]:
    """The passages that both read, each with the place from which its tokens count: prompts with answers, as many as
    the proof needs."""
    if sum(len(answer.token_ids) for answer in answers) < min_tokens:
        whole = [(*answer.probe.prompt_ids, *answer.token_ids) for answer in answers]
        return [(ids[:1], ids[1:]) for ids in whole if len(ids) > 1]
    chosen: list[Passage] = []
    for answer in answers:
        if answer.token_ids and sum(len(said) for _, said in chosen) < min_tokens:
            chosen.append((answer.probe.prompt_ids, answer.token_ids))
    return chosen


def _flat(values: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(value for each in values for value in each)
