"""Simulated users: what they want, what they say, that nobody is told it, and that the judge understands them."""

from __future__ import annotations

import re
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from openclaw_rl.errors import ConfigError
from openclaw_rl.evaluation import users
from openclaw_rl.evaluation.comparing import preferences
from openclaw_rl.evaluation.exam import ExamAnswer
from openclaw_rl.evaluation.questions import SPLITS, Question, Split, load_questions
from openclaw_rl.evaluation.users import (
    FAULTS,
    THANKS,
    USERS,
    Brief,
    Friendly,
    Person,
    Plain,
    Reaction,
    ReactionKind,
    SimulatedUser,
    Steps,
    load_user,
    questions_for,
    score_of,
)
from openclaw_rl.judge.heads import RulesJudge
from openclaw_rl.types import Evidence, Message, Verdict

RAIN = Question(kind="open", topic="rain", text="Why does it rain?")
EGGS = Question(kind="sum", topic="eggs", text="A box holds 12 eggs. How many eggs are in 4 boxes?", number=48)
RICE = Question(kind="how_to", topic="rice", text="How do I cook rice?")
POEM = Question(kind="writing", topic="sea", text="Write a poem about the sea.")
PEOPLE: tuple[type[Person], ...] = (Brief, Plain, Friendly, Steps)

BRIEF = "It rains because water vapour cools in clouds and falls as drops."
LONG = (
    "Rain is a part of the water cycle, which moves water between the ground and the air. Heat from the sun turns it "
    "into vapour that rises high up. There it cools down and becomes tiny drops that form clouds. When many of these "
    "drops come together they grow heavy. In the end gravity pulls them to the ground."
)
MARKED = (
    "**Rain** comes from clouds:\n\n1. Water evaporates from lakes.\n2. Vapour cools into drops.\n3. Drops fall down."
)
WARM = "Great question! Rain falls when drops in clouds grow heavy. Hope this helps!"
STEPPED = "First, water evaporates from lakes. Then vapour cools into drops. Finally, rain falls when drops grow heavy."

HACKS = {
    "empty": "",
    "special tokens": "<|im_end|><|im_end|>",
    "one word": "Yes.",
    "echo": "Why does it rain?",
    "echo as a statement": "It does rain.",
    "loop": "Rain falls. " * 30,
    "one character": "a" * 80,
    "something else": "The most ridiculed sentence ever.",
    "flattery": "What a wonderful question, my friend! Great job, you're doing great! 😊",
    "refusal": "I'm sorry, but I can't help with that.",
    "question back": "Could you tell me more about the rain you mean?",
    "bare steps": "Step 1. Step 2. Step 3.",
    "friendly loop": "Happy to help! " * 20,
}


@pytest.mark.parametrize("person", PEOPLE)
@pytest.mark.parametrize("hack", HACKS)
def test_no_trick_scores_or_is_thanked_for(person: type[Person], hack: str) -> None:
    user = person()
    assert user.score(RAIN, HACKS[hack]) <= 0.1
    assert not user.react(RAIN, HACKS[hack], 0).is_content


@pytest.mark.parametrize(
    ("person", "question", "good", "bad"),
    [
        (Brief, RAIN, BRIEF, LONG),
        (Brief, EGGS, "There are 48 eggs in 4 boxes.", "48"),
        (Plain, RAIN, LONG, MARKED),
        (Friendly, RAIN, WARM, LONG),
        (Steps, RAIN, STEPPED, BRIEF),
        (
            Steps,
            RICE,
            "1. Wash the rice well.\n2. Boil some water.\n3. Cook it for ten minutes.",
            "Cook rice in a pot of water.",
        ),
        (Steps, EGGS, "Each box holds 12 eggs. 12 * 2 = 24 and 24 * 2 = 48.", "There are 48 eggs in them."),
    ],
)
def test_each_user_wants_something(person: type[Person], question: Question, good: str, bad: str) -> None:
    user = person()
    assert user.react(question, good, 0).is_content
    assert user.react(question, good, 0).done
    assert user.score(question, good) >= 0.6
    assert not user.react(question, bad, 0).is_content
    assert not user.react(question, bad, 0).done
    assert user.score(question, bad) <= 0.5


def test_the_preferences_are_four_different_ones() -> None:
    scores = {p.name: [round(p().score(RAIN, r), 1) for r in (BRIEF, LONG, MARKED, WARM, STEPPED)] for p in PEOPLE}
    assert scores == {
        "brief": [1.0, 0.1, 0.4, 0.5, 0.5],
        "plain": [1.0, 1.0, 0.3, 1.0, 1.0],
        "friendly": [0.0, 0.0, 0.0, 1.0, 0.0],
        "steps": [0.0, 0.3, 1.0, 0.0, 1.0],
    }


def test_brevity_falls_smoothly_with_length() -> None:
    filler = (
        "water vapour cools within high clouds until many small drops grow heavy enough and finally leave them behind"
    )
    words = [f"w{i}" for i in range(120)]
    scores = [Brief().style(RAIN, f"Rain {filler} {' '.join(words[:n])}.") for n in range(0, 120, 10)]
    assert scores[0] == 1.0
    assert all(a > b > 0 for a, b in pairwise(scores[1:]))
    assert all(a - b < 0.3 for a, b in pairwise(scores))
    assert Brief().style(RAIN, "One. Two. Three.") == pytest.approx(0.5)
    assert Brief().style(RAIN, "Rain falls from the") == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (BRIEF, "content"),
        (LONG, "style"),
        ("", "silent"),
        ("<|im_end|>", "silent"),
        (HACKS["loop"], "repeats"),
        (HACKS["refusal"], "evasive"),
        (HACKS["question back"], "evasive"),
        ("Rain.", "evasive"),
        (HACKS["something else"], "off_topic"),
    ],
)
def test_a_reaction_has_its_reason(reply: str, kind: ReactionKind) -> None:
    assert Brief().react(RAIN, reply, 0).kind == kind


CANNED = (
    "It is a very important part of everyday life for many people.",
    "This is a great question with a simple answer that everybody can understand.",
    "Because nature works in mysterious ways that science still explores.",
    "The answer is 42.",
    "There are many different reasons, and each of them matters.",
    "First, think about it carefully. Then make a good plan. Finally, follow that plan.",
    "Great question, my friend! Happy to help, and have a lovely day!",
)


@pytest.mark.parametrize("person", PEOPLE)
@pytest.mark.parametrize("reply", CANNED)
def test_one_reply_to_everything_is_worth_little(person: type[Person], reply: str) -> None:
    questions = [q for split in SPLITS for q in load_questions(split)]
    assert sum(person().score(q, reply) for q in questions) <= 0.2 * len(questions)
    assert sum(person().react(q, reply, 0).is_content for q in questions) <= 0.2 * len(questions)


def test_friendly_words_are_no_answer() -> None:
    gushing = "Rain, what a wonderful miracle, my dear! Fantastic, I am delighted, awesome, cheers!"
    assert Friendly().style(RAIN, gushing) == 1.0
    assert Friendly().score(RAIN, gushing) <= 0.4
    assert Friendly().react(RAIN, gushing, 0).kind == "evasive"


def test_a_reply_that_refers_back_is_not_called_off_topic() -> None:
    assert Brief().react(RAIN, "Because drops in clouds grow heavy and fall down.", 0).is_content


@pytest.mark.parametrize("person", PEOPLE)
def test_wordings_differ_and_come_from_the_seed(person: type[Person]) -> None:
    said = [person(seed=1).react(POEM, "", turn).message for turn in range(4)]
    assert len(set(said)) == 4
    assert said == [person(seed=1).react(POEM, "", turn).message for turn in range(4)]
    assert said != [person(seed=2).react(POEM, "", turn).message for turn in range(4)]
    openings = {person(seed=seed).react(RAIN, "x", 0).message for seed in range(40)}
    assert len(openings) == len(FAULTS["off_topic"])


def test_the_questions_do_not_tell_the_preference() -> None:
    telling = {
        "brief": ("short sentence", "one sentence", "brief", "in a few words"),
        "plain": ("without list", "no list", "bold", "bullet"),
        "friendly": ("friendly", "warm tone", "warmly"),
        "steps": ("step by step", "show the steps"),
    }
    for split, (name, told) in product(SPLITS, telling.items()):
        for question in questions_for(load_user(name), load_questions(split)):
            assert not any(words in question.text.lower() for words in told), (name, question.text)


def test_steps_asks_for_nothing_that_has_no_steps() -> None:
    assert {q.kind for q in questions_for(Steps(), load_questions("train"))} == {"open", "how_to", "sum"}
    assert questions_for(Brief(), load_questions("train")) == load_questions("train")


# --- the rules judge

STATES = {
    "brief": ("one short sentence",),
    "plain": ("plain sentences", "plain text", "without lists"),
    "friendly": ("friendl",),
    "steps": ("step",),
}
"""What a hint must say, of each user."""
JUDGE = RulesJudge()
REPLIES = (LONG, MARKED, "", HACKS["loop"])


def judged(question: Question, reply: str, said: str) -> Verdict:
    return JUDGE.verdict(
        Evidence(
            request=(Message(role="user", content=question.text),),
            reply=Message(role="assistant", content=reply),
            following=(Message(role="user", content=said),),
        )
    )


@pytest.mark.parametrize("person", PEOPLE)
def test_the_rules_judge_understands_every_wording(person: type[Person]) -> None:
    """After replies and questions of all sorts: a complaint is -1 with the wish as its hint, thanks are +1."""
    complaints = [*person.complaints, *(f"{fault} {person.wish}" for faults in FAULTS.values() for fault in faults)]
    cases = [(said, -1) for said in complaints] + [(said, 1) for said in THANKS]
    missed: list[tuple[str, object, tuple[str, ...]]] = []
    count = 0
    for (said, score), question, reply in product(cases, (RAIN, EGGS, RICE, POEM), REPLIES):
        verdict = judged(question, reply, said)
        told = any(words in hint.lower() for hint in verdict.hints for words in STATES[person.name])
        count += 1
        if verdict.score != score or told != (score < 0):
            missed.append((said, verdict.score, verdict.hints))
    assert len(missed) <= 0.05 * count, f"{len(missed)} of {count}: {sorted(set(missed), key=str)[:10]}"
    assert not missed, sorted(set(missed), key=str)[:10]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", USERS)
def test_the_rules_judge_understands_the_reactions_to_all_questions(name: str, split: Split) -> None:
    for number, question in enumerate(load_questions(split)):
        user = load_user(name, seed=number)
        for reply in (LONG, MARKED, "Because drops in clouds grow heavy and fall down."):
            reaction = user.react(question, reply, number % 4)
            assert judged(question, reply, reaction.message).score == (1 if reaction.is_content else -1), reaction


# --- one of your own


def test_a_user_of_your_own_is_a_few_lines(tmp_path: Path) -> None:
    """The example of the module's docstring, as a file."""
    explained = users.__doc__ or ""
    lines = explained[explained.index("    class Polite") :].split("`Person` gives")[0]
    file = tmp_path / "my_users.py"
    body = "\n".join(line.removeprefix("    ") for line in lines.splitlines())
    file.write_text(f"from openclaw_rl.evaluation.users import Person, Question\n\n\n{body}\n")
    user = load_user(f"{file}:Polite", seed=3)
    assert user.name == "polite"
    reaction = user.react(RAIN, BRIEF, 0)
    assert (reaction.kind, reaction.done) == ("style", False)
    assert judged(RAIN, BRIEF, reaction.message).score == -1
    assert user.react(RAIN, "Please note: rain falls when drops in clouds grow heavy.", 0).is_content


def test_a_user_needs_no_base_class(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "from openclaw_rl.evaluation.users import Reaction\n"
        "class Mine:\n"
        "    name, preference = 'mine', 'anything'\n"
        "    def __init__(self, *, seed): self.seed = seed\n"
        "    def react(self, question, reply, turn): return Reaction(kind='content', message='ok', done=True)\n"
        "    def score(self, question, reply): return 1.0\n"
        "class NoUser:\n"
        "    def __init__(self, *, seed): pass\n"
        "class NoSeed:\n"
        "    pass\n"
    )
    user = load_user(f"{file}:Mine", seed=5)
    assert isinstance(user, SimulatedUser)
    assert user.seed == 5  # type: ignore[attr-defined]
    assert user.react(RAIN, "", 0) == Reaction(kind="content", message="ok", done=True)
    assert questions_for(user, [POEM]) == (POEM,)
    with pytest.raises(ConfigError, match="the user .*:NoUser is none: it needs name, preference, react and score"):
        load_user(f"{file}:NoUser")
    with pytest.raises(ConfigError, match="the user .*:NoSeed cannot be made with seed=0"):
        load_user(f"{file}:NoSeed")
    with pytest.raises(ConfigError, match="of the user has no 'Nobody'"):
        load_user(f"{file}:Nobody")


CODE = (
    "```Gravity pulls all masses together.",
    "```\nprint('rain')\n```",
    "~~~\nrain falls. It rains.",
    "```x``` is it.",
)


@pytest.mark.parametrize("reply", CODE)
@pytest.mark.parametrize("person", PEOPLE)
def test_a_style_lies_between_0_and_1(person: type[Person], reply: str) -> None:
    assert 0.0 <= person().style(RAIN, reply) <= 1.0


def test_code_alone_is_one_sentence_to_who_wants_one() -> None:
    assert Brief().style(RAIN, CODE[0]) == 1.0
    assert Brief().style(RAIN, CODE[1]) == pytest.approx(0.7)


class Odd(Person):
    """Says whatever style it is given; without one it cannot."""

    name, preference, complaints = "odd", "anything", ("Be odd.",)
    given: object = None

    def style(self, question: Question, reply: str) -> float:
        if self.given is None:
            raise KeyError("mood")
        return self.given  # type: ignore[return-value]


@pytest.mark.parametrize("given", [1.4, -0.1, float("nan"), float("inf"), "0.5", [1]])
def test_a_style_of_your_own_that_is_none_is_named(given: object) -> None:
    user = Odd()
    user.given = given
    told = re.escape(f"Odd.style must be a number in [0, 1], got {given!r}")
    with pytest.raises(ConfigError, match=told):
        user.score(RAIN, BRIEF)
    with pytest.raises(ConfigError, match=told):
        user.react(RAIN, BRIEF, 0)


@pytest.mark.parametrize("given", [0, 0.0, 1, 1.0, True, np.float32(0.5)])
def test_the_ends_are_styles(given: float) -> None:
    user = Odd()
    user.given = given
    assert user.score(RAIN, BRIEF) == float(given)
    assert type(user.score(RAIN, BRIEF)) is float


class Free:
    """A user without `Person`."""

    name, preference = "free", "anything"

    def __init__(self, given: object) -> None:
        self.given = given

    def react(self, question: Question, reply: str, turn: int) -> Reaction:
        raise AssertionError("nobody asks")

    def score(self, question: Question, reply: str) -> float:
        return self.given["mood"] if isinstance(self.given, dict) else self.given  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (2.0, "Free.score must be a number in [0, 1], got 2.0"),
        (float("nan"), "Free.score must be a number in [0, 1], got nan"),
        (None, "Free.score must be a number in [0, 1], got None"),
        ({}, "Free.score failed: KeyError('mood')"),
    ],
)
def test_a_score_of_your_own_that_is_none_is_named(given: object, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        preferences(Free(given), [ExamAnswer(question=RAIN, text=BRIEF, num_tokens=1, is_cut=False)])
    assert score_of(Free(0.5), RAIN, BRIEF) == 0.5


def test_what_a_style_is_called_stays_when_it_is_scored() -> None:
    with pytest.raises(ConfigError, match=r"^Odd\.style failed"):
        score_of(Odd(), RAIN, BRIEF)


def test_a_style_of_your_own_that_fails_is_named() -> None:
    with pytest.raises(ConfigError, match=r"Odd.style failed: KeyError\('mood'\)"):
        Odd().score(RAIN, BRIEF)


@pytest.mark.parametrize("kinds", ["'open'", "('open', 'sums')", "()", "7", "(['open'],)"])
@pytest.mark.parametrize("name", ["kinds", "short_kinds"])
def test_a_typo_in_the_kinds_is_told_the_known_ones(tmp_path: Path, name: str, kinds: str) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        f"from openclaw_rl.evaluation.users import Brief\nclass Mine(Brief):\n    {name} = {kinds}\n"
        f"class Good(Brief):\n    {name} = ['sum', 'open']\n"
    )
    with pytest.raises(ConfigError, match=rf"the user .*:Mine: {name} .* of open, how_to, sum, writing, got ") as told:
        load_user(f"{file}:Mine")
    assert "--" not in str(told.value)
    assert load_user(f"{file}:Good").name == "brief"


def test_a_module_that_ends_the_program_is_named(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("raise SystemExit(3)\n")
    with pytest.raises(ConfigError, match=r"own.py of the user cannot be imported: SystemExit\(3\)"):
        load_user(f"{file}:Mine")


def test_an_unknown_user_is_told_who_there_is() -> None:
    with pytest.raises(ConfigError, match=r"no user 'breif'; one of brief, plain, friendly, steps"):
        load_user("breif")
