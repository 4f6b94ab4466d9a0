"""The number that a reply settles on."""

from __future__ import annotations

import pytest

from openclaw_rl.evaluation.detectors.numbers import final_number, is_correct


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
        ("The sum of 12 and 30 is 42.", "42"),
        ("The sum of 3.5 and 4.5 makes 8.", "8"),
        ("The total cost of 5 pens is $10.", "10"),
        ("Total cost of 5 pens is $10, at $2 each.", "10"),
        ("The product of 6 and 7 is 42", "42"),
        ("The total price of 4 tickets at 9 euros each is 36 euros.", "36"),
        ("The result of adding 15 and 27 is 42.", "42"),
        ("The difference of 20 and 8 equals 12.", "12"),
        ("The sum of 12 and 30 gives 42.", "42"),
        ("The answer is 42, the sum of 12 and 30.", "42"),
        ("The answer is 42, a sum of 12 and 30.", "42"),
        ("The total is 4 times 12, so 48.", "48"),
        ("The answer is 20 minus 7, and that makes 13.", "13"),
        ("A total of 48 eggs are in the 4 boxes.", "48"),
        ("A grand total of 48 eggs are in the 4 boxes.", "48"),
        ("A total number of 48 eggs are in the 4 boxes.", "48"),
        ("The total of 3.5 kg of rice makes 7 euros.", "7"),
        ("That makes a grand total of 48 eggs in 4 boxes.", "48"),
        ("You pay a total price of 36 euros for 4 tickets.", "36"),
        ("We have the total of 48 eggs in 4 boxes. That is it.", "48"),
        ("It is a difference of 5 between 12 and 7.", "5"),
        ("The total number of eggs is 48, in 4 boxes.", "48"),
        ("Twenty one eggs.", "21"),
        ("There are twenty-one of them.", "21"),
        ("One hundred eggs.", "100"),
        ("two hundred and five", "205"),
        ("It is three thousand, four hundred and twenty-one.", "3421"),
        ("Twelve hundred.", "1200"),
        ("One hundred thousand people.", "100000"),
        ("two thousand and one", "2001"),
        ("There are twenty. One is red.", "1"),
        ("first two and then three", "3"),
        ("nine, ten", "10"),
        ("_Five_ eggs.", "5"),
        ("It is minus 7 degrees.", "-7"),
        ("Minus seven.", "-7"),
        ("minus two hundred", "-200"),
        ("The balance is minus $7.", "-7"),
        ("The answer is negative 7.", "-7"),
        ("10 minus 7", "7"),
        ("5% minus 3", "3"),
        ("ten minus seven", "7"),
        ("It costs 1 000 euros.", "1000"),
        ("It costs 1\u202f234\u2009567.50 euros.", "1234567.5"),
        ("The answer is 12 000 eggs in 4 boxes.", "12 000"),
        ("It was 2024 100 years ago.", "100"),
        ("It is .5 of it.", "0.5"),
        ("The answer is -.5 in 2 steps.", "-0.5"),
        ("答案是7。", "7"),
        ("一共有48个。", "48"),
        ("9" * 400, "9" * 400),
        ("0.3333333", "0.3333334"),
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
        ("The sum of 12 and 30 is 41.", "42"),
        ("The sum of 12 and 30 is 42.", "12"),
        ("The sum of 42 and 30 is 72.", "42"),
        ("The total cost of 5 pens is $10.", "5"),
        ("The product of 6 and 7 is 42", "7"),
        ("A total of 31 euros for 4 people.", "4"),
        ("The result of 42 people adding 15 and 27 is 43.", "42"),
        ("two hundred and five", "5"),
        ("two hundred and five", "200"),
        ("one two three", "123"),
        ("two and three", "5"),
        ("twenty twelve", "32"),
        ("It is minus 7 degrees.", "7"),
        ("The result is 10 minus 7.", "-7"),
        ("It costs 1 00 euros.", "100"),
        ("It costs 1 0000 euros.", "10000"),
        ("It costs 1  000 euros.", "1000"),
        ("It costs 1000 000 euros.", "1000000"),
        ("First 1\n000 is the code.", "1000"),
        ("It costs 0 500 euros.", "500.5"),
        ("It is 3.5.5", "0.5"),
        ("See v.5", "0.5"),
        ("答案是17。", "7"),
        ("1" + "0" * 400, "1" + "0" * 401),
        ("0.333333", "0.333334"),
        ("0", "0.00000001"),
    ],
)
def test_wrong(text: str, answer: str) -> None:
    assert not is_correct(text, answer)


@pytest.mark.parametrize(
    "text", ["Many eggs.", "Hundreds of eggs.", "no-one's two-thirds", "someone", "no-one", "9" * 5000]
)
def test_no_number(text: str) -> None:
    assert final_number(text) is None
