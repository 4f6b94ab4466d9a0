"""An exam asks every version the same, and what two versions came to is compared pair by pair."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from openclaw_rl.errors import EngineRefused
from openclaw_rl.evaluation.capability import load_items
from openclaw_rl.evaluation.comparing import compare_examinations, preference
from openclaw_rl.evaluation.exam import Exam, ExamAnswer, Examination, Examiner, examine, summary, traits
from openclaw_rl.evaluation.questions import Question, load_questions
from openclaw_rl.evaluation.users import Brief
from openclaw_rl.types import GenerateRequest, Version
from tests.factories.weights import folder_ref
from tests.fakes.release import Policy, WordEngine, WordRenderer

EXAM = Exam(num_questions=4, num_items=8, max_tokens=60)


def essay(question: str) -> str:
    return f"About {question.strip('?')} much can be said. It goes on. And on it goes. There is more to it than that."


def brief(question: str) -> str:
    topic = " ".join(word for word in question.strip("?.").split() if len(word) > 4)
    return f"Here {topic} follows from warm water and steady wind."


@pytest.fixture
def engine() -> WordEngine:
    policies: dict[str, Policy] = {"v0": essay, "v1": brief}
    # The answer of an item is its first option; v1 has forgotten what it knew of every second one.
    answers = {item.question: item.answer[0].upper() + item.answer[1:] for item in EXAM.items}
    forgotten = {item.question for item in EXAM.items[::2]}

    def logprob(version: str, text: str) -> float:
        question = next(asked for asked in answers if text.startswith(asked))
        knows = version == "v0" or question not in forgotten
        return -0.1 if text.endswith(answers[question]) == knows else -5.0

    return WordEngine(WordRenderer(), policies, logprob=logprob)


def test_questions_are_of_every_kind_and_items_are_spread_over_the_set() -> None:
    assert [question.kind for question in EXAM.questions] == ["open", "how_to", "sum", "writing"]
    assert set(EXAM.questions) <= set(load_questions("held_out"))
    assert {item.kind for item in Exam(num_items=64).items} == {item.kind for item in load_items()}
    assert Exam().items == load_items()
    assert Exam(num_items=0).items == ()
    assert {question.kind for question in Exam(num_questions=9, kinds=("sum", "open")).questions} == {"sum", "open"}


@pytest.mark.parametrize("wrong", [{"num_questions": 0}, {"num_items": -1}, {"kinds": ["odd"]}, {"kinds": []}])
def test_an_exam_that_cannot_be_is_refused(wrong: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"num_items|kinds|question"):
        Exam.from_json(wrong)


def test_an_exam_travels_as_json() -> None:
    exam = Exam(num_questions=3, num_items=None, kinds=("sum",), seed=5)
    assert Exam.from_json(exam.to_json()) == exam
    with pytest.raises(TypeError):
        Exam.from_json({"num_question": 3})


async def test_a_version_is_asked_all_of_it_and_says_how_far_it_is(engine: WordEngine) -> None:
    seen: list[tuple[int, int]] = []
    found = await examine(engine, engine.renderer, "v0", EXAM, on_progress=lambda *at: seen.append(at))
    assert seen == [(done, 12) for done in range(13)]
    assert [answer.text for answer in found.answers] == [essay(question.text) for question in EXAM.questions]
    assert found.capability is not None
    assert found.capability.right == (True,) * 8
    assert Examination.from_json(found.to_json(), EXAM) == found


async def test_seeds_differ_by_question_and_not_by_version(engine: WordEngine) -> None:
    seeds: dict[str, list[int | None]] = {"v0": [], "v1": []}

    class Noting(WordEngine):
        __slots__ = ()

        def generate(self, request: GenerateRequest) -> Any:
            seeds[str(request.version)].append(request.sampling.seed)
            return super().generate(request)

    noting = Noting(engine.renderer, engine.policies)
    for version in seeds:
        await examine(noting, engine.renderer, version, replace(EXAM, num_items=0))
    assert seeds["v0"] == seeds["v1"]
    assert len(set(seeds["v0"])) == 4


async def test_what_changed_is_told_from_chance(engine: WordEngine) -> None:
    exam = replace(EXAM, num_questions=16)
    before, after = [await examine(engine, engine.renderer, version, exam) for version in ("v0", "v1")]
    measures = {measure.name: measure for measure in compare_examinations(Brief(), before, after)}
    assert measures["preference"].verdict == "better"
    assert measures["preference"].after.value == preference(Brief(), after, seed=0).value > 0.8
    assert (measures["tokens"].verdict, measures["tokens"].change.value < 0) == ("other", True)
    assert (measures["refusals"].verdict, measures["refusals"].change.value) == ("unclear", 0.0)
    assert measures["capability"].change.value == -0.5
    assert measures["capability"].num == 8
    assert measures["sums_right"].num == 4
    with pytest.raises(ValueError, match="same exam"):
        compare_examinations(Brief(), before, replace(after, answers=after.answers[:-1]))


async def test_two_answers_decide_nothing_and_a_share_moves_by_one_at_most(engine: WordEngine) -> None:
    exam = replace(EXAM, num_questions=2, num_items=0, kinds=("open",))
    before, after = [await examine(engine, engine.renderer, version, exam) for version in ("v0", "v1")]
    measures = {measure.name: measure for measure in compare_examinations(Brief(), before, after)}
    assert (measures["preference"].verdict, measures["preference"].change.value > 0.5) == ("unclear", True)
    assert (measures["preference"].change.low, measures["preference"].change.high) == (-1.0, 1.0)
    assert measures["tokens"].change.low == -float("inf")


async def test_without_items_on_both_sides_capability_is_not_compared(engine: WordEngine) -> None:
    before = await examine(engine, engine.renderer, "v0", replace(EXAM, num_items=0))
    after = await examine(engine, engine.renderer, "v1", EXAM)
    assert "capability" not in {measure.name for measure in compare_examinations(Brief(), before, after)}
    assert "eval/capability" not in summary(before)
    assert summary(after)["eval/capability"] == 0.5


def test_traits_are_those_of_each_answer() -> None:
    question = Question(kind="open", topic="rain", text="Why does it rain?")
    answers = [
        ExamAnswer(question=question, text="I cannot help with that.", num_tokens=6, is_cut=False),
        ExamAnswer(question=question, text="Rain falls because clouds cool.", num_tokens=7, is_cut=True),
    ]
    found = traits(answers)
    assert (found["tokens"], found["refusals"], found["on_topic"][1]) == ([6.0, 7.0], [1.0, 0.0], 1.0)


def version(number: int, state: Any = "live", line: str = "local") -> Version:
    return Version(line=line, number=number, parent=0, state=state, created_at=0.0, weights=folder_ref("/v", "ab"))


class Rig:
    def __init__(self, engine: WordEngine, *, every: int | None) -> None:
        self.measured: list[tuple[str, int]] = []
        self.arrived = asyncio.Event()
        self.fails_on: set[int] = set()
        self.examiner = Examiner(engine, engine.renderer, self.loaded, every=every, on_measured=self.keep)

    @asynccontextmanager
    async def loaded(self, line: str, number: int) -> AsyncIterator[str]:
        if number in self.fails_on:
            raise EngineRefused("it is gone")
        yield "v1"

    async def keep(self, line: str, number: int, measures: Mapping[str, float]) -> None:
        assert {"eval/capability", "eval/tokens"} <= set(measures)
        self.measured.append((line, number))
        self.arrived.set()


@pytest.mark.parametrize(
    ("live", "examined"),
    [
        ((1, 2, 3, 4), [2, 4]),
        ((1, 3, 5, 7), [3, 5, 7]),
        ((1, 7, 8, 9), [7, 8]),
        ((4, 2, 1, 4, 6), [4, 6]),
    ],
)
def test_of_every_n_steps_the_first_that_goes_live_is_examined(live: tuple[int, ...], examined: list[int]) -> None:
    rig, wanted = Rig(WordEngine(WordRenderer(), {"v1": brief}), every=2), list[int]()
    for number in live:
        rig.examiner.changed(version(number))
        wanted += rig.examiner._wanted.values()
        rig.examiner._wanted.clear()
    assert wanted == examined


def test_after_a_start_what_a_version_stands_on_was_counted() -> None:
    rig = Rig(WordEngine(WordRenderer(), {"v1": brief}), every=10)
    rig.examiner.changed(replace(version(17), parent=16))
    assert not rig.examiner._wanted
    rig.examiner.changed(replace(version(21), parent=17))
    assert rig.examiner._wanted == {"local": 21}


async def test_what_went_live_is_examined_once() -> None:
    engine = WordEngine(WordRenderer(), {"v1": brief})
    rig = Rig(engine, every=2)
    running = asyncio.create_task(rig.examiner.run())
    for one in (version(1), version(2, "candidate")):
        rig.examiner.changed(one)
    rig.examiner.changed(version(2))
    await asyncio.wait_for(rig.arrived.wait(), 10)
    rig.arrived.clear()
    rig.fails_on = {4}
    for one in (version(2), version(4), version(2, line="ann")):
        rig.examiner.changed(one)
    await asyncio.wait_for(rig.arrived.wait(), 10)
    assert rig.measured == [("local", 2), ("ann", 2)], "not again after going back; a failure is no end"
    running.cancel()


async def test_who_did_not_ask_for_it_gets_none() -> None:
    rig = Rig(WordEngine(WordRenderer(), {"v1": brief}), every=None)
    rig.examiner.changed(version(1))
    assert not rig.examiner._wanted
