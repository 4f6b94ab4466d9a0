"""What people said outright comes first: a judge in front of any other.

The latest feedback with a score is the score, and nobody is asked for another one. What people wrote is read as what
the user said next: hints are taken from it, and the score where none was given.
"""

from __future__ import annotations

from dataclasses import replace

from openclaw_rl.protocols import Judge
from openclaw_rl.types import Evidence, Message, Verdict, Vote


class ExplicitFirst:
    """`protocols.Judge` in front of `inner`, under its name; closes it."""

    def __init__(self, inner: Judge) -> None:
        self.name = inner.name
        self.prompt_version = inner.prompt_version
        self._inner = inner

    async def judge(self, evidence: Evidence) -> Verdict:
        """The explicit score with the inner judge's hints, or the inner judge's verdict."""
        feedback = sorted(evidence.feedback, key=lambda given: given.given_at)
        written = tuple(Message(role="user", content=given.text) for given in feedback if given.text.strip())
        following = evidence.following + written
        scores = [given.score for given in feedback if given.score is not None]
        if not scores and not following:
            return Verdict(outcome="abstained", reason="the feedback is blank")
        if not scores:
            return await self._inner.judge(replace(evidence, following=following, feedback=()))
        vote = Vote(question="score", score=scores[-1], raw=f"explicit feedback: {scores[-1]:+d}")
        if not following:
            return Verdict(outcome="scored", score=scores[-1], reason="explicit feedback", votes=(vote,))
        verdict = await self._inner.judge(replace(evidence, following=following, feedback=()))
        reason = (
            "explicit feedback" if verdict.outcome != "failed" else f"explicit feedback; no hints: {verdict.reason}"
        )
        asked = tuple(vote for vote in verdict.votes if vote.question == "hint")
        return Verdict(outcome="scored", score=scores[-1], reason=reason, votes=(vote, *asked), hints=verdict.hints)

    def forget(self) -> None:
        """The inner judge forgets."""
        self._inner.forget()

    async def close(self) -> None:
        """Closes the inner judge."""
        await self._inner.close()
