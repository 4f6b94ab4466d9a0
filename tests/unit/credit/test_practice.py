"""A wish about the form that two conversations have in common is practised on everyday questions; nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from openclaw_rl.credit.hinted import asked
from openclaw_rl.credit.practice import QUESTIONS, Practice, repeated_wishes
from openclaw_rl.evaluation.capability import load_items
from openclaw_rl.evaluation.questions import load_questions
from openclaw_rl.judge.rules import form_words
from openclaw_rl.judge.rules.similarity import content
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import Candidate, Exercise, Message, Sample, Step
from tests.factories.orders import sample

BRIEF, TERSE, MATTER = "Answer in one short sentence.", "Keep it to one short sentence.", "The capital is Canberra."


def said(index: int, session: str, hint: str, **changes: Any) -> Sample:
    candidates = (Candidate(hint=hint, num_shared=4, suffix_ids=(5, 6)),)
    return sample(index, session=session, candidates=candidates, **changes)


def step(number: int = 1) -> Step:
    return Step(line="ann", number=number, state="planned", planned_at=0.0, seed=7, parent=0, sample_ids=("x",))


def repeated(*samples: Sample) -> list[str]:
    return [one.candidates[0].hint for one in repeated_wishes(samples, form_words)]


def test_a_wish_of_two_conversations_is_repeated() -> None:
    assert repeated(said(0, "a", BRIEF), said(1, "b", TERSE)) == [BRIEF, TERSE]


@pytest.mark.parametrize(
    "samples",
    [
        (said(0, "a", BRIEF), said(1, "a", TERSE)),
        (said(0, "a", BRIEF),),
        (said(0, "a", BRIEF), said(1, "b", "Answer in German.")),
        (said(0, "a", MATTER), said(1, "b", MATTER)),
        (said(0, "a", BRIEF), said(1, "b", "", w_opd=1.0)),
        (said(0, "a", BRIEF), said(1, "b", TERSE, w_opd=0.0)),
        (sample(0, session="a", num_hints=0), sample(1, session="b", num_hints=0)),
    ],
    ids=["one conversation", "once", "another wish", "the matter", "unhinted", "not taught", "scores"],
)
def test_what_is_not_repeated(samples: Sequence[Sample]) -> None:
    assert repeated(*samples) == []


def test_an_exercise_is_an_everyday_question_with_the_wish_behind_it(renderer: Renderer) -> None:
    practice = Practice(renderer, form_words, num_exercises=4)
    wished = (said(0, "a", BRIEF, temperature=0.6, w_opd=0.5), said(1, "b", BRIEF, temperature=0.6, w_opd=0.5))
    found = practice.exercises(step(), (*wished, said(2, "c", MATTER)))
    assert found == practice.exercises(step(), (*wished, said(2, "c", MATTER))), "an order is given again as it was"
    assert found != practice.exercises(step(2), wished)
    assert len(found) == len({one.prompt_ids for one in found}) == 4
    for one in found:
        (question,) = (text for text in QUESTIONS if rendered(renderer, text) == one.prompt_ids)
        teacher = one.prompt_ids[: one.candidate.num_shared] + one.candidate.suffix_ids
        assert teacher == rendered(renderer, f"{question}\n\n{BRIEF}")
        assert (one.temperature, one.w_opd, one.candidate.hint) == (0.6, 0.5, BRIEF)


def rendered(renderer: Renderer, text: str) -> tuple[int, ...]:
    return tuple(renderer.render([Message(role="user", content=text)], (), {}))


def test_no_exercises_without_a_repeated_wish_or_where_none_are_wanted(renderer: Renderer) -> None:
    twice = (said(0, "a", BRIEF), said(1, "b", BRIEF))
    none: tuple[Exercise, ...] = ()
    assert Practice(renderer, form_words, num_exercises=4).exercises(step(), twice[:1]) == none
    assert Practice(renderer, form_words, num_exercises=0).exercises(step(), twice) == none
    few = Practice(renderer, form_words, num_exercises=9, questions=QUESTIONS[:2]).exercises(step(), twice)
    assert len(few) == 2, "there are no more questions"


def test_a_template_that_swallows_the_wish_teaches_nothing(renderer: Renderer) -> None:
    assert asked("Why?", "", renderer) is not None

    class Deaf:
        def render(self, messages: Sequence[Message], *_: object) -> list[int]:
            return [1, 2, 3]

    assert asked("Why?", BRIEF, Deaf()) is None  # type: ignore[arg-type]


def test_nothing_that_is_evaluated_is_practised() -> None:
    evaluated = [question.text for part in ("train", "held_out") for question in load_questions(part)]
    evaluated += [item.question for item in load_items()]
    assert len(evaluated) > 700
    for text in QUESTIONS:
        told = {word for word in content(text) if not word[0].isdigit()}
        alike = [other for other in evaluated if len(told & content(other)) >= 3]
        assert not alike, (text, alike)
