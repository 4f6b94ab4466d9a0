"""A candidate beside its parent -> what a first look finds, and whether it may serve.

Fixed prompts are answered greedily by both. A candidate that lost its language says so at once: it repeats itself, says
nothing, or would hardly ever have said what its parent says. Knows tokens; what a probe says is the renderer's.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from openclaw_rl.protocols import Engine
from openclaw_rl.types import BACKGROUND, GenerateRequest, Json, Sampling, ScoreRequest

PROBES = (
    "What is the capital of France?",
    "Explain in two sentences why the sky is blue.",
    "Write a short thank-you note to a colleague.",
    "How many minutes are there in three hours?",
    "Give me a recipe for pancakes.",
    "What should I pack for a weekend in the mountains?",
    "Summarise the story of Little Red Riding Hood.",
    "Write a Python function that reverses a string.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """Beyond these a candidate is rejected."""

    max_kl: float
    """Mean over the parent's tokens of log p(parent) − log p(candidate), in nats."""
    min_distinct: float
    """Share of different pairs of tokens among all pairs of an answer, the mean over the probes."""
    max_tokens: int = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """What was measured; `reason` is empty where nothing stands against it."""

    kl: float
    distinct: float
    mean_tokens: float
    reason: str = ""

    def to_json(self) -> Json:
        return {"kl": self.kl, "distinct": self.distinct, "mean_tokens": self.mean_tokens, "reason": self.reason}


class Gate:
    """Compares versions on one engine. `probes` are prompts, rendered up to where an answer begins."""

    def __init__(
        self, engine: Engine, probes: Sequence[Sequence[int]], stop_token_ids: tuple[int, ...], limits: GateLimits
    ) -> None:
        self._engine = engine
        self._probes = [tuple(probe) for probe in probes]
        self._stop = stop_token_ids
        self._limits = limits

    async def measure(self, candidate: str, parent: str) -> GateReport:
        """Both versions are loaded."""
        said_before = await self._answers(parent)
        sequences = tuple(probe + answer for probe, answer in zip(self._probes, said_before, strict=True))
        starts = tuple(map(len, self._probes))
        before = await self._logprobs(sequences, starts, parent)
        after = await self._logprobs(sequences, starts, candidate)
        kl = fmean(
            was - now for one, other in zip(before, after, strict=True) for was, now in zip(one, other, strict=True)
        )
        answers = await self._answers(candidate)
        report = GateReport(kl=kl, distinct=fmean(map(distinct_pairs, answers)), mean_tokens=fmean(map(len, answers)))
        return replace(report, reason=self._objection(report))

    def _objection(self, report: GateReport) -> str:
        limits = self._limits
        if not math.isfinite(report.kl):
            return "its log-probs are not finite"
        if report.kl > limits.max_kl:
            return f"it is {report.kl:.2f} nats a token away from its parent; release.max_kl allows {limits.max_kl:g}"
        if report.distinct < limits.min_distinct:
            return (
                f"{report.distinct:.0%} of the token pairs in its answers differ; release.min_distinct asks for "
                f"{limits.min_distinct:.0%}"
            )
        return ""

    async def _answers(self, version: str) -> list[tuple[int, ...]]:
        return list(await asyncio.gather(*(self._answer(probe, version) for probe in self._probes)))

    async def _answer(self, probe: tuple[int, ...], version: str) -> tuple[int, ...]:
        request = GenerateRequest(
            request_id=f"gate-{secrets.token_hex(6)}",
            token_ids=probe,
            sampling=Sampling(max_tokens=self._limits.max_tokens, temperature=0.0),
            stop_token_ids=self._stop,
            version=version,
            priority=BACKGROUND,
        )
        return tuple([token async for delta in self._engine.generate(request) for token in delta.token_ids])

    async def _logprobs(
        self, sequences: tuple[tuple[int, ...], ...], starts: tuple[int, ...], version: str
    ) -> list[tuple[float, ...]]:
        request = ScoreRequest(
            request_id=f"gate-{secrets.token_hex(6)}", sequences=sequences, starts=starts, version=version
        )
        return [scored.logprobs for scored in await self._engine.score(request)]


def distinct_pairs(token_ids: Sequence[int]) -> float:
    """The share of different pairs of neighbours; an answer of one token repeats nothing."""
    pairs = list(pairwise(token_ids))
    return len(set(pairs)) / len(pairs) if pairs else 1.0
