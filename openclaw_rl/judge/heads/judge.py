"""The two judges that need no model of their own: `rules`, with heads on n-grams, and `heads`, on the served model.

Both decide as deciding.py says. Until the heads on hidden states are there, and where they never come, `heads` judges
like `rules`. Where only tools answered, and on words to the judge, the rules judge alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.heads.check import OF_GRAMS, OF_HEADS
from openclaw_rl.judge.heads.deciding import Context, Scales, decided, marked, reaction_of
from openclaw_rl.judge.heads.model import CODE, GramHeads, Heads, shipped_grams
from openclaw_rl.judge.heads.states import States
from openclaw_rl.judge.rules import verdict_of
from openclaw_rl.types import NOT_ASKED, Evidence, Verdict

log = logging.getLogger(__name__)


class RulesJudge:
    """`protocols.Judge` without any engine; the same every time."""

    name = "rules"
    prompt_version = f"rules-4+n-grams-{CODE}"

    def __init__(self, *, max_candidates: int = 3, grams: GramHeads | None = None) -> None:
        self._scales = Scales("n-grams", OF_GRAMS, max_candidates)
        self._grams = grams

    async def judge(self, evidence: Evidence) -> Verdict:
        # In a thread: a few milliseconds for each text, and a turn may have many.
        return await asyncio.to_thread(self.verdict, evidence)

    def verdict(self, evidence: Evidence) -> Verdict:
        """What is judged; pure."""
        by_rules, reaction = verdict_of(evidence), reaction_of(evidence)
        if reaction is None:
            return _by_rules(by_rules)
        (opinion,) = (self._grams or shipped_grams()).opinions([reaction])
        return decided(evidence, reaction, opinion, by_rules, self._scales)

    async def marked(self, evidence: Evidence, verdict: Verdict) -> Verdict:
        """The verdict with a vote for what of it rests on somebody's word. In a thread: it reads the conversation."""
        return await asyncio.to_thread(self._marked, evidence, verdict)

    def _marked(self, evidence: Evidence, verdict: Verdict) -> Verdict:
        context = Context.of(evidence)
        if context.standing.is_free:
            return verdict
        opinions = (self._grams or shipped_grams()).opinions(context.reactions)
        return marked(verdict, context, opinions, self._scales)

    def forget(self) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """There is nothing to end."""


class HeadsJudge:
    """`prepare` brings the heads, and may take a minute."""

    name = "heads"

    def __init__(self, prepare: Callable[[], Awaitable[tuple[Heads, States]]], *, max_candidates: int = 3) -> None:
        self._rules = RulesJudge(max_candidates=max_candidates)
        self._scales = Scales("heads", OF_HEADS, max_candidates)
        self.prompt_version = f"heads-{CODE}+{self._rules.prompt_version}"
        self._prepare = prepare
        self._ready: tuple[Heads, States] | None = None
        self._preparing: asyncio.Task[None] | None = None
        self.trouble = ""
        """Why there are no heads; empty while they are there, or on their way."""

    async def judge(self, evidence: Evidence) -> Verdict:
        self._begin()
        if self._ready is None:
            verdict = await self._rules.judge(evidence)
            why = f"{NOT_ASKED}heads: {self.trouble or 'they are being loaded'}"
            return replace(verdict, reason=f"{verdict.reason}{why}")
        heads, states = self._ready
        by_rules, reaction = await asyncio.to_thread(lambda: (verdict_of(evidence), reaction_of(evidence)))
        if reaction is None:
            return _by_rules(by_rules)
        try:
            (opinion,) = heads.opinions([reaction], await states.read([reaction]))
        except JudgeError as error:
            return Verdict(outcome="failed", reason=str(error))
        return decided(evidence, reaction, opinion, by_rules, self._scales)

    async def marked(self, evidence: Evidence, verdict: Verdict) -> Verdict:
        """The verdict with a vote for what of it rests on somebody's word."""
        if self._ready is None:
            return await self._rules.marked(evidence, verdict)
        heads, states = self._ready
        context = await asyncio.to_thread(Context.of, evidence)
        if context.standing.is_free:
            return verdict
        try:
            opinions = heads.opinions(context.reactions, await states.read(context.reactions))
        except JudgeError as error:
            return Verdict(outcome="failed", reason=str(error))
        return marked(verdict, context, opinions, self._scales)

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
            log.warning("the heads on n-grams judge without those on hidden states: %s", error)


def _by_rules(verdict: Verdict) -> Verdict:
    """The verdict of the rules alone, and said to be theirs."""
    return replace(verdict, reason=f"rules: {verdict.reason}")
