"""Which hints are about the form of an answer alone."""

from __future__ import annotations

import pytest

from openclaw_rl.judge.rules.matter import form_part, form_words


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        ("Answer in one short sentence.", {"short", "sentence"}),
        ("Answer more briefly. Put it in one short sentence.", {"briefly", "short", "sentence"}),
        ("Do not use bullet points.", {"bullet points"}),
        ("Write it in plain sentences, without lists or bold.", {"plain", "sentences", "lists", "bold"}),
        ("Say that in a friendlier tone.", {"friendlier", "tone"}),
        ("Explain it step by step.", {"step by step"}),
        ("Answer in German.", {"german"}),
        ("Say it in plain English.", {"plain", "english"}),
        ("Use 2-3 short sentences.", {"short", "sentences"}),
        ("Limit it to 20 words or to two lines.", {"words", "lines"}),
        ("Answer with a number.", {"number"}),
        ("Use metric units.", {"metric", "units"}),
        ("No, it is too long!", {"long"}),
        ("no, shorter please", {"shorter"}),
        ("Drop the disclaimers and cite a source.", {"disclaimers", "source"}),
        ("太长了，简短一点", {"长", "简短"}),
    ],
)
def test_a_wish_about_the_form(hint: str, words: set[str]) -> None:
    assert form_words(hint) == words


@pytest.mark.parametrize(
    "hint",
    [
        "",
        "Answer my question.",
        "No, the capital is Canberra, not Sydney.",
        "Run the tests before you commit.",
        "Use Python 3 for this.",
        "The short answer is 48.",
        "Answer with the number 48.",
        "Answer in one word: ten.",
        "Say the word five.",
        "Put the number 48 in a table.",
        "No, it is Spanish.",
        "No, it is plain English.",
        "No, it is cold.",
        "They are long.",
        "简短回答：五。",
        "Add a table of the costs.",
        "Do not leave out the milk in the list.",
        "Call `search` with the argument `query`.",
        "首都是堪培拉。",
    ],
)
def test_one_word_of_another_matter_is_enough(hint: str) -> None:
    assert form_words(hint) == frozenset()


def test_the_part_of_a_hint_that_is_about_the_form() -> None:
    assert form_part("Use Python. Answer in one short sentence!") == "Answer in one short sentence!"
    assert form_part("首都是堪培拉。请简短回答。") == "请简短回答。"
    assert form_part("The capital is Canberra.") == ""


def test_of_a_sentence_that_goes_on_to_the_matter_the_form_before_the_comma_is_left() -> None:
    assert form_part("Use short sentences, no lists, and mention Napoleon.") == "Use short sentences, no lists."
    assert form_part("Use short sentences; Napoleon was tall.") == "Use short sentences."
    assert form_part("Mention Napoleon, and use short sentences.") == ""
    assert form_part("1," * 500 + " short") == "", "at once"
