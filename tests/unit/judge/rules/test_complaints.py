"""A hint never says the opposite of what a person said: it is their own words, with the word that says which way."""

from __future__ import annotations

import re

import pytest

from openclaw_rl.judge.heads import RulesJudge
from tests.unit.judge.talk import talk

JUDGE = RulesJudge()

THINGS = ("emojis", "bullet points", "tables", "capitals", "jokes", "headings", "disclaimers")
OF_THINGS = {
    "again with the {}": "again",
    "with the {} again": "again",
    "ugh, with the {} again": "again|ugh",
    "the {} again": "again",
    "{} again": "again",
    "you did the {} again": "again",
    "still with the {}": "still",
    "always with the {}": "always",
    "always the {}": "always",
    "why always the {}": "why",
    "why the {}?": "why",
    "what is with the {}": "what",
    "so many {}": "so many",
    "too many {}": "too many",
    "all those {}": "all those",
    "{} everywhere": "everywhere",
    "more {} than content": "than content",
    "seriously with the {}": "seriously",
    "omg the {}": "omg",
    "stop using {}": "stop",
    "stop it with the {}": "stop",
    "enough with the {}": "enough",
    "enough {}": "enough",
    "no more {}": "no more",
    "no {}": "no",
    "please no {}": "no",
    "please not with {}": "not",
    "not with {} please": "not",
    "I told you no {}": "no",
    "I said no {}": "no",
    "I never asked for {}": "never",
    "I did not ask for {}": "not",
    "who asked for {}": "who",
    "did I ask for {}?": "did I ask",
    "could you not use {}": "not",
    "can you please not use {}": "not",
    "must you use {}": "must you",
    "why did you use {}": "why",
    "you used {} although I said no {}": "no",
    "you always use {}": "you always",
    "you put the {} back": "you put",
    "you left the {} in": "you left",
    "I hate the {}": "hate",
    "I do not like the {}": "not",
    "sick of the {}": "sick",
    "tired of these {}": "tired",
    "the {} are annoying": "annoying",
    "the {} are not needed": "not needed",
    "using {} is childish": "childish",
    "it needs no {}": "no",
    "should not have {}": "not",
    "there is no need for {}": "no need",
    "I can do without the {}": "without",
    "without {} this time": "without",
    "drop the {}": "drop",
    "spare me the {}": "spare",
    "quit the {}": "quit",
    "you need to stop with the {}": "stop",
    "you could have left out the {}": "left out",
}
"""What is said, and what of it says that the things are not wanted."""

OF_STYLE = {
    "too long": "brief",
    "way too long, who reads that": "brief",
    "too much detail": "brief",
    "just a wall of text": "brief",
    "still too formal": "less formal",
    "too casual": "more formal",
    "not so formal": "not so|less",
    "always so formal": "always so",
    "so formal": "so formal",
    "not so many words": "not so",
    "not shorter!": "not",
    "no shorter please": "no shorter",
    "please do not make it shorter": "not",
    "I never asked you to make it shorter": "never",
    "I didn't want it shorter": "not",
    "you made it shorter again": "you made",
    "you keep making it longer": "you keep",
    "your answers get longer and longer": "get longer",
    "it got longer": "got",
    "that is even longer": "even",
    "even longer now": "even",
    "longer again": "again",
    "why longer": "why",
    "it's longer than before": "than before",
    "it is not simpler": "not",
    "that is no simpler": "no simpler",
    "that's not more formal": "not",
    "this is not the shorter version": "not",
    "more formal than ever": "than ever",
    "flat routes only": "only",
    "in German again": "again",
    "why is this in German": "why",
    "this is in German": "this is",
    "please not in German": "not",
    "in all caps again": "again",
    "no sources": "no",
    "without any sources": "without",
    "I asked for short, you gave me long": "I asked",
    "I said longer, not shorter": "longer",
}


def hint_of(said: str) -> str:
    hints = JUDGE.verdict(
        talk(said, request="Explain recursion.", reply="Recursion is a function that CALLS itself.")
    ).hints
    assert len(hints) <= 1
    return "".join(hints)


COMPLAINTS = [(said.format(*[thing] * 2), keeps) for said, keeps in OF_THINGS.items() for thing in THINGS]
COMPLAINTS += list(OF_STYLE.items())


@pytest.mark.parametrize(("said", "keeps"), COMPLAINTS)
def test_the_hint_of_a_complaint_says_which_way(said: str, keeps: str) -> None:
    hint = hint_of(said)
    assert not hint or re.search(rf"\b(?:{keeps})", hint, re.IGNORECASE), f"{said!r} became {hint!r}"


def test_the_wish_beside_a_complaint_is_kept() -> None:
    hint = hint_of("again with the capitals. write everything in small letters")
    assert hint == "Mind this correction: again with the capitals. Write everything in small letters."


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("shorter please", "Answer more briefly."),
        ("it should be shorter", "Answer more briefly."),
        ("a bit longer maybe", "Give more detail and be specific."),
        ("I wanted it less formal", "Write in a friendlier, less formal and more natural tone."),
        ("in German", "Answer in German."),
        ("with sources please", "Answer with sources."),
        ("bullet points please", "The user wants this: bullet points."),
        ("next time with examples", "Answer with examples."),
    ],
)
def test_a_plain_wish_is_still_put_as_one(said: str, hint: str) -> None:
    assert hint_of(said) == hint


TURNED = {
    "Using lowercase everywhere is annoying. Capitalise properly.": (
        "Mind this correction: Using lowercase everywhere is annoying. Capitalise properly."
    ),
    "Write in rhyme? No thanks.": "Mind this correction: Write in rhyme?",
    "Answer in capital letters? Seriously?": "Mind this correction: Answer in capital letters?",
    "Use one more emoji and I'm done.": "Mind this correction: Use one more emoji and I am done.",
    "Add another disclaimer and I'll scream": "Mind this correction: Add another disclaimer and I will scream.",
    "Keep apologising and I'll leave": "Mind this correction: Keep apologising and I will leave.",
    "Use headings like that and nobody reads it": "Mind this correction: Use headings like that and nobody reads it.",
    "You should not have used a table; prose next time.": (
        "Mind this correction: You should not have used a table; prose next time."
    ),
    "I told you to use metric and you used miles.": (
        "Do this in the reply: use metric. Mind this correction: and you used miles."
    ),
    "I want you to stop using lists but you keep using lists.": "Stop using lists.",
}


@pytest.mark.parametrize(("said", "hint"), TURNED.items())
def test_no_complaint_is_put_as_a_wish(said: str, hint: str) -> None:
    assert hint_of(said) == hint


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Can you make it shorter?", "Make it shorter."),
        ("Could you use headings in the answer?", "Use headings in the answer."),
        ("Use fewer lists but you can use tables.", "Use fewer lists but you can use tables."),
    ],
)
def test_a_polite_question_and_a_grant_are_still_wishes(said: str, hint: str) -> None:
    assert hint_of(said) == hint
