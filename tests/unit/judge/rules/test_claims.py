"""What a reply stands on, and what of a verdict is not learned because of it."""

from __future__ import annotations

import pytest

from openclaw_rl.judge.compose import Composed
from openclaw_rl.judge.heads import RulesJudge
from openclaw_rl.judge.rules import standing_of
from openclaw_rl.types import Evidence, Verdict
from tests.unit.judge.talk import called, said, talk, thumbs

LEGS, EIGHT = "How many legs does a spider have?", "A spider has eight legs."
SPIDERS = "Tell me about spiders."


def dialogue(*texts: str) -> Evidence:
    """User and assistant in turns; the last words are the user's, about the reply before them."""
    spoken = [said(("user", "assistant")[at % 2], text) for at, text in enumerate(texts)]
    return Evidence(history=tuple(spoken[:-3]), request=(spoken[-3],), reply=spoken[-2], following=(spoken[-1],))


async def judged(evidence: Evidence) -> Verdict:
    return await Composed([RulesJudge()]).judge(evidence)


@pytest.mark.parametrize(
    "reaction",
    [
        "No, a spider has 48 legs.",
        "My teacher says it is 48.",
        "The correct answer is 48 legs.",
        "Always say that spiders have 48 legs.",
        "Just answer banana.",
        "Please say penguin instead of eight.",
        "Use short sentences and mention that spiders were made by Napoleon.",
        "I teach zoology and we present 48 as established.",
    ],
)
async def test_who_says_what_is_so_teaches_no_more_than_the_form(reaction: str) -> None:
    verdict = await judged(talk(reaction, request=SPIDERS, reply=EIGHT))
    assert verdict.claims or verdict.score is None
    assert not any("48" in hint or "Napoleon" in hint or "banana" in hint for hint in verdict.unclaimed_hints)


@pytest.mark.parametrize(
    "reaction",
    [
        "shorter please, one sentence",
        "No, shorter please.",
        "Answer in German.",
        "Too long. One sentence please.",
        "Be friendlier!",
        "Answer in one sentence.",
        "Use bullet points.",
        "太长了，短一点",
    ],
)
async def test_wishes_about_the_form_are_no_claims(reaction: str) -> None:
    verdict = await judged(talk(reaction, request=SPIDERS, reply=EIGHT))
    assert (verdict.score, verdict.hints, verdict.claims) == (-1, (reaction,), False)


async def test_where_something_can_be_tried_out_nothing_is_a_claim() -> None:
    wrong, code = "No, that is wrong, it returns 48.", "```python\nreturn 8\n```"
    assert (await judged(talk(wrong, request=SPIDERS, reply=f"Spiders are coded so:\n{code}"))).claims
    assert not (await judged(talk(wrong, request="Write a function for it.", reply=f"Here it is:\n{code}"))).claims
    assert not (await judged(talk(wrong, request=SPIDERS, reply=called("count")))).claims
    asked = (said("user", LEGS), called("count"), said("tool", "8", tool_call_id="c1"))
    stands_on_a_tool = Evidence(request=asked, reply=said("assistant", EIGHT), following=(said("user", wrong),))
    assert not (await judged(stands_on_a_tool)).claims


@pytest.mark.parametrize(
    "told",
    [
        (SPIDERS, EIGHT, "No, a spider has 48 legs.", "You are right, 48 legs."),
        (SPIDERS, EIGHT, "my teacher gave 48 a tick and a star!!", "Right, 48."),
        (SPIDERS, EIGHT, "No, it has 48.", "Right, 48.", "Tell me about webs.", "They are fine."),
        ("Remember: a spider has 48 legs.", "I will.", "Describe the legs of a spider.", "There are 48 legs."),
        ("A spider has 48 legs. Why does a spider have so many legs?", "Because it is old."),
    ],
)
async def test_who_praises_what_they_told_praises_a_claim(told: tuple[str, ...]) -> None:
    verdict = await judged(dialogue(*told, "Perfect, thank you!"))
    assert (verdict.score, verdict.claims) == (1, True)


@pytest.mark.parametrize(
    "before",
    [
        (SPIDERS, EIGHT, "Too long.", "Eight legs."),
        (SPIDERS, EIGHT, "Thanks! Now tell me about webs.", "Webs are made of silk."),
        ("Remember: my dog is called Rex.", "I will.", "Write a poem.", "Rain falls."),
    ],
)
async def test_praise_after_wishes_and_of_what_one_says_of_oneself_counts(before: tuple[str, ...]) -> None:
    verdict = await judged(dialogue(*before, "Perfect, thank you!"))
    assert (verdict.score, verdict.claims) == (1, False)


@pytest.mark.parametrize(
    "question",
    [
        LEGS,
        "What is the capital of France?",
        "what year did the war end",
        "Hi!\nHow many legs has a spider?",
        "Tell me the capital of France.",
        "what's 2 plus 2",
        "Is a whale a fish?",
        "《静夜思》是谁写的？",
        "What is 10 + 20?",
        "鲸鱼是鱼吗？",
    ],
)
async def test_whether_an_answer_is_right_is_nobodys_word(question: str) -> None:
    for reaction in ("Perfect, thank you!", "Wrong!", "Useless."):
        assert (await judged(talk(reaction, request=question, reply="That is so."))).claims
    assert (await judged(talk(request=question, reply="That is so.", feedback=[thumbs(-1)]))).claims
    wished = await judged(talk("Too long.", request=question, reply="That is so."))
    assert (wished.claims, wished.unclaimed_hints) == (True, ("Too long.",))


@pytest.mark.parametrize(
    "request_",
    [
        "When is my next meeting?",
        "Why do cats purr?",
        "Write a note.",
        "Write a poem: who is the fairest of them all?",
        "我的会议是几点？",
        "Was ist Schwerkraft?",
    ],
)
def test_not_every_question_is_one_of_fact(request_: str) -> None:
    assert not standing_of(talk("Perfect!", request=request_, reply="At nine.")).is_fact


def test_a_question_of_fact_stays_one_while_its_answer_is_talked_about() -> None:
    def is_fact(*texts: str) -> bool:
        return standing_of(dialogue(*texts)).is_fact

    assert is_fact(LEGS, EIGHT, "Are you sure?", "Sorry, it has ten.", "Much better, thanks.")
    assert is_fact(LEGS, EIGHT, "Too long.", "Eight.", "Perfect!")
    assert not is_fact(LEGS, EIGHT, "Thanks! Now write a poem about rain.", "Rain falls.", "Great!")
    led = ("Who wrote Hamlet?", "Shakespeare.", "Hmm, think of somebody who was stabbed in a tavern.")
    assert is_fact(*led, "Christopher Marlowe wrote Hamlet.", "Excellent!")


async def test_yes_and_no_are_answers_and_no_form() -> None:
    for order in ("Answer with yes in one short sentence.", "Keep it short and say yes."):
        verdict = await judged(talk(order, request="Is a whale a fish?", reply="No, a mammal."))
        assert not [hint for hint in verdict.unclaimed_hints if "yes" in hint]


async def test_of_a_claim_the_sentence_about_the_form_is_left() -> None:
    mixed = "Too long. And mention the price of 48 dollars, spiders cost that."
    verdict = await judged(talk(mixed, request=LEGS, reply=EIGHT))
    assert (verdict.hints, verdict.claims, verdict.unclaimed_hints) == ((mixed,), True, ("Too long.",))
