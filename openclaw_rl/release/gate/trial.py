"""What both checks share: the candidate on trial, what it is tried with, and how far it is from its parent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from openclaw_rl.config.learning import ReleaseConfig
from openclaw_rl.protocols import Renderer, TaskExam
from openclaw_rl.release.gate.knowledge import Knowledge
from openclaw_rl.release.gate.probes import PROBES_BY_KIND, Prober, Probes
from openclaw_rl.release.gate.report import GateMeasure, GateReport
from openclaw_rl.release.gate.rules import Answers, behaviour_measures
from openclaw_rl.types import BASE_VERSION, ReplayedTurn, Version, line_kind

MIN_ANSWER = 8
"""Tokens that the drift on one prompt is spread over at least: "Yes." in place of a paragraph is no other language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One candidate, the version that it is compared with (None is the base model), and the line's last turns.

    `wishes` are the hints that its line learned from, the newest first.
    """

    candidate: Version
    parent: Version | None
    report: GateReport
    replayed: Sequence[ReplayedTurn] = ()
    wishes: Sequence[str] = ()

    @property
    def probes(self) -> Probes:
        return PROBES_BY_KIND[line_kind(self.candidate.line)]

    @property
    def label(self) -> str:
        return self.candidate.label

    @property
    def parent_label(self) -> str:
        return BASE_VERSION if self.parent is None else self.parent.label

    def add(self, measure: GateMeasure) -> None:
        self.report.measures.append(measure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What candidates are tried with."""

    prober: Prober
    renderer: Renderer
    knowledge: Knowledge
    limits: ReleaseConfig
    tasks: TaskExam | None = None

    async def behave(self, trial: Trial, said: Answers, *, max_tokens: int) -> None:
        """Adds the measures of behaviour. Only where one of them objects, the base model is asked what a person's
        wishes would make of its answers."""
        is_chat = trial.probes.chat
        found = behaviour_measures(said, self.limits, self.renderer, is_chat=is_chat, max_tokens=max_tokens)
        if trial.wishes and any(one.objection for one in found):
            probes = [answer.probe for answer in said.base]
            wished = await self.prober.ask_wished(probes, trial.wishes, max_tokens=max_tokens)
            told = Answers(candidate=said.candidate, parent=said.parent, base=said.base, wished=wished)
            found = behaviour_measures(told, self.limits, self.renderer, is_chat=is_chat, max_tokens=max_tokens)
        trial.report.measures.extend(found)


def drift_measure(was: Sequence[Sequence[float]], now: Sequence[Sequence[float]], limits: ReleaseConfig) -> GateMeasure:
    """The mean log-prob that the parent's own answers lose."""
    changes = [a - b for before, after in zip(was, now, strict=True) for a, b in zip(before, after, strict=True)]
    kl, limit = fmean(changes) if changes else 0.0, limits.max_kl
    if not math.isfinite(kl):
        objection = "its log-probs are not finite"
    elif kl > limit:
        objection = f"it is {kl:.2f} nats a token away from its parent; release.max_kl allows {limit:g}"
    else:
        objection = ""
    return GateMeasure(name="kl", candidate=kl, limit=f"≤ {limit:g}", objection=objection)


def worst_prompt_measure(
    name: str, drift: Mapping[str, tuple[Sequence[float], Sequence[float]]], limits: ReleaseConfig
) -> GateMeasure:
    """By the name of a prompt: the log-probs of an answer under the version that it is near to, and under the other."""
    far = {
        prompt: (sum(near) - sum(other)) / max(MIN_ANSWER, len(other)) for prompt, (near, other) in drift.items()
    } or {"nothing": 0.0}
    worst, limit = max(far, key=lambda prompt: far[prompt]), limits.max_kl_prompt
    objection = ""
    if not all(map(math.isfinite, far.values())):
        objection = "its log-probs are not finite"
    elif far[worst] > limit:
        objection = (
            f"what it says at {worst} is {far[worst]:.2f} nats a token away from its parent; "
            f"release.max_kl_prompt allows {limit:g}"
        )
    return GateMeasure(name=name, candidate=far[worst], limit=f"≤ {limit:g}", objection=objection)
