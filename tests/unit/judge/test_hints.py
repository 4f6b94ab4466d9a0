"""Which hints are accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.judge.hints import MAX_CHARS, accept_hints, near_equal
from openclaw_rl.types import Evidence, Tool, Vote
from tests.unit.judge.talk import called, said, talk, thumbs

PLAIN = talk("no, shorter please")


def vote(hint: str) -> Vote:
    return Vote(question="hint", score=1, hint=hint)


def accepted(*hints: str, evidence: Evidence = PLAIN, max_candidates: int = 3) -> tuple[str, ...]:
    return accept_hints([vote(h) for h in hints], evidence, max_candidates=max_candidates)


def test_only_positive_decisions_of_the_hint_question() -> None:
    votes = [
        Vote(question="score", score=1),
        Vote(question="hint", score=-1, hint="Answer in one sentence."),
        Vote(question="hint", score=None, failure="x"),
        vote("Answer briefly, please."),
    ]
    assert accept_hints(votes, PLAIN, max_candidates=3) == ("Answer briefly, please.",)


def test_longer_than_ten_characters() -> None:
    assert accepted("  0123456789  ", " 01234567890 ") == ("01234567890",)


def test_an_essay_is_no_hint() -> None:
    assert accepted("x" * (MAX_CHARS + 1)) == ()
    assert accepted("x" * MAX_CHARS) != ()


def test_the_shortest_first_and_not_more_than_wanted() -> None:
    hints = ("Write the whole answer in Chinese characters.", "Show every step.", "Name your sources.", "Use a table.")
    assert accepted(*hints) == ("Use a table.", "Show every step.", "Name your sources.")
    assert accepted(*hints, max_candidates=1) == ("Use a table.",)


def test_of_near_equals_the_shortest_stays() -> None:
    assert accepted(
        "Answer in one short sentence, please.", "Answer in one short sentence.", " Answer in one short sentence. "
    ) == ("Answer in one short sentence.",)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("Answer in English.", "answer in english", True),
        ("Answer in English, please.", "Answer in English.", True),
        ("Don’t use tables here.", "Don't use tables here!", True),
        ("Do not use tables here.", "Don't use tables here.", True),
        ("Use tabs, not spaces.", "Use spaces, not tabs.", False),
        (
            "Always add comments to the code you write for me.",
            "Never add comments to the code you write for me.",
            False,
        ),
        ("Keep the whole summary under 50 words in total.", "Keep the whole summary under 80 words in total.", False),
        ("请用中文简短地回答这个问题。", "请用中文简短回答这个问题", True),
        ("请不要用中文回答我的问题", "请用中文回答我的问题", False),
        ("Write tests first.", "Name your sources.", False),
        ("ＡＮＳＷＥＲ in English.", "Answer in English.", True),
    ],
)
def test_nearly_the_same(first: str, second: str, same: bool) -> None:
    assert near_equal(first, second) is same
    assert near_equal(second, first) is same


RESULT = said("tool", "Revenue 2023: 48213 EUR. The CEO is Jane Doe. See config_v2.yaml in /etc/app for the rest.")
FOUND = talk(RESULT, "well, look again", request="What was the revenue?", reply=called("lookup", '{"year": 2023}'))


@pytest.mark.parametrize(
    "hint",
    [
        "Say that the revenue was 48213 euros.",
        "Mention that the boss is Jane.",
        "Read config_v2.yaml before you answer.",
        "Look into /etc/app for the answer.",
    ],
)
def test_what_only_a_tool_result_tells_is_not_in_a_hint(hint: str) -> None:
    assert accepted(hint, evidence=FOUND) == ()


def test_a_long_quote_of_a_tool_result_is_not_in_a_hint() -> None:
    story = said("tool", "the meeting was moved to the small room behind the kitchen because of rain")
    evidence = talk(story, "hm", reply=called("read"))
    assert accepted("Say the meeting was moved to the small room.", evidence=evidence) == ()
    assert accepted("Say where the meeting is, in one sentence.", evidence=evidence) != ()
    chinese = talk(said("tool", "会议改到了厨房后面的小房间因为今天下雨了"), "嗯", reply=called("read"))
    assert accepted("告诉他会议改到了厨房后面的小房间", evidence=chinese) == ()
    assert accepted("请先查会议的地点，再用一句话回答。", evidence=chinese) != ()


@pytest.mark.parametrize(
    ("hint", "evidence"),
    [
        ("Give the year 2023 in the heading.", FOUND),  # the reply itself named it
        ("Answer in 3 sentences at most.", talk(said("tool", "3 files"), reply=called("ls"))),  # one digit is chance
        ("Say that it was 48213 euros.", talk(RESULT, "it was 48213, you know", reply=called("lookup"))),
        ("Say that it was 48213 euros.", talk("it was 48213, you know")),
        ("Read config_v2.yaml first of all.", talk(RESULT, request="what is in config_v2.yaml?", reply=called("cat"))),
        ("Ask Jane Doe before you answer.", talk(RESULT, history=[said("user", "I am Jane Doe")], reply=called("x"))),
        ("Call read_file with a full path.",
         talk(said("tool", "read_file: no such file"), tools=[Tool(name="read_file")], reply=called("x"))),
        ("Use read_file for such questions.",
         talk(said("tool", "try read_file"), tools=[Tool(name="x", description="like read_file")], reply=called("x"))),
        ("Mention 48213 in the summary.", talk(RESULT, reply=called("x"), feedback=[thumbs(-1, "48213 is missing")])),
        ("Check the arguments before calling.", FOUND),
    ],
)  # fmt: skip
def test_what_could_be_known_or_was_said_by_the_user_may_be_in_a_hint(hint: str, evidence: Evidence) -> None:
    assert accepted(hint, evidence=evidence) == (hint,)


def test_a_number_within_a_number_is_another_number() -> None:
    evidence = talk(said("tool", "14207"), reply=called("x"))
    assert accepted("Say 42 and nothing else.", evidence=evidence) != ()
    assert accepted("结果是14207，请直接说出来。", evidence=evidence) == ()


@given(st.lists(st.text(alphabet="ab c不1", min_size=8, max_size=30), max_size=8), st.integers(1, 4))
def test_accepted_hints_are_sorted_few_apart_and_proposed(hints: list[str], max_candidates: int) -> None:
    kept = accepted(*hints, max_candidates=max_candidates)
    assert len(kept) <= max_candidates
    assert list(kept) == sorted(kept, key=len)
    assert set(kept) <= {h.strip() for h in hints}
    assert all(len(h) > 10 for h in kept)
    assert not any(near_equal(a, b) for i, a in enumerate(kept) for b in kept[:i])
