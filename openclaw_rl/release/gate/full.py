"""A candidate beside its parent and the base model -> a report of what changed, and what stands against it.

    drift        how far it is from its parent, on average and on any single prompt; the line's own turns are among them
    behaviour    what kind of answers it gives
    replay       whether it moves to where the user pointed
    capability   what it still knows, question by question

The kind of the line decides what is asked (`probes.PROBES_BY_KIND`). A line of people is tried on frozen chat prompts,
its own turns and capability questions; an environment's line on its own turns.

The cheap checks come first, and the first that fails ends the comparison. Nothing here looks at a reward: a policy that
learned to please a judge is recognised by its behaviour. Rates are held against the base model, so that a slow decline
over many versions is seen as well as a sudden one.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean

from openclaw_rl.config.learning import ReleaseConfig
from openclaw_rl.evaluation import capability
from openclaw_rl.evaluation.capability import CapabilityItem, CapabilityResult
from openclaw_rl.evaluation.measures import mean_interval
from openclaw_rl.protocols import Engine, LearningStore, Renderer
from openclaw_rl.release.gate.behaviour import Behaviour, behaviour, length_ratio
from openclaw_rl.release.gate.probes import PROBES_BY_KIND, ProbeAnswer, Prober, Probes, replayed_probes
from openclaw_rl.types import BASE_VERSION, Json, ReplayedTurn, Version, line_kind

_MIN_ANSWER = 8
"""Tokens that the drift on one prompt is spread over at least: "Yes." in place of a paragraph is no other language."""

_MIN_JUDGED = 4
"""Judged turns of which a direction can be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateMeasure:
    """One number of a candidate, beside those of its parent and of the base model where they have one."""

    name: str
    candidate: float
    parent: float | None = None
    base: float | None = None
    limit: str = ""
    objection: str = ""


@dataclass(slots=True, kw_only=True)
class GateReport:
    """What was measured, as far as it came; `reason` is empty where nothing stands against it."""

    parent: str
    measures: list[GateMeasure] = field(default_factory=list)
    knowledge: dict[str, Json] | None = None
    """The questions that it, and the base model, got right: what the next version is compared with."""
    seconds: float = 0.0

    @property
    def reason(self) -> str:
        return "; ".join(one.objection for one in self.measures if one.objection)

    def to_json(self) -> dict[str, Json]:
        """The candidate's numbers by name, what tells most first; then everything."""
        first = ("kl", "capability", "tokens", "on_topic")
        ordered = sorted(self.measures, key=lambda one: first.index(one.name) if one.name in first else len(first))
        return {**{one.name: one.candidate for one in ordered}, **asdict(self), "reason": self.reason}


class Gate:
    """Compares versions on one engine. `items` are the capability set's; `model_id` names the model of all ids."""

    def __init__(
        self,
        engine: Engine,
        renderer: Renderer,
        prober: Prober,
        limits: ReleaseConfig,
        *,
        replay: LearningStore,
        model_id: str,
        items: Sequence[CapabilityItem] | None = None,
    ) -> None:
        self._engine = engine
        self._renderer = renderer
        self._prober = prober
        self._limits = limits
        self._replay = replay
        self._model_id = model_id
        self._items = spread(capability.load_items() if items is None else items, limits.capability_items)
        self._capability: dict[str, CapabilityResult] = {}
        self._measuring = asyncio.Lock()

    async def prepare(self, parent: Version | None) -> None:
        """Measures what the next candidate will be compared with: `parent`, which is loaded, and the base model."""
        label = BASE_VERSION if parent is None else parent.label
        probes = PROBES_BY_KIND["user" if parent is None else line_kind(parent.line)]
        async with self._measuring:
            for version in dict.fromkeys((BASE_VERSION, label)):
                if probes.chat:
                    await self._prober.frozen(version)
                if probes.capability and self._items:
                    await self._known(version, parent)

    async def measure(self, candidate: Version, parent: Version | None) -> GateReport:
        """Both are loaded; no parent is the base model."""
        began = time.monotonic()
        trial = _Trial(candidate, parent, GateReport(parent=BASE_VERSION if parent is None else parent.label))
        async with self._measuring:
            trial.replayed = await self._replayed_turns(candidate.line)
            for look in (self._drift, self._behaviour, self._on_replay, self._knowledge):
                await look(trial)
                if trial.report.reason:
                    break
        trial.report.seconds = round(time.monotonic() - began, 1)
        return trial.report

    async def _replayed_turns(self, line: str) -> Sequence[ReplayedTurn]:
        limits = self._limits
        room = (await self._engine.state()).context_window - limits.answer_tokens
        tokens = min(room, limits.replay_tokens)
        return await self._replay.replayed_turns(
            line, model=self._model_id, limit=limits.replay_turns, max_tokens=tokens
        )

    async def _answers(self, trial: _Trial, label: str) -> tuple[ProbeAnswer, ...]:
        """A version's answers to the frozen prompts, or to the line's own turns where its kind is not asked those."""
        if trial.probes.chat or not trial.replayed:
            return await self._prober.frozen(label)
        return await self._own_answers(trial, label)

    async def _own_answers(self, trial: _Trial, label: str) -> tuple[ProbeAnswer, ...]:
        if label not in trial.own_answers:
            trial.own_answers[label] = await self._prober.ask(replayed_probes(trial.replayed), label)
        return trial.own_answers[label]

    async def _drift(self, trial: _Trial) -> None:
        said = [answer for answer in await self._answers(trial, trial.parent_label) if answer.token_ids]
        now = await self._prober.logprobs([_passage(answer) for answer in said], trial.label)
        changes = [
            was - is_now
            for answer, after in zip(said, now, strict=True)
            for was, is_now in zip(answer.logprobs, after, strict=True)
        ]
        kl, limit = fmean(changes) if changes else 0.0, self._limits.max_kl
        if not math.isfinite(kl):
            objection = "its log-probs are not finite"
        elif kl > limit:
            objection = f"it is {kl:.2f} nats a token away from its parent; release.max_kl allows {limit:g}"
        else:
            objection = ""
        trial.add(GateMeasure(name="kl", candidate=kl, limit=f"≤ {limit:g}", objection=objection))

    async def _behaviour(self, trial: _Trial) -> None:
        limits = self._limits
        before, base = await self._answers(trial, trial.parent_label), await self._answers(trial, BASE_VERSION)
        after = await self._answers(trial, trial.label)
        ratio = length_ratio(after, before, base, max_tokens=limits.answer_tokens)
        trial.add(
            GateMeasure(
                name="length",
                candidate=ratio,
                limit=f"≤ {limits.max_length:g}",
                objection=""
                if ratio <= limits.max_length
                else f"its answers are {ratio:.1f} times as long; release.max_length allows {limits.max_length:g}",
            )
        )
        now, was, first = (behaviour(answers, self._renderer) for answers in (after, before, base))
        trial.add(_tokens(now, was, first))
        for rule in self._rules(first, trial.probes):
            trial.add(rule.measure(now, was, first))
        if not trial.report.reason:
            trial.add(await self._worst_prompt(trial, after))

    def _rules(self, base: Behaviour, probes: Probes) -> list[_Rule]:
        limits = self._limits
        most = [
            _Rule("repetition", "max_repetition", base.repetition + limits.max_repetition, "of it was said before"),
            _Rule("empty", "max_empty", base.empty + limits.max_empty, "of its answers are empty"),
            _Rule(
                "broken_calls", "max_broken_calls", base.broken_calls + limits.max_broken_calls, "of its calls break"
            ),
        ]
        least = [
            _Rule("distinct", "min_distinct", limits.min_distinct, "of the token pairs in its answers differ"),
            _Rule("entropy", "min_entropy", base.entropy * limits.min_entropy, "of a nat is left to choose"),
        ]
        if probes.chat:
            most += self._most_in_chat(base)
            off_topic = base.on_topic - limits.max_off_topic
            least.append(_Rule("on_topic", "max_off_topic", off_topic, "is on topic"))
        return [*most, *(replace(rule, least=True) for rule in least)]

    def _most_in_chat(self, base: Behaviour) -> list[_Rule]:
        limits = self._limits
        return [
            _Rule("refusals", "max_refusals", base.refusals + limits.max_refusals, "of its answers refuse"),
            _Rule("questions", "max_questions", base.questions + limits.max_questions, "of its answers only ask back"),
            _Rule("flattery", "max_flattery", base.flattery + limits.max_flattery, "of its answers flatter"),
        ]

    async def _worst_prompt(self, trial: _Trial, answered: Sequence[ProbeAnswer]) -> GateMeasure:
        """The largest drift on a single prompt, measured on the candidate's own answer: a hidden trigger shows only
        there."""
        own = await self._own_answers(trial, trial.label)
        frozen = () if answered is own else answered
        answers = [*frozen, *own]
        names = [*(f"probe {at}" for at in range(len(frozen))), *(f"turn {turn.id}" for turn in trial.replayed)]
        parent = await self._prober.logprobs([_passage(answer) for answer in answers], trial.parent_label)
        drift = [
            (sum(answer.logprobs) - sum(was)) / max(_MIN_ANSWER, len(was))
            for answer, was in zip(answers, parent, strict=True)
        ]
        worst, limit = max(range(len(drift)), key=lambda at: drift[at]), self._limits.max_kl_prompt
        objection = ""
        if not all(map(math.isfinite, drift)):
            objection = "its log-probs are not finite"
        elif drift[worst] > limit:
            objection = (
                f"what it says at {names[worst]} is {drift[worst]:.2f} nats a token away from its parent; "
                f"release.max_kl_prompt allows {limit:g}"
            )
        return GateMeasure(name="kl_prompt", candidate=drift[worst], limit=f"≤ {limit:g}", objection=objection)

    async def _on_replay(self, trial: _Trial) -> None:
        judged = [turn for turn in trial.replayed if turn.score]
        if not judged:
            return
        said = [(turn.prompt_ids, turn.response_ids) for turn in judged]
        before, after = [await self._prober.logprobs(said, label) for label in (trial.parent_label, trial.label)]
        moved = [
            (turn.score or 0) * (fmean(now) - fmean(was)) for turn, was, now in zip(judged, before, after, strict=True)
        ]
        mean, limit, objection = fmean(moved), self._limits.max_against, ""
        if len(moved) >= _MIN_JUDGED and (against := mean_interval(moved, seed=0)).high < -limit:
            objection = (
                f"it goes against what the user said of {len(moved)} replayed turns, by {-against.value:.2f} nats a "
                f"token; release.max_against allows {limit:g}"
            )
        trial.add(GateMeasure(name="towards_user", candidate=mean, limit=f"≥ {-limit:g}", objection=objection))

    async def _knowledge(self, trial: _Trial) -> None:
        if not self._items or not trial.probes.capability:
            return
        parent, base = (
            await self._known(trial.parent_label, trial.parent),
            await self._known(BASE_VERSION, trial.parent),
        )
        now = await self._known(trial.label, None)
        limits = self._limits
        changes = {
            "max_capability_loss": (capability.compare(parent, now), limits.max_capability_loss, "its parent"),
            "max_capability_loss_from_base": (
                capability.compare(base, now),
                limits.max_capability_loss_from_base,
                "the base model",
            ),
        }
        objections = [
            f"it lost {-change.difference.value:.1%} of the questions that {whose} gets right, beyond chance; "
            f"release.{key} allows {limit:.1%}"
            for key, (change, limit, whose) in changes.items()
            if change.is_loss and -change.difference.value > limit
        ]
        trial.add(
            GateMeasure(
                name="capability",
                candidate=now.share,
                parent=parent.share,
                base=base.share,
                limit=f"−{limits.max_capability_loss:.1%}, −{limits.max_capability_loss_from_base:.1%} in all",
                objection="; ".join(objections),
            )
        )
        trial.report.knowledge = {
            "items": self._items_id,
            "right": _as_hex(now.right),
            "base_right": _as_hex(base.right),
            "share": now.interval.to_json(),
            **{f"change_{key[4:]}": change.to_json() for key, (change, _, _) in changes.items()},
        }

    @property
    def _items_id(self) -> str:
        """Names the questions and the model, so that results of other sets or models are not taken for these."""
        text = "\n".join((self._model_id, *(item.question for item in self._items)))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    async def _known(self, label: str, parent: Version | None) -> CapabilityResult:
        """The results known already: measured in this process, or reported when the parent was released."""
        if label not in self._capability:
            stored = parent.gate.get("knowledge") if parent is not None and isinstance(parent.gate, dict) else None
            if stored and stored["items"] == self._items_id:
                right = _from_hex(stored["base_right" if label == BASE_VERSION else "right"], len(self._items))
                found = CapabilityResult(version=label, items=self._items, right=right)
            else:
                found = await capability.measure(self._engine, self._renderer, label, items=self._items)
            self._capability[label] = found
        return self._capability[label]


@dataclass(slots=True)
class _Trial:
    """One candidate on its way through the gate."""

    candidate: Version
    parent: Version | None
    report: GateReport
    replayed: Sequence[ReplayedTurn] = ()
    own_answers: dict[str, tuple[ProbeAnswer, ...]] = field(default_factory=dict)
    """By version: what it says to the replayed turns."""

    @property
    def probes(self) -> Probes:
        return PROBES_BY_KIND[line_kind(self.candidate.line)]

    @property
    def label(self) -> str:
        return self.candidate.label

    @property
    def parent_label(self) -> str:
        return self.report.parent

    def add(self, measure: GateMeasure) -> None:
        self.report.measures.append(measure)


@dataclass(frozen=True, slots=True)
class _Rule:
    """A number of `Behaviour` and its limit, at most or, with `least`, at least; `key` of `release` sets it."""

    name: str
    key: str
    limit: float
    words: str
    least: bool = False

    def measure(self, now: Behaviour, was: Behaviour, base: Behaviour) -> GateMeasure:
        value = getattr(now, self.name)
        is_fine = value >= self.limit if self.least else value <= self.limit
        return GateMeasure(
            name=self.name,
            candidate=value,
            parent=getattr(was, self.name),
            base=getattr(base, self.name),
            limit=f"{'≥' if self.least else '≤'} {self.limit:.2f}",
            objection=""
            if is_fine
            else f"{value:.0%} {self.words}; release.{self.key} sets the limit at {self.limit:.0%}",
        )


def _tokens(now: Behaviour, was: Behaviour, base: Behaviour) -> GateMeasure:
    return GateMeasure(name="tokens", candidate=now.tokens, parent=was.tokens, base=base.tokens)


def _passage(answer: ProbeAnswer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return answer.probe.prompt_ids, answer.token_ids


def spread(items: Sequence[CapabilityItem], count: int) -> tuple[CapabilityItem, ...]:
    """Chooses so many items, spread evenly over the set; always the same ones."""
    count = min(count, len(items))
    return tuple(items[at * len(items) // count] for at in range(count))


def _as_hex(right: Sequence[bool]) -> str:
    return f"{int('1' + ''.join(str(int(one)) for one in right), 2):x}"


def _from_hex(text: str, count: int) -> tuple[bool, ...]:
    bits = f"{int(text, 16):b}"[1:]
    assert len(bits) == count, "the same items have as many results"
    return tuple(bit == "1" for bit in bits)
