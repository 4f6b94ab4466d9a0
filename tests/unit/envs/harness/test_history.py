"""A history that is shortened keeps the opening and the newest turns whole, and says how many are gone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.envs.harness.history import History, cut
from openclaw_rl.types import Message

OPENING = (Message(role="system", content="You work."), Message(role="user", content="Count."))


def grown(num_turns: int) -> History:
    history = History(OPENING)
    for turn in range(num_turns):
        results = [Message(role="tool", content=f"result {turn}.{part}", tool_call_id="c") for part in range(2)]
        history.add(Message(role="assistant", content=f"answer {turn}"), results)
    return history


def said(history: History) -> list[str]:
    return [message.content for message in history.messages()]


def test_what_fits_is_told_whole() -> None:
    assert said(grown(2)) == [
        "You work.",
        "Count.",
        *("answer 0", "result 0.0", "result 0.1"),
        *("answer 1", "result 1.0", "result 1.1"),
    ]
    assert History(OPENING).is_new
    assert not grown(1).is_new


@given(num_turns=st.integers(2, 40), num_times=st.integers(1, 6))
def test_the_oldest_turns_go_first_and_the_newest_stays(num_turns: int, num_times: int) -> None:
    history = grown(num_turns)
    left = num_turns
    for _ in range(num_times):
        assert history.shorten() == (left > 1)
        left -= left // 2
    system, user, marker, *turns = history.messages()
    assert (system, user) == OPENING
    assert (marker.role, marker.content) == ("user", f"[{num_turns - left} earlier steps left out]")
    assert len(turns) == 3 * left
    assert turns[0].content == f"answer {num_turns - left}"
    assert turns[-1].content == f"result {num_turns - 1}.1"


def test_the_only_turn_is_never_left_out() -> None:
    for history in (grown(0), grown(1)):
        before = history.messages()
        assert not history.shorten()
        assert history.messages() == before


@given(text=st.text(max_size=60), max_chars=st.integers(1, 40))
def test_a_long_text_keeps_its_ends(text: str, max_chars: int) -> None:
    shown = cut(text, max_chars)
    if len(text) <= max_chars:
        assert shown == text
        return
    head, tail = shown.split(f"\n[{len(text) - max_chars} characters left out]\n")
    assert len(head) + len(tail) == max_chars
    assert text.startswith(head)
    assert text.endswith(tail)
    assert abs(len(head) - len(tail)) <= 1
