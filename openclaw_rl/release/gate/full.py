"""A candidate beside the last confirmed version and the base model: everything that can be measured in a minute or two.

    drift        how far it is from its parent, on average and on any single prompt; the line's own turns are among them
    behaviour    what kind of answers it gives
    replay       whether it moves to where the user pointed
    capability   what it still knows, question by question
    tasks        how much it does of tasks that were held out of training

The kind of the line decides what is asked (`probes.PROBES_BY_KIND`). A line of people is tried on frozen chat prompts,
its own turns and capability questions; an environment's line on its own turns and held-out tasks.

The cheap checks come first, and the first that fails ends the comparison. Nothing here looks at a reward: a policy that
learned to please a judge is recognised by its behaviour.
"""

from __future__ import annotations

from statistics import fmean

from openclaw_rl.errors import EnvError, TaskError
from openclaw_rl.evaluation.measures import mean_interval, paired_difference
from openclaw_rl.release.gate.probes import ProbeAnswer, replayed_probes
from openclaw_rl.release.gate.report import GateMeasure
from openclaw_rl.release.gate.rules import Answers
from openclaw_rl.release.gate.trial import Tools, Trial, drift_measure, worst_prompt_measure
from openclaw_rl.types import BASE_VERSION

_MIN_JUDGED = 4
"""Judged turns of which a direction can be told."""


class FullCheck:
    """One candidate; the version that it is compared with is loaded beside it."""

    def __init__(self, tools: Tools, trial: Trial) -> None:
        self._tools = tools
        self._trial = trial
        self._own_answers: dict[str, tuple[ProbeAnswer, ...]] = {}
        """By version: what it says to the replayed turns."""

    async def run(self) -> None:
        """Adds its measures to the report of the trial, up to the first objection."""
        for look in (
            self._drift,
            self._behaviour,
            self._worst_prompt,
            self._on_replay,
            self._knowledge,
            self._held_out,
        ):
            await look()
            if self._trial.report.reason:
                break

    async def _answers(self, label: str) -> tuple[ProbeAnswer, ...]:
        """A version's answers to the frozen prompts, or to the line's own turns where its kind is not asked those."""
        if self._trial.probes.chat or not self._trial.replayed:
            return await self._tools.prober.frozen(label)
        return await self._replies(label)

    async def _replies(self, label: str) -> tuple[ProbeAnswer, ...]:
        if label not in self._own_answers:
            probes = replayed_probes(self._trial.replayed)
            self._own_answers[label] = await self._tools.prober.ask(probes, label)
        return self._own_answers[label]

    async def _drift(self) -> None:
        said = [answer for answer in await self._answers(self._trial.parent_label) if answer.token_ids]
        now = await self._tools.prober.logprobs([answer.passage for answer in said], self._trial.label)
        self._trial.add(drift_measure([answer.logprobs for answer in said], now, self._tools.limits))

    async def _behaviour(self) -> None:
        trial, tools = self._trial, self._tools
        said = Answers(
            parent=await self._answers(trial.parent_label),
            base=await self._answers(BASE_VERSION),
            candidate=await self._answers(trial.label),
        )
        await tools.behave(trial, said, max_tokens=tools.limits.answer_tokens)

    async def _worst_prompt(self) -> None:
        """The largest drift on a single prompt, measured on the candidate's own answer: a hidden trigger shows only
        there."""
        trial, answered = self._trial, await self._answers(self._trial.label)
        own = await self._replies(trial.label)
        frozen = () if answered is own else answered
        names = [*(f"probe {at}" for at in range(len(frozen))), *(f"turn {turn.id}" for turn in trial.replayed)]
        answers = [*frozen, *own]
        parent = await self._tools.prober.logprobs([answer.passage for answer in answers], trial.parent_label)
        drift = {name: (answer.logprobs, was) for name, answer, was in zip(names, answers, parent, strict=True)}
        trial.add(worst_prompt_measure("kl_prompt", drift, self._tools.limits))

    async def _on_replay(self) -> None:
        trial, prober = self._trial, self._tools.prober
        judged = [turn for turn in trial.replayed if turn.score]
        if not judged:
            return
        said = [(turn.prompt_ids, turn.response_ids) for turn in judged]
        before, after = [await prober.logprobs(said, label) for label in (trial.parent_label, trial.label)]
        moved = [
            (turn.score or 0) * (fmean(now) - fmean(was)) for turn, was, now in zip(judged, before, after, strict=True)
        ]
        mean, limit, objection = fmean(moved), self._tools.limits.max_against, ""
        if len(moved) >= _MIN_JUDGED and (against := mean_interval(moved, seed=0)).high < -limit:
            objection = (
                f"it goes against what the user said of {len(moved)} replayed turns, by {-against.value:.2f} nats a "
                f"token; release.max_against allows {limit:g}"
            )
        trial.add(GateMeasure(name="towards_user", candidate=mean, limit=f"≥ {-limit:g}", objection=objection))

    async def _knowledge(self) -> None:
        if self._tools.knowledge.items and self._trial.probes.capability:
            await self._tools.knowledge.check(self._trial.report, self._trial.label, self._trial.parent)

    async def _held_out(self) -> None:
        """Tasks that cannot be tried now are no objection, and the report says that they were not."""
        trial, limits, exam = self._trial, self._tools.limits, self._tools.tasks
        if exam is None or trial.probes.chat or not limits.held_out_tasks:
            return
        try:
            done = await exam(trial.candidate.line, (trial.parent_label, trial.label), num_tasks=limits.held_out_tasks)
        except (EnvError, TaskError) as error:
            trial.report.unmeasured = f"held-out tasks: {error}"
            return
        if done is None:
            return
        before, after = done
        change, limit, objection = paired_difference(before, after, 0, is_share=True), limits.max_task_loss, ""
        if -change.value > limit and change.high < 0:
            objection = (
                f"it does {-change.value:.0%} less of {len(after)} held-out tasks than its parent; "
                f"release.max_task_loss allows {limit:.0%}"
            )
        trial.add(
            GateMeasure(
                name="held_out",
                candidate=fmean(after),
                parent=fmean(before),
                limit=f"≥ {-limit:g}",
                objection=objection,
            )
        )
