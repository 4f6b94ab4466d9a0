"""Known cases for a judge: replies that a person plainly liked or plainly rejected, and whether it got them right.

Every batch carries one of each. A judge that calls a plain thank-you bad, or a plain rejection good, is not believed
about the rest of the batch. A judge without an answer has not lied, but has proved nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Literal, Self

from openclaw_rl.judge.evidence import evidence_from_json
from openclaw_rl.types import Evidence, Score, Verdict

CANARIES_FILE = Path(__file__).with_name("canaries.jsonl")

CanaryFinding = Literal["right", "wrong", "silent"]
"""How a judge did on its canaries. One that was `silent` is not believed, and not blamed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """A case whose score nobody would dispute."""

    evidence: Evidence
    expected: Score

    def finding(self, verdict: Verdict) -> CanaryFinding:
        """`wrong` only if the verdict is the opposite: a judge may be hard to please and say neutral."""
        if verdict.score is None:
            return "silent"
        return "wrong" if verdict.score == -self.expected else "right"


class Canaries:
    """Cases in turn, one good and one bad at a time."""

    def __init__(self, cases: Iterable[Canary], *, random: Random | None = None) -> None:
        cases = list(cases)
        self._good = cycle([case for case in cases if case.expected > 0])
        self._bad = cycle([case for case in cases if case.expected < 0])
        self._random = random or Random()

    @classmethod
    def shipped(cls) -> Self:
        """Those of `canaries.jsonl`."""
        lines = CANARIES_FILE.read_text(encoding="utf-8").splitlines()
        return cls([_canary(line) for line in lines])

    def pair(self) -> tuple[Canary, Canary]:
        """The next good one and the next bad one."""
        return self._fresh(next(self._good)), self._fresh(next(self._bad))

    def _fresh(self, canary: Canary) -> Canary:
        """The case with a number of its own, so that no cached answer is used."""
        *before, asked = canary.evidence.request
        numbered = replace(asked, content=f"{asked.content} (request {self._random.randrange(10**9)})")
        return replace(canary, evidence=replace(canary.evidence, request=(*before, numbered)))


def examine(canaries: Sequence[Canary], verdicts: Sequence[Verdict]) -> CanaryFinding:
    """`wrong` if one verdict is wrong, `right` if all are right."""
    findings = {canary.finding(verdict) for canary, verdict in zip(canaries, verdicts, strict=True)}
    if "wrong" in findings:
        return "wrong"
    return "silent" if "silent" in findings else "right"


def _canary(line: str) -> Canary:
    raw = json.loads(line)
    return Canary(expected=raw.pop("expected"), evidence=evidence_from_json(raw))
