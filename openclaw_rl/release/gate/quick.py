"""A candidate beside the version that answers: what no bad update passes, in seconds.

    distance     what the trainer, which has both weights, says of the parent's answers to the probes and of the
                 person's replayed turns, in one pass; that it is finite comes first
    behaviour    a few short greedy answers, by the rules of the full check
    capability   questions in a mixed order, until a loss can be ruled out

A version that passes answers on probation: the full check follows in the background, and confirms it or takes it back.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.release.gate.probes import replayed_probes
from openclaw_rl.release.gate.proving import Proving
from openclaw_rl.release.gate.rules import Answers
from openclaw_rl.release.gate.trial import Tools, Trial, drift_measure, worst_prompt_measure
from openclaw_rl.types import BASE_VERSION, ReplayedTurn, Version

REPLAYED_TOKENS = 1024
"""Of the person's last turns, prompts and replies together, as many as fit; the last two are answered too."""

_NUM_ANSWERED = 2


class QuickCheck:
    """One candidate, on the version that answers. `confirmed` is the last version that a full check let answer."""

    def __init__(self, tools: Tools, trial: Trial, proving: Proving, *, confirmed: Version | None) -> None:
        self._tools = tools
        self._trial = trial
        self._proving = proving
        self._confirmed = confirmed
        self._replayed = _fitting(trial.replayed)

    async def run(self) -> None:
        """Adds its measures to the report of the trial, up to the first objection."""
        for look in (self._distance, self._behaviour, self._knowledge):
            await look()
            if self._trial.report.reason:
                break

    async def _distance(self) -> None:
        trial, limits = self._trial, self._tools.limits
        also = [(turn.prompt_ids, turn.response_ids) for turn in self._replayed]
        read = await self._proving.read(trial.candidate, trial.parent, also=also)
        num = len(read.passages) - len(also)
        trial.add(drift_measure(read.parent[:num], read.candidate[:num], limits))
        if trial.report.reason or not also:
            return
        of_turns = zip(self._replayed, read.parent[num:], read.candidate[num:], strict=True)
        drift = {f"turn {turn.id}": (was, now) for turn, was, now in of_turns}
        trial.add(worst_prompt_measure("kl_turn", drift, limits))

    async def _behaviour(self) -> None:
        trial, prober, most = self._trial, self._tools.prober, self._tools.prober.begun_tokens
        own = replayed_probes(self._replayed[:_NUM_ANSWERED])
        if trial.probes.chat or not own:
            parent, base = [await prober.begun(label) for label in (trial.parent_label, BASE_VERSION)]
            asked = [*(answer.probe for answer in base), *own]
            answers = await prober.ask(asked, trial.label, max_tokens=most)
            said = Answers(candidate=answers[: len(base)], parent=parent, base=base)
        else:
            asked = list(own)
            answers, parent, base = [
                await prober.ask(asked, label, max_tokens=most)
                for label in (trial.label, trial.parent_label, BASE_VERSION)
            ]
            said = Answers(candidate=answers, parent=parent, base=base)
        await self._tools.behave(trial, said, max_tokens=most)
        if not trial.report.reason:
            was = await prober.logprobs([answer.passage for answer in answers], trial.parent_label)
            names = [f"probe {at}" for at in range(len(asked))]
            drift = {name: (one.logprobs, before) for name, one, before in zip(names, answers, was, strict=True)}
            trial.add(worst_prompt_measure("kl_prompt", drift, self._tools.limits))

    async def _knowledge(self) -> None:
        if self._tools.knowledge.items and self._trial.probes.capability:
            await self._tools.knowledge.check_quickly(self._trial.report, self._trial.label, self._confirmed)


def _fitting(turns: Sequence[ReplayedTurn]) -> tuple[ReplayedTurn, ...]:
    """The newest, as many as fit."""
    left, found = REPLAYED_TOKENS, []
    for turn in turns:
        left -= len(turn.prompt_ids) + len(turn.response_ids)
        if left < 0:
            break
        found.append(turn)
    return tuple(found)
