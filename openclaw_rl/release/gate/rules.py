"""Answers of a candidate, of its parent and of the base model -> measures of behaviour, each beside its limit. Pure.

Rates are held against the base model, so that a slow decline over many versions is seen as well as a sudden one. What
a person asked for is no decline: where a limit is passed, the base model's answers with the person's wishes behind the
questions (`wished`) count like the base model's own. Who wants longer answers gets them; a policy that talks on and on
to please a judge has no wish to show for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from openclaw_rl.config.learning import ReleaseConfig
from openclaw_rl.protocols import Renderer
from openclaw_rl.release.gate.behaviour import Behaviour, behaviour, length_ratio
from openclaw_rl.release.gate.probes import ProbeAnswer
from openclaw_rl.release.gate.report import GateMeasure


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviourRule:
    """A number of `Behaviour`; `key` of `release` limits it by `limit`, and `relative` says to what.

    It may exceed the base model's by the limit, stay below it by the limit (`least`), or be a share of it (`share`).
    `words` say what the number counts. Some tell only of conversations.
    """

    name: str
    key: str
    words: str
    least: bool = False
    relative: Literal["more", "less", "share", "fixed"] = "more"
    chat_only: bool = False

    def allows(self, limits: ReleaseConfig, bases: Sequence[Behaviour]) -> float:
        """The limit, by whichever of the base model's ways allows most."""
        limit: float = getattr(limits, self.key)
        known: list[float] = [getattr(base, self.name) for base in bases]
        match self.relative:
            case "fixed":
                return limit
            case "share":
                return min(known) * limit
            case "less":
                return min(known) - limit
            case _:
                return max(known) + limit


RULES = (
    BehaviourRule(name="repetition", key="max_repetition", words="of it was said before"),
    BehaviourRule(name="empty", key="max_empty", words="of its answers are empty"),
    BehaviourRule(name="broken_calls", key="max_broken_calls", words="of its calls break"),
    BehaviourRule(name="refusals", key="max_refusals", words="of its answers refuse", chat_only=True),
    BehaviourRule(name="questions", key="max_questions", words="of its answers only ask back", chat_only=True),
    BehaviourRule(name="flattery", key="max_flattery", words="of its answers flatter", chat_only=True),
    BehaviourRule(
        name="distinct",
        key="min_distinct",
        words="of the token pairs in its answers differ",
        least=True,
        relative="fixed",
    ),
    # Who knows how a task is done has little left to choose; held-out tasks say whether it is.
    BehaviourRule(
        name="entropy",
        key="min_entropy",
        words="of a nat is left to choose",
        least=True,
        relative="share",
        chat_only=True,
    ),
    BehaviourRule(
        name="on_topic", key="max_off_topic", words="is on topic", least=True, relative="less", chat_only=True
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The same probes, answered by each."""

    candidate: Sequence[ProbeAnswer]
    parent: Sequence[ProbeAnswer]
    base: Sequence[ProbeAnswer]
    wished: Sequence[ProbeAnswer] = ()
    """The base model's, with the person's wishes behind the questions; empty where nobody wished anything."""


def behaviour_measures(
    said: Answers, limits: ReleaseConfig, renderer: Renderer, *, is_chat: bool, max_tokens: int
) -> list[GateMeasure]:
    """The length, the tokens, then every rule."""
    now, was, base = (behaviour(one, renderer) for one in (said.candidate, said.parent, said.base))
    bases = [base, *([behaviour(said.wished, renderer)] if said.wished else [])]
    rules = [rule for rule in RULES if is_chat or not rule.chat_only]
    return [
        _length(said, limits, max_tokens=max_tokens),
        GateMeasure(name="tokens", candidate=now.tokens, parent=was.tokens, base=base.tokens),
        *(_measure(rule, now, was, base, allowed=rule.allows(limits, bases)) for rule in rules),
    ]


def _length(said: Answers, limits: ReleaseConfig, *, max_tokens: int) -> GateMeasure:
    others = [said.parent, said.base, *([said.wished] if said.wished else [])]
    ratio, limit = length_ratio(said.candidate, *others, max_tokens=max_tokens), limits.max_length
    is_fine = ratio <= limit
    objection = "" if is_fine else f"its answers are {ratio:.1f} times as long; release.max_length allows {limit:g}"
    return GateMeasure(name="length", candidate=ratio, limit=f"≤ {limit:g}", objection=objection)


def _measure(rule: BehaviourRule, now: Behaviour, was: Behaviour, base: Behaviour, *, allowed: float) -> GateMeasure:
    value: float = getattr(now, rule.name)
    is_fine = value >= allowed if rule.least else value <= allowed
    return GateMeasure(
        name=rule.name,
        candidate=value,
        parent=getattr(was, rule.name),
        base=getattr(base, rule.name),
        limit=f"{'≥' if rule.least else '≤'} {allowed:.2f}",
        objection="" if is_fine else f"{value:.0%} {rule.words}; release.{rule.key} sets the limit at {allowed:.0%}",
    )
