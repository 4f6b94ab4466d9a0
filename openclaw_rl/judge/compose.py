"""The configured judges as one: how a verdict comes about, from top to bottom of `Composed.decide`.

    0  a hint that the person wrote outright stands alone: it takes the place of all that a judge would read
    1  a score that the person gave outright stands: nobody is asked for another
    2  what the reply shows of itself (judge/findings.py) is -1 whatever anybody votes; where a person spoke, judges are
       asked for their hints alone
    3  what the person wrote beside a score is read like a message of theirs
    4  the judges are asked in their order, until one scores
    5  the verdict of a judge that marks claims (the rules, by their word lists) is marked by it, and no other is
    6  the explicit score, where there is one, takes the place of the one that was read; the hints stay

A judge that hangs or raises has failed, and the next one is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from openclaw_rl.errors import JudgeError
from openclaw_rl.judge import findings
from openclaw_rl.protocols import Judge
from openclaw_rl.types import Evidence, Message, Score, Verdict, Vote, hint_in

log = logging.getLogger(__name__)


@runtime_checkable
class MarksClaims(Protocol):
    """A judge that can tell which of its verdicts rest on what somebody says is so."""

    async def marked(self, evidence: Evidence, verdict: Verdict) -> Verdict: ...


@dataclass(frozen=True, slots=True)
class Decided:
    """The verdict, and the judges who were asked for it."""

    verdict: Verdict
    asked: tuple[Judge, ...] = ()


class Composed:
    """`protocols.Judge` over judges in the order in which they are asked; closes them."""

    def __init__(self, judges: Sequence[Judge], *, deadline_s: float | None = None) -> None:
        if not judges:
            raise JudgeError("there must be at least one judge; name it in evaluation.judge")
        self._judges = tuple(judges)
        self._deadline_s = deadline_s

    @property
    def name(self) -> str:
        return "+".join(judge.name for judge in self._judges)

    @property
    def prompt_version(self) -> str:
        return "+".join(judge.prompt_version for judge in self._judges)

    async def judge(self, evidence: Evidence) -> Verdict:
        return (await self.decide(evidence)).verdict

    async def decide(self, evidence: Evidence) -> Decided:
        """The verdict on a reply; see the module."""
        feedback = sorted(evidence.feedback, key=lambda given: given.given_at)
        scores = [given.score for given in feedback if given.score is not None]
        if (own := next((hint for given in reversed(feedback) if (hint := hint_in(given.text))), None)) is not None:
            return Decided(await self._own(own, scores[-1] if scores else -1, evidence))
        written = tuple(Message(role="user", content=given.text) for given in feedback if given.text.strip())
        following = evidence.following + written
        if not following and not scores:
            return Decided(Verdict(outcome="abstained", reason="the feedback is blank"))
        found = () if scores else findings.find(evidence)
        if found and not any(message.role == "user" for message in following):
            return Decided(findings.verdict_of(found))
        read = Decided(Verdict(outcome="abstained", reason="nothing was written"))
        if following:
            read = await self._read(replace(evidence, following=following, feedback=()))
        if found:
            return Decided(findings.verdict_of(found, read=read.verdict), read.asked)
        if not scores:
            return read
        # The words beside the score were read by the last judge who was asked; a score alone is the first one's.
        decided_by = read.asked[-1] if read.verdict.outcome == "scored" else self._judges[0]
        verdict = await _marked(decided_by, evidence, _explicit(scores[-1], read))
        return Decided(verdict, read.asked)

    async def _own(self, hint: str, score: Score, evidence: Evidence) -> Verdict:
        """The person's own hint as the verdict; whether it is about the matter is asked as of any other."""
        said = Vote(question="score", score=score, raw=f"explicit feedback: {score:+d}")
        wish = Vote(question="hint", score=1, hint=hint, raw=hint)
        verdict = Verdict(outcome="scored", score=score, reason="explicit feedback", votes=(said, wish), hints=(hint,))
        alone = replace(evidence, following=(Message(role="user", content=hint),), feedback=())
        return await _marked(self._judges[0], alone, verdict)

    async def _read(self, evidence: Evidence) -> Decided:
        """The first score, or why there is none."""
        asked: list[Verdict] = []
        said: list[str] = []
        for judge in self._judges:
            verdict = await _marked(judge, evidence, await ask(judge, evidence, deadline_s=self._deadline_s))
            asked.append(verdict)
            said.append(f"{judge.name} {verdict.outcome}{f' ({verdict.reason})' if verdict.reason else ''}")
            if verdict.outcome == "scored":
                break
        decisive = asked[-1]
        if decisive.outcome != "scored":  # a failure if any judge failed: asking again may help
            decisive = next((verdict for verdict in asked if verdict.outcome == "failed"), decisive)
        # A judge that abstained may still have a hint.
        hints = next((v.hints for v in (decisive, *asked) if v.hints and v.outcome != "failed"), ())
        reason = decisive.reason if len(self._judges) == 1 else "; ".join(reversed(said))
        return Decided(replace(decisive, reason=reason, hints=hints), self._judges[: len(asked)])

    def forget(self) -> None:
        """Every judge forgets."""
        for judge in self._judges:
            judge.forget()

    async def close(self) -> None:
        """Closes every judge."""
        for judge in self._judges:
            await judge.close()


async def ask(judge: Judge, evidence: Evidence, *, deadline_s: float | None) -> Verdict:
    """What one judge says. A judge may be anybody's code: its defects cost a verdict, never the server."""
    try:
        async with asyncio.timeout(deadline_s):
            return await judge.judge(evidence)
    except TimeoutError:
        return Verdict(outcome="failed", reason=f"no verdict within {deadline_s:g} s")
    except Exception as error:  # its words stay out of the log: they may quote the conversation
        log.error("the judge %s raised %s", judge.name, type(error).__name__)
        return Verdict(outcome="failed", reason=f"the judge raised {type(error).__name__}")


async def _marked(judge: Judge, evidence: Evidence, verdict: Verdict) -> Verdict:
    has_something = verdict.score is not None or verdict.hints
    return await judge.marked(evidence, verdict) if has_something and isinstance(judge, MarksClaims) else verdict


def _explicit(score: Score, read: Decided) -> Verdict:
    """The person's score, with the hints that were read in their words."""
    verdict = read.verdict
    vote = Vote(question="score", score=score, raw=f"explicit feedback: {score:+d}")
    reason = "explicit feedback" if verdict.outcome != "failed" else f"explicit feedback; no hints: {verdict.reason}"
    hinted = tuple(vote for vote in verdict.votes if vote.question == "hint")
    return Verdict(outcome="scored", score=score, reason=reason, votes=(vote, *hinted), hints=verdict.hints)
