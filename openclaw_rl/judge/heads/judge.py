"""Evidence -> a verdict: the heads where they are sure, else the rules where they are, else nobody.

    people wrote         heads at SURE or more; else what the rules read as praise or blame; else abstained, as is
                         where the two contradict each other
    only tools answered  the rules
    words to the judge   the rules, which know such words

The hint is what the person wrote, word for word, where the hint head hears a correction or a wish in it. A reaction
about the matter is marked as a claim: then neither its score nor its words are learned. So are scores of answers to
questions of fact, and of what stands on a claim (rules/claims.py); words about the form still teach there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.heads.check import MATTER, SURE
from openclaw_rl.judge.heads.examples import Said
from openclaw_rl.judge.heads.model import CODE, Heads, Opinion
from openclaw_rl.judge.heads.states import States
from openclaw_rl.judge.hints import accept_hints
from openclaw_rl.judge.rules import RulesJudge, Standing, is_spoofed, standing_of
from openclaw_rl.types import NOT_ASKED, Evidence, Score, Verdict, Vote

log = logging.getLogger(__name__)

HINT, LONE_HINT = 0.5, 0.7
"""Probability of a correction from which the words are a hint: beside a bad score, and where no score is sure."""
MATTER_OF_FACT = 0.15
"""As MATTER, for hints where a question of fact was answered: there most that is said is about the fact."""
MIN_HINT_CHARS = 3
"""A person's own words may be short: "list!", and in Chinese three characters say much."""
_EARLIER = 6
"""Reactions before this one that are read for claims: the last ones."""


class HeadsJudge:
    """`prepare` brings the heads, and may take a minute; until it has, and where it fails, the rules judge alone."""

    name = "heads"

    def __init__(self, prepare: Callable[[], Awaitable[tuple[Heads, States]]], *, max_candidates: int = 3) -> None:
        self._rules = RulesJudge(max_candidates=max_candidates)
        self.prompt_version = f"heads-{CODE}+{self._rules.prompt_version}"
        self._prepare = prepare
        self._max_candidates = max_candidates
        self._ready: tuple[Heads, States] | None = None
        self._preparing: asyncio.Task[None] | None = None
        self.trouble = ""
        """Why there are no heads; empty while they are there, or on their way."""

    async def judge(self, evidence: Evidence) -> Verdict:
        self._begin()
        by_rules = self._rules.verdict(evidence)
        reaction = Said.of(evidence)
        if self._ready is None:
            return _named(by_rules, missing=self.trouble or "they are being loaded")
        if not reaction.said.strip() or is_spoofed(reaction.said):
            return _named(by_rules)
        try:
            (opinion,) = await self._opinions([reaction])
        except JudgeError as error:
            return Verdict(outcome="failed", reason=str(error))
        return self._decided(evidence, reaction, opinion, by_rules)

    async def marked(self, evidence: Evidence, verdict: Verdict) -> Verdict:
        """The verdict with a vote for what of it rests on somebody's word."""
        if self._ready is None:
            return await self._rules.marked(evidence, verdict)
        standing = await asyncio.to_thread(standing_of, evidence)
        if standing.is_free:
            return verdict
        reaction = Said.of(evidence)
        reactions = [reaction, *(Said(*one) for one in standing.earlier[-_EARLIER:])]
        try:
            now, *before = await self._opinions(reactions)
        except JudgeError as error:
            return Verdict(outcome="failed", reason=str(error))
        return _marked(verdict, standing, reaction, now, before)

    async def prepared(self) -> bool:
        """Waits for the heads; whether they are there."""
        self._begin()
        assert self._preparing is not None
        await asyncio.wait((self._preparing,))
        return self._ready is not None

    def forget(self) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Ends the fitting, if it is under way."""
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.wait((self._preparing,))

    def _begin(self) -> None:
        if self._preparing is None:
            self._preparing = asyncio.create_task(self._bring(), name="heads")

    async def _bring(self) -> None:
        try:
            self._ready = await self._prepare()
        except JudgeError as error:
            self.trouble = str(error)
            log.warning("the rules judge alone: %s", error)

    async def _opinions(self, reactions: Sequence[Said]) -> list[Opinion]:
        assert self._ready is not None
        heads, states = self._ready
        return heads.opinions(reactions, await states.read(reactions))

    def _decided(self, evidence: Evidence, reaction: Said, opinion: Opinion, by_rules: Verdict) -> Verdict:
        heads = f"heads: {opinion.score:+d} at {opinion.sureness:.2f}"
        is_sure, rules = opinion.sureness >= SURE, by_rules.score or 0
        score: Score | None
        if is_sure and opinion.score * rules < 0:  # one of them has misheard, and nobody knows who
            score, raw = None, f"{heads}, rules: {by_rules.reason}; they contradict each other"
        elif is_sure and (opinion.score or not rules):
            score, raw = opinion.score, heads
        elif rules:
            score, raw = by_rules.score, f"rules: {by_rules.reason}; {heads}"
        else:
            score, raw = None, f"{heads} only; rules: {by_rules.reason}"
        is_wish = opinion.hint >= (LONE_HINT if score is None else HINT)
        is_hint = is_wish and score != 1 and rules <= 0
        hint = Vote(
            question="hint",
            score=1 if is_hint else -1,
            hint=quoted(reaction.said) if is_hint else "",
            raw=f"heads: {opinion.hint:.2f}",
        )
        votes = (*(() if score is None else (Vote(question="score", score=score, raw=raw),)), hint)
        hints = accept_hints(votes, evidence, max_candidates=self._max_candidates, min_chars=MIN_HINT_CHARS)
        if score is None:
            return Verdict(outcome="abstained", reason=raw, votes=votes, hints=hints)
        return Verdict(outcome="scored", score=score, reason=raw, votes=votes, hints=hints)


def quoted(said: str) -> str:
    """The person's own words as a hint: nothing is put into other words, so nothing is turned round."""
    return " ".join(said.split())


def _marked(verdict: Verdict, standing: Standing, reaction: Said, now: Opinion, before: Sequence[Opinion]) -> Verdict:
    is_claim = now.matter >= MATTER and verdict.score != 1 and not standing.shows_code
    told = [
        *standing.told,
        *(
            one[2]
            for one, opinion in zip(standing.earlier[-_EARLIER:], before, strict=True)
            if opinion.matter >= MATTER
        ),
    ]
    if is_claim:
        raw, keeps = reaction.said, False
    elif standing.is_fact:
        raw, keeps = "a question of fact", now.matter < MATTER_OF_FACT
    elif told:
        raw, keeps = "; ".join(told), True
    else:
        return verdict
    hints = verdict.hints or ("",)
    votes = tuple(
        Vote(question="claim", score=1, hint=hint, rest=hint if keeps else "", raw=f"{raw} ({now.matter:.2f})")
        for hint in hints
    )
    return replace(verdict, votes=verdict.votes + votes)


def _named(by_rules: Verdict, *, missing: str = "") -> Verdict:
    """The verdict of the rules, with why it is theirs."""
    why = f"{NOT_ASKED}heads: {missing}" if missing else ""
    return replace(by_rules, reason=f"rules: {by_rules.reason}{why}")
