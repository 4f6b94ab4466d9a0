"""Evidence -> a verdict by the votes of a model that is asked two questions several times.

Both questions are asked at once: the score, and whether the next state holds a correction, then with a hint. Votes
run concurrently; as soon as those that are out cannot change a decision they are cancelled, and are no votes then. How
a model is reached is the `Asker`'s: an endpoint, or an engine. It knows what the questions mean, not who answers.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.hints import accept_hints
from openclaw_rl.judge.model.majority import decide, is_settled
from openclaw_rl.judge.model.parsing import read_vote
from openclaw_rl.judge.model.prompting import ask_about, nonce_of, prompt_version
from openclaw_rl.types import Evidence, Message, Score, Verdict, Vote, VoteQuestion


class AskFailed(JudgeError):
    """There is no answer to one question. The message is for people; it holds no text of the conversation."""


class Asker(Protocol):
    """A model that can be asked. `AskFailed` is the only thing it raises for what the model or the network did.

    The same messages with another `seed` may be answered differently. Cancelling `ask` cancels the work.
    """

    name: str

    async def ask(self, messages: Sequence[Message], *, question: VoteQuestion, seed: int) -> str: ...

    async def close(self) -> None: ...


@runtime_checkable
class Remembering(Protocol):
    """An asker that keeps answers, and can be told not to use them again."""

    def forget(self) -> None: ...


@runtime_checkable
class Budgeted(Protocol):
    """An asker, or a judge over one, whose votes cost; None: nobody limits them."""

    @property
    def num_spent(self) -> int | None: ...


class PanelJudge:
    """`protocols.Judge` over an asker, which it closes.

    `majority_voting` False asks for one vote after the other, until one is valid. `nonce` is for tests.
    """

    def __init__(
        self,
        asker: Asker,
        *,
        num_judges: int = 3,
        majority_voting: bool = True,
        consensus_threshold: float = 0.5,
        max_candidates: int = 3,
        nonce: Callable[[Evidence], str] | None = None,
    ) -> None:
        self.name = asker.name
        self.prompt_version = prompt_version()
        self._asker = asker
        self._num_judges = num_judges
        self._majority_voting = majority_voting
        self._threshold = consensus_threshold
        self._max_candidates = max_candidates
        self._nonce = nonce or partial(nonce_of, secret=secrets.token_bytes(32))

    @property
    def num_spent(self) -> int | None:
        return self._asker.num_spent if isinstance(self._asker, Budgeted) else None

    async def judge(self, evidence: Evidence) -> Verdict:
        """Both questions; a score without hints where only the second one got no valid answer."""
        # In a thread: disarming 40,000 characters takes milliseconds, in which chat would stand still.
        messages = await asyncio.to_thread(lambda: ask_about(evidence, nonce=self._nonce(evidence)))
        async with asyncio.TaskGroup() as group:
            scoring = group.create_task(self._votes(messages["score"], "score"))
            hinting = group.create_task(self._votes(messages["hint"], "hint"))
        score_votes, hint_votes = scoring.result(), hinting.result()
        votes = (*score_votes, *hint_votes)
        scores, decisions = _valid(score_votes), _valid(hint_votes)
        if not scores:
            reason = f"no valid vote: {_failures(score_votes)}"
            return Verdict(outcome="failed", reason=reason, votes=votes)
        hints: tuple[str, ...] = ()
        remark = "" if decisions else f"no valid vote about hints: {_failures(hint_votes)}"
        if decisions and decide(decisions, self._threshold).score == 1:
            hints = accept_hints(hint_votes, evidence, max_candidates=self._max_candidates)
        decision = decide(scores, self._threshold)
        if decision.score is None:
            return Verdict(outcome="abstained", reason=decision.reason, votes=votes, hints=hints)
        return Verdict(outcome="scored", score=decision.score, reason=remark, votes=votes, hints=hints)

    def forget(self) -> None:
        """An asker that keeps answers forgets them."""
        if isinstance(self._asker, Remembering):
            self._asker.forget()

    async def close(self) -> None:
        """Closes the asker."""
        await self._asker.close()

    async def _votes(self, messages: Sequence[Message], question: VoteQuestion) -> tuple[Vote, ...]:
        if self._majority_voting:
            return await self._poll(messages, question)
        votes: list[Vote] = []
        while len(votes) < self._num_judges and not _valid(votes):
            votes.append(await self._vote(messages, question, seed=len(votes)))
        return tuple(votes)

    async def _poll(self, messages: Sequence[Message], question: VoteQuestion) -> tuple[Vote, ...]:
        """Votes until the decision is settled; nothing is left running, however this ends."""
        asking = [asyncio.create_task(self._vote(messages, question, seed=seed)) for seed in range(self._num_judges)]
        out = set(asking)
        votes: list[Vote] = []
        try:
            while out and not is_settled(_valid(votes), len(out), self._threshold):
                done, out = await asyncio.wait(out, return_when=asyncio.FIRST_COMPLETED)
                votes += [task.result() for task in asking if task in done]
        finally:
            for task in out:
                task.cancel()
            await asyncio.gather(*out, return_exceptions=True)
        return tuple(votes)

    async def _vote(self, messages: Sequence[Message], question: VoteQuestion, *, seed: int) -> Vote:
        try:
            answer = await self._asker.ask(messages, question=question, seed=seed)
        except AskFailed as error:
            return Vote(question=question, score=None, failure=str(error) or "no answer")
        return read_vote(question, answer)


def _valid(votes: Sequence[Vote]) -> list[Score]:
    return [vote.score for vote in votes if vote.score is not None]


def _failures(votes: Sequence[Vote]) -> str:
    """Why there is no valid vote, each reason once."""
    return "; ".join(dict.fromkeys(vote.failure for vote in votes))
