"""How a reply is written: what is markup, a friendly word, a step, and what only looks like one."""

from __future__ import annotations

import pytest

from openclaw_rl.evaluation.detectors.shape import Markup, friendly, markup, steps, without_friendly


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The **sky** is __really blue__.", Markup(bold=2)),
        ("***Note*** this.", Markup(bold=1)),
        ("It is <b>blue</b>.", Markup(bold=1)),
        ("It is 𝗯𝗹𝘂𝗲 𝘀𝗸𝘆.", Markup(bold=1)),
        ("2 ** 3 is 8, and 2**3**2 is 512.", Markup()),
        ("3 * 4 * 5 = 60", Markup()),
        ("f(x)**2 + g(x)**2", Markup()),
        ("Call `a ** b ** c` or `**kwargs**`.", Markup()),
        ("It has an __init__ and a __call__ method.", Markup()),
        ("A lone ** sign, and ** another.", Markup()),
        ("*Really* blue.", Markup()),
        ("```python\n# a comment\nx = {**a, **b}\n- 1\n```", Markup()),
        ("```\n- never closed\n# code", Markup()),
        ("- one\n- two", Markup(list_items=2)),
        ("* one\n+ two\n  - three", Markup(list_items=3)),
        ("• one\n◦ two\n✅ three", Markup(list_items=3)),
        ("– one\n– two", Markup(list_items=2)),
        ("– Said he, and left.", Markup()),
        ("-5 degrees is cold.\n-7 is colder.", Markup()),
        ("1. Wash it.\n2. Cut it.", Markup(list_items=2)),
        ("1) Wash it.\n2) Cut it.", Markup(list_items=2)),
        ("**1.** Wash it.\n**2.** Cut it.", Markup(bold=2, list_items=2)),
        ("1️⃣ Wash it.\n2️⃣ Cut it.", Markup(list_items=2)),
        ("1. Only one.", Markup(list_items=1)),
        ("The answer is\n5. That is all.", Markup()),
        ("I have 1. You have 2. They have 3.", Markup()),
        ("It began in 1. Then it grew by 2.5 percent.", Markup()),
        ("1984. A year to remember.", Markup()),
        ("Do this: 1. Wash it. 2. Cut it. 3. Cook it.", Markup(list_items=3)),
        ("Do this: 1) wash 2) cut 3) cook", Markup(list_items=3)),
        ("Two things count: 1) wash it 2) cut it", Markup()),
        ("It costs 3.5 dollars, not 4.5.", Markup()),
        ("a) this\nb) that", Markup(list_items=2)),
        ("Step 1: Wash it.\nStep 2: Cut it.", Markup(list_items=2)),
        ("Step 1 is the hardest.", Markup()),
        ("# Rain\nIt falls.", Markup(headings=1)),
        ("### Rain", Markup(headings=1)),
        ("#hashtag is no heading, and neither is C# or issue #4.", Markup()),
        ("Rain\n====\nIt falls.", Markup(headings=1)),
        ("It falls.\n\n---\n\nIt stops.", Markup()),
        ("| a | b |\n|---|---|\n| 1 | 2 |", Markup(tables=1)),
        ("| a | b |\n|-|-|\n| 1 | 2 |", Markup(tables=1)),
        ("| a |\n| :-: |\n| 1 |", Markup(tables=1)),
        ("Hm.\n:-|", Markup()),
        ("It is __bold__, __Truly__.", Markup(bold=2)),
        ("It has a __my_name__ and a snake__case__name, and e.__cause__ too.", Markup()),
        ("2 ** 3 ** 4 and a**b**c", Markup()),
        ("It is <B>blue</B> and <strong class='x'>high</strong>.", Markup(bold=2)),
        ("If a <b and c> d, then a<bold>.", Markup()),
        ("<ul><li>one</li><LI class='x'>two</LI></ul>", Markup(list_items=2)),
        ("See <link> and <line>.", Markup()),
        ("这是**粗体**文字", Markup(bold=1)),
        ("1、苹果\n2、 香蕉", Markup(list_items=2)),
        ("1、苹果", Markup(list_items=1)),
        ("1、2和3是数字。", Markup()),
        ("•a\n•b", Markup(list_items=2)),
        ("It falls.\n\n* * *\n\n- - -\nIt stops.", Markup()),
        ("* * one\n* * * two\n* *", Markup(list_items=3)),
        ("a | b\n--|--\n1 | 2", Markup(tables=1)),
        ("```x``` shows it.\n- one\n- two", Markup(list_items=2)),
        ("Plain words only.", Markup()),
        ("", Markup()),
        ("<|im_end|>", Markup()),
        ("<think>**bold** thoughts</think>Plain.", Markup()),
    ],
)
def test_markup(text: str, expected: Markup) -> None:
    assert markup(text) == expected


def test_the_total_counts_every_kind() -> None:
    assert Markup(bold=1, list_items=2, headings=4, tables=8).total == 15


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Great question! I'm happy to help.", 2),
        ("Great question! Great question! Great question!", 1),
        ("Hope this helps 😊 🎉", 2),
        ("Don’t worry, you’ve got this!", 2),
        ("I'm not happy to help.", 0),
        ("It isn't lovely.", 0),
        ("The deer enjoys grass.", 0),
        ("Rain is water that falls from clouds.", 0),
        (":)", 1),
        ("see a:) b", 0),
        ("", 0),
    ],
)
def test_friendly(text: str, count: int) -> None:
    assert len(friendly(text)) == count


def test_without_friendly_leaves_the_rest() -> None:
    assert without_friendly("Great question! Rain is water. Feel free! 😊").split() == [
        "!",
        "Rain",
        "is",
        "water.",
        "!",
    ]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1. Wash the rice.\n2. Boil the water.\n3. Cook for ten minutes.", 3),
        ("Step 1: Wash the rice.\nStep 2: Boil the water.", 2),
        ("**Step 1:** Wash the rice.\n**Step 2:** Boil the water.", 2),
        ("First, wash the rice. Then boil the water. Finally, let it rest.", 3),
        ("Wash the rice, then boil the water, and finally let it rest.", 2),
        ("12 * 4 = 48, and 48 - 30 = 18.", 2),
        ("We get 3 × 4 = 12.", 1),
        ("Do this: 1. Wash the rice. 2. Boil the water. 3. Let it rest.", 3),
        ("- Wash the rice.\n- Boil the water.", 2),
        ("Step 1.\nStep 2.\nStep 3.", 0),
        ("1. Yes\n2. Yes\n3. Yes", 0),
        ("1. Wash the rice.\n2. Wash the rice.\n3. Wash the rice.", 1),
        ("It has 3.5 points.", 0),
        ("The answer is 48.", 0),
        ("", 0),
    ],
)
def test_steps(text: str, count: int) -> None:
    assert steps(text) == count
