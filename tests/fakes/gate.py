"""A gate on an engine that speaks in words, and a trainer that reads the same words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from openclaw_rl.config.learning import ReleaseConfig
from openclaw_rl.evaluation.capability import CapabilityItem
from openclaw_rl.protocols import LearningStore, Renderer, TaskExam
from openclaw_rl.release.gate.gate import Gate
from openclaw_rl.release.gate.knowledge import Knowledge
from openclaw_rl.release.gate.probes import TOOL_PROBES, Prober, frozen_probes
from openclaw_rl.release.gate.proving import Proving
from openclaw_rl.release.gate.report import GateReport
from openclaw_rl.release.gate.trial import Tools
from openclaw_rl.types import Message, ReplayedTurn, ScoreOrder, ScoreReport, Version, WeightsRef
from tests.fakes.release import VERSION, WordEngine, WordRenderer
from tests.fakes.trainers import StubTrainer

CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
ITEMS = [
    CapabilityItem(
        kind="x", question=f"Which is number {n}?", answer=f"Right{n}", distractors=("Wrong", "Bad", "False")
    )
    for n in range(60)
]


def sensible(question: str) -> str:
    """Takes up what was asked, in words that do not repeat; calls a tool where one is of use."""
    if question in TOOL_PROBES:
        return CALL
    head = " ".join(question.split()[-3:]).rstrip("?.'")
    return f"About {head} there is this to say: it all depends on one or two plain facts, and here is one of them."


class Turns:
    def __init__(self, *turns: ReplayedTurn) -> None:
        self.turns = turns
        self.wishes: list[str] = []
        self.line = ""

    async def hints(self, line: str, *, number: int, limit: int) -> list[str]:
        return self.wishes[:limit]

    async def replayed_turns(self, line: str, *, model: str, limit: int, max_tokens: int) -> Sequence[ReplayedTurn]:
        assert (model, limit, max_tokens) == ("words#1", 8, 1024)
        self.line = line
        return self.turns


class GateRig:
    """v0 and v1 are sensible, unless a test says otherwise; both know all items."""

    def __init__(
        self,
        *turns: ReplayedTurn,
        engine: WordEngine | None = None,
        items: Sequence[CapabilityItem] = ITEMS,
        **limits: Any,
    ) -> None:
        self.renderer = WordRenderer()
        policies: dict[str, Callable[[str], str]] = dict.fromkeys(("v0", "v1", "v2"), sensible)
        self.engine = engine or WordEngine(self.renderer, policies, logprob=self.logprob)
        self.lost: dict[str, int] = {}
        self.drift: dict[str, float] = {}
        self.items = items
        self.limits = ReleaseConfig(capability_items=len(items), **limits)
        self.turns = Turns(*turns)
        self.tasks: TaskExam | None = None
        self.trainer = ReadingTrainer(self)
        self.gate = self.new_gate()

    def new_gate(self) -> Gate:
        probes, most = frozen_probes(self.renderer), self.limits.answer_tokens  # type: ignore[arg-type]
        prober = Prober(self.engine, self.renderer, probes, max_tokens=most)  # type: ignore[arg-type]
        renderer = cast("Renderer", self.renderer)
        knowledge = Knowledge(self.engine, renderer, self.limits, model_id="words#1", items=self.items)
        tools = Tools(prober=prober, renderer=renderer, knowledge=knowledge, limits=self.limits, tasks=self.held_out)
        proving = Proving(self.engine, prober, self.trainer, settings={}, min_tokens=256, min_correlation=0.99)
        return Gate(self.engine, tools, log=cast("LearningStore", self.turns), model_id="words#1", proving=proving)

    def turn(self, text: str, said: str, score: int | None, name: str = "s.0") -> ReplayedTurn:
        prompt = tuple(self.renderer.render([Message(role="user", content=text)], (), {}))
        reply = tuple(self.renderer.encode(" " + said))
        return ReplayedTurn(id=name, text=text, tools=(), prompt_ids=prompt, response_ids=reply, score=score)

    def logprob(self, version: str, text: str) -> float:
        """An item is known unless it is among the first that a version lost; else -0.5 and its drift."""
        if text.startswith("Which is number"):
            number = int(text.split()[3].partition("?")[0])
            is_answer = f"Right{number}" in text
            return -1.0 if is_answer == (number >= self.lost.get(version, 0)) else -2.0
        return -0.5 - self.drift.get(version, 0.0)

    async def held_out(self, line: str, labels: Sequence[str], *, num_tasks: int) -> Sequence[Sequence[float]] | None:
        return None if self.tasks is None else await self.tasks(line, labels, num_tasks=num_tasks)

    async def full(self, candidate: Version = VERSION, confirmed: Version | None = None) -> GateReport:
        return await self.gate.full(candidate, confirmed)

    async def quick(
        self, candidate: Version = VERSION, parent: Version | None = None, confirmed: Version | None = None
    ) -> GateReport:
        return await self.gate.quick(candidate, parent, confirmed)


class ReadingTrainer(StubTrainer):
    """Says what the engine would say of the same words; folders are named after versions."""

    def __init__(self, rig: GateRig) -> None:
        super().__init__(Path("/nowhere"))
        self.rig = rig
        self.orders: list[ScoreOrder] = []

    async def score(self, order: ScoreOrder) -> ScoreReport:
        self.orders.append(order)
        parent, candidate = (
            tuple(
                (self.rig.engine.logprob(version, self.rig.renderer.decode(ids)),) * (len(ids) - start)
                for ids, start in zip(order.sequences, order.starts, strict=True)
            )
            for version in (
                "v0" if weights is None else str(weights.folder)[1:] for weights in (order.parent, order.candidate)
            )
        )
        return ScoreReport(parent=parent, candidate=candidate, sha256="ab")


def _label(weights: WeightsRef | None) -> str:
    return "v0" if weights is None else str(weights.folder)[1:]
