"""Several judges as one: the next is asked when one cannot say.

The first that scores decides, and the reason names it together with what those before it said. Where nobody scores it
is a failure if anybody failed, since asking again may help, and an abstention otherwise. Hints of a judge that
abstained are kept where the one that decided has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openclaw_rl.errors import JudgeError
from openclaw_rl.protocols import Judge
from openclaw_rl.types import Evidence, Verdict


class Chain:
    """`protocols.Judge` over judges in the order in which they are asked; closes them."""

    def __init__(self, judges: Sequence[Judge]) -> None:
        if not judges:
            raise JudgeError("a chain needs at least one judge; name it in evaluation.judge")
        self.name = "+".join(judge.name for judge in judges)
        self.prompt_version = "+".join(judge.prompt_version for judge in judges)
        self._judges = tuple(judges)

    async def judge(self, evidence: Evidence) -> Verdict:
        """The first score, or why there is none."""
        asked: list[Verdict] = []
        said: list[str] = []
        for judge in self._judges:
            verdict = await judge.judge(evidence)
            asked.append(verdict)
            said.append(f"{judge.name} {verdict.outcome}{f' ({verdict.reason})' if verdict.reason else ''}")
            if verdict.outcome == "scored":
                break
        decisive = asked[-1]
        if decisive.outcome != "scored":
            decisive = next((verdict for verdict in asked if verdict.outcome == "failed"), decisive)
        hints = next((v.hints for v in (decisive, *asked) if v.hints and v.outcome != "failed"), ())
        return replace(decisive, reason="; ".join(reversed(said)), hints=hints)

    def forget(self) -> None:
        """Every judge forgets."""
        for judge in self._judges:
            judge.forget()

    async def close(self) -> None:
        """Closes every judge."""
        for judge in self._judges:
            await judge.close()
