"""A short demo as its events, for those who test how it is shown."""

from __future__ import annotations

from typing import Any

from openclaw_rl.cli.demo.events import (
    Changed,
    DemoAnswered,
    DemoAsked,
    DemoJudged,
    Event,
    Left,
    Measured,
    Point,
    Reacted,
    Stepped,
)
from openclaw_rl.evaluation.capability import CapabilityResult
from openclaw_rl.evaluation.comparing import mean_tokens, preference
from openclaw_rl.evaluation.exam import Exam, ExamAnswer, Examination, traits
from openclaw_rl.evaluation.users import Brief
from openclaw_rl.types import Step, Verdict, Version
from tests.factories.weights import folder_ref

LINE = "demo-brief"
EXAM = Exam(num_questions=12, num_items=64)
ESSAY = "Much can be said about {}. It is a long story. It began long ago. It goes on and on. Nobody knows the end."


def step(number: int, state: Any = "done", **others: Any) -> Step:
    given = {"sample_ids": ("a", "b"), "metrics": {"loss/total": 0.25, "step/seconds": 9.8}, **others}
    return Step(line=LINE, number=number, state=state, planned_at=1.0, seed=0, parent=number - 1, **given)


def version(number: int, state: Any, **others: Any) -> Version:
    given = {"parent": number - 1, "created_at": 1.0, "weights": folder_ref(f"/v{number}", "ab"), **others}
    return Version(line=LINE, number=number, state=state, **given)


def _named(question: str) -> str:
    return " ".join(word for word in question.strip("?.").split() if len(word) > 5)


def examination(label: str, *, is_brief: bool, num_right: int = 40) -> Examination:
    texts = [
        f"Here {q.topic} {_named(q.text)} follows from warm water, as many people know."
        if is_brief
        else ESSAY.format(q.topic)
        for q in EXAM.questions
    ]
    answers = tuple(
        ExamAnswer(question=q, text=text, num_tokens=len(text.split()), is_cut=False)
        for q, text in zip(EXAM.questions, texts, strict=True)
    )
    right = tuple(index < num_right for index in range(len(EXAM.items)))
    return Examination(
        version=label, answers=answers, capability=CapabilityResult(version=label, items=EXAM.items, right=right)
    )


def point(number: int, num_lessons: int, *, is_brief: bool, num_right: int = 40) -> Point:
    label = f"v{number}.{LINE}" if number else "v0"
    found = examination(label, is_brief=is_brief, num_right=num_right)
    on_topic = traits(found.answers)["on_topic"]
    assert found.capability is not None
    return Point(
        number=number,
        label=label,
        num_lessons=num_lessons,
        preference=preference(Brief(), found, seed=0),
        tokens=mean_tokens(found),
        on_topic=sum(on_topic) / len(on_topic),
        capability=found.capability.interval,
        num_items=len(found.capability.items),
        examination=found,
    )


def verdict(score: Any, *hints: str) -> Verdict:
    return Verdict(outcome="scored", score=score, hints=hints)


EVENTS: tuple[Event, ...] = (
    Measured(point=point(0, 0, is_brief=False)),
    DemoAsked(turn=1, question="Why is the sea salty?"),
    DemoAnswered(turn=1, version="v0", text="The sea is salty\x1b[2J because rivers carry salt.", num_tokens=120),
    Reacted(turn=1, message="Too long. Answer in one short sentence.", is_content=False, score=0.1),
    DemoJudged(turn=1, verdict=verdict(-1, "Answer in one short sentence.")),
    DemoAsked(turn=2, question="How do bees make honey?"),
    DemoAnswered(turn=2, version="v0", text="Bees make honey from nectar.", num_tokens=7),
    Reacted(turn=2, message="Perfect, thanks!", is_content=True, score=1.0),
    DemoJudged(turn=2, verdict=verdict(1)),
    DemoAsked(turn=3, question="What is gravity?"),
    DemoAnswered(turn=3, version="v0", text="…", num_tokens=256),
    Reacted(turn=3, message="Shorter please.", is_content=False, score=0.0),
    Left(turn=3, reason="truncated"),
    Stepped(step=step(1, "planned", metrics={}), turns=(1, 2)),
    Stepped(step=step(1), turns=(1, 2)),
    Changed(version=version(1, "candidate")),
    Changed(version=version(1, "live", gate={"kl": 0.21, "distinct": 0.9, "reason": ""})),
    Measured(point=point(1, 2, is_brief=True)),
    Stepped(step=step(2), turns=()),
    Changed(version=version(2, "rejected", reason="it repeats itself")),
)
