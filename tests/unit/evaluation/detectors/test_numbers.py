"""The number that a reply settles on, and the verdict of a grading comment."""

from __future__ import annotations

import pytest

from openclaw_rl.evaluation.detectors import final_number, is_correct, verdict


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("There are 4 boxes with 12 eggs, so 48 eggs.", "48"),
        ("The answer is 48. Each of the 4 boxes has 12.", "48"),
        ("12 * 4 = 48 eggs in 4 boxes", "48"),
        ("The answer is 12 * 4 = 48.", "48"),
        ("The answer is 12 * 4, which makes 48.", "48"),
        ("The answer is **48**. There are 4 boxes.", "48"),
        ("1. Forty-eight eggs.", "48"),
        ("**48**", "48"),
        ("\\boxed{48}", "48"),
        ("#### 48", "48"),
        ("1. 12 times 4.\n2. That is 48.", "48"),
        ("It costs $1,250.", "1250"),
        ("It costs 1,250.50 dollars.", "1250.5"),
        ("It costs $68.00.", "68"),
        ("Forty-eight eggs.", "48"),
        ("It is -3 degrees.", "-3"),
        ("It is −3 degrees.", "-3"),
        ("That is 1/2 of it.", "0.5"),
        ("A total of 31 euros.", "31"),
        ("That is 20%.", "20%"),
        ("The capital is Paris.", "Paris"),
        ("48.", 48.0),
    ],
)
def test_right(text: str, answer: str | float) -> None:
    assert is_correct(text, answer)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("48 eggs would be wrong, the answer is 47.", "48"),
        ("The answer is 148.", "48"),
        ("The answer is 4.8.", "48"),
        ("4 and 8", "48"),
        ("There are 48 eggs. 48 - 1 = 47.", "48"),
        ("No idea.", "48"),
        ("The capital is Parisian.", "Paris"),
        ("1/0", "0"),
        ("", "48"),
        ("<|im_end|>", "48"),
    ],
)
def test_wrong(text: str, answer: str) -> None:
    assert not is_correct(text, answer)


def test_no_number() -> None:
    assert final_number("Many eggs.") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Your answer is correct, well done.", True),
        ("There are no mistakes in it.", True),
        ("All steps are right.", True),
        ("Nothing wrong here.", True),
        ("The second step is wrong.", False),
        ("Good start, but there is a mistake in the sum.", False),
        ("That isn’t quite right.", False),
        ("It should be 28, not 26.", False),
        ("You added correctly, but the result is incorrect.", False),
        ("The correct answer is 28.", None),
        ("Thank you for your work.", None),
        ("", None),
    ],
)
def test_verdict(text: str, found: bool | None) -> None:
    assert verdict(text) is found
