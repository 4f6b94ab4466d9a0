"""Known cases for a judge: replies that a person plainly liked or plainly rejected, and whether it got them right.

Every batch carries one of each. A judge that calls a plain thank-you bad, or a plain rejection good, is not believed
about anything else in that batch either. No answer, or no opinion, is no lie; but then nothing is proved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Literal, Self

from openclaw_rl.judge.evidence import evidence_from_json
from openclaw_rl.protocols import Judge
from openclaw_rl.types import Evidence, Score, Verdict

CANARIES_FILE = Path(__file__).with_name("canaries.jsonl")

Finding = Literal["right", "wrong", "silent"]
"""What a judge made of its canaries: `silent` is neither, so it is not believed and not blamed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """A case whose score nobody would dispute."""

    evidence: Evidence
    expected: Score

    def finding(self, verdict: Verdict) -> Finding:
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
        """With a number of its own: an answer out of a cache would say nothing about the judge of today."""
        *before, asked = canary.evidence.request
        numbered = replace(asked, content=f"{asked.content} (request {self._random.randrange(10**9)})")
        return replace(canary, evidence=replace(canary.evidence, request=(*before, numbered)))


class Examined:
    """A judge that canaries are for. It tells `noting_who_is_asked` when it has a say."""

    def __init__(self, inner: Judge) -> None:
        self.name, self.prompt_version = inner.name, inner.prompt_version
        self.inner = inner

    async def judge(self, evidence: Evidence) -> Verdict:
        _asked.get(set()).add(self)
        return await self.inner.judge(evidence)

    def forget(self) -> None:
        self.inner.forget()

    async def close(self) -> None:
        await self.inner.close()


_asked: ContextVar[set[Examined]] = ContextVar("asked")


@contextmanager
def noting_who_is_asked() -> Iterator[set[Examined]]:
    """Who has a say inside, however deep in a chain. Of this task alone: several cases are judged at once."""
    asked: set[Examined] = set()
    token = _asked.set(asked)
    try:
        yield asked
    finally:
        _asked.reset(token)


def examine(canaries: Sequence[Canary], verdicts: Sequence[Verdict]) -> Finding:
    """What the verdicts on all of them come to: one wrong one spoils it, and right means all of them."""
    findings = {canary.finding(verdict) for canary, verdict in zip(canaries, verdicts, strict=True)}
    if "wrong" in findings:
        return "wrong"
    return "silent" if "silent" in findings else "right"


def _canary(line: str) -> Canary:
    raw = json.loads(line)
    return Canary(expected=raw.pop("expected"), evidence=evidence_from_json(raw))
