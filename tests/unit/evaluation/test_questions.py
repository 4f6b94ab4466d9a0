"""The shipped questions are enough, apart and answerable; a file of one's own is checked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from openclaw_rl.errors import ConfigError
from openclaw_rl.evaluation.capability import load_items
from openclaw_rl.evaluation.questions import KINDS, SPLITS, Question, load_questions
from openclaw_rl.release.gate.probes import PROBES
from openclaw_rl.train.anchor_prompts import ANCHORS

_COMMON = (
    "a about after am an and are as at be become box buys can cost costs cut day describe did dollars does down each "
    "equally every few fill fills for from gets get give go goes good has have how i in into is it its keep learn left "
    "live long make makes many me metres more much my need new no of off on one or other our out over paul pay people "
    "per piece put so start than that the their them there they to up was water we were what when where who why with "
    "without work works write you your message poem story tale text"
)
COMMON = frozenset(_COMMON.split())


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"[a-z]+", text.lower()) if word not in COMMON and len(word) > 2}


def test_there_are_enough_of_every_kind() -> None:
    for split, least in (("train", 64), ("held_out", 48)):
        questions = load_questions(split)  # type: ignore[arg-type]
        assert len(questions) >= least
        assert min(Counter(question.kind for question in questions).values()) >= least // 6


@pytest.mark.parametrize("split", SPLITS)
def test_the_first_few_are_of_every_kind(split: str) -> None:
    assert {question.kind for question in load_questions(split)[:4]} == set(KINDS)  # type: ignore[arg-type]


def test_what_is_measured_is_not_what_lessons_are_about() -> None:
    """Beyond topics and texts, which the loader compares: no held-out question shares two words with a lesson."""
    lessons = [_words(question.text) for question in load_questions("train")]
    for question in load_questions("held_out"):
        alike = [lesson for lesson in lessons if len(lesson & _words(question.text)) >= 2]
        assert not alike, f"{question.text!r} is too much like {alike}"


def test_nothing_else_that_a_model_meets_is_asked_here() -> None:
    """Anchors are trained on, capability items and probes are measured apart."""
    asked = {question.text for split in SPLITS for question in load_questions(split)}
    assert asked.isdisjoint({*ANCHORS, *PROBES, *(item.question for item in load_items())})


@pytest.mark.parametrize("split", SPLITS)
def test_the_preference_is_in_no_question(split: str) -> None:
    wishes = re.compile(r"\b(short|brief|bullet|list|bold|friendly|steps? by step|detail)", re.IGNORECASE)
    assert not [q.text for q in load_questions(split) if wishes.search(q.text)]  # type: ignore[arg-type]


def test_a_sum_comes_to_its_number() -> None:
    """Each is one operation on two of its numbers, but for the taxi's two."""
    for question in (q for split in SPLITS for q in load_questions(split) if q.kind == "sum"):
        numbers = [float(number) for number in re.findall(r"\d+", question.text)]
        numbers += [3.0] if question.text.startswith("Three") else []
        assert question.number in set(_results(numbers)), question.text


def _results(numbers: list[float]) -> Iterable[float]:
    for i, first in enumerate(numbers):
        for j, second in enumerate(numbers):
            if i != j:
                yield from (first + second, first - second, first * second, first / second)
                yield from (third + first * second for k, third in enumerate(numbers) if k not in (i, j))


GOOD = """
[train]
open = [["sky", "Why is it blue?"]]
how_to = []
sum = [["two", "What is 1 + 1?", 2]]
writing = []
[held_out]
open = [["sea", "Why is it wet?"]]
how_to = []
sum = []
writing = []
"""


def test_a_file_of_ones_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    assert load_questions("train", path) == (
        Question(kind="open", topic="sky", text="Why is it blue?"),
        Question(kind="sum", topic="two", text="What is 1 + 1?", number=2),
    )
    assert [question.topic for question in load_questions("held_out", path)] == ["sea"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('["sea", "Why is it wet?"]', '["Sky", "Why is it wet?"]', "topic 'Sky' is there twice"),
        ('["sea", "Why is it wet?"]', '["sea", "why is it blue?"]', "question 'why is it blue\\?' is there twice"),
        ('["sea", "Why is it wet?"]', '["sea", "Why is it wet?", 3]', "a sum has its number"),
        ('["two", "What is 1 + 1?", 2]', '["two", "What is 1 + 1?"]', "a sum has its number"),
        ('["two", "What is 1 + 1?", 2]', '["two", "What is 1 + 1?", true]', "a sum has its number"),
        ('["two", "What is 1 + 1?", 2]', '["two"]', "\\[topic, text\\]"),
        ('["sky", "Why is it blue?"]', '[" ", "Why is it blue?"]', "a topic and a text"),
        ("[held_out]", "[later]", "tables must be train, held_out"),
        ("writing = []\n[", "poems = []\n[", "must have open, how_to, sum, writing"),
        ("[train]", "[train", "cannot be used"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, before: str, after: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace(before, after))
    with pytest.raises(ConfigError, match=message):
        load_questions("train", path)


def test_a_split_or_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="train, held_out"):
        load_questions("test")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"none\.toml"):
        load_questions("train", tmp_path / "none.toml")
