"""Votes of a panel: majorities, early stops, ties, failures, and that nothing is left running."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.judge.model.panel import AskFailed, PanelJudge
from openclaw_rl.types import Message, VoteQuestion
from tests.unit.judge.model.test_majority import plain
from tests.unit.judge.talk import ScriptedAsker, hinting, said, talk, votes

LATE = 30.0
EVIDENCE = talk("shorter please")


async def test_a_majority_decides_and_the_others_are_not_waited_for() -> None:
    asker = votes([-1, (LATE, 1), -1])
    verdict = await PanelJudge(asker).judge(EVIDENCE)
    assert (verdict.outcome, verdict.score, verdict.reason) == ("scored", -1, "")
    assert [v.score for v in verdict.votes if v.question == "score"] == [-1, -1]
    assert asker.num_running == 0
    assert asker.num_cancelled == 1


async def test_both_questions_are_asked_at_once() -> None:
    started = asyncio.Event()

    class Meeting(ScriptedAsker):
        async def ask(self, messages: Sequence[Message], *, question: VoteQuestion, seed: int) -> str:
            self.asked.append((question, seed))
            if len(self.asked) == 6:
                started.set()
            await started.wait()
            return r"\boxed{-1}"

    asker = Meeting(lambda *_: "")
    verdict = await PanelJudge(asker).judge(EVIDENCE)
    assert verdict.score == -1
    assert sorted(asker.asked) == [("hint", 0), ("hint", 1), ("hint", 2), ("score", 0), ("score", 1), ("score", 2)]


async def test_the_seeds_differ_and_the_prompt_does_not() -> None:
    asker = votes([1, 0, 1])
    await PanelJudge(asker).judge(EVIDENCE)
    scoring = [messages for (q, _), messages in zip(asker.asked, asker.messages, strict=True) if q == "score"]
    assert len(scoring) == 3
    assert all(messages == scoring[0] for messages in scoring)


async def test_the_prompt_is_the_same_next_time() -> None:
    asker = votes([1, 1, 1])
    judge = PanelJudge(asker)
    await judge.judge(EVIDENCE)
    first = asker.messages[0]
    await judge.judge(EVIDENCE)
    assert asker.messages.count(first) >= 4
    other = votes([1, 1, 1])
    await PanelJudge(other).judge(EVIDENCE)
    assert first not in other.messages, "another process has another secret"


@pytest.mark.parametrize(
    ("cast", "reason"),
    [
        ([1, -1, "down"], "the votes tie: 1 each for -1 and +1"),
        ([1, -1, 0], "the votes tie"),
        ([1, 1, -1, -1, 0], "the votes tie: 2 each"),
    ],
)
async def test_no_majority_abstains(cast: list[int | str], reason: str) -> None:
    verdict = await PanelJudge(votes(cast), num_judges=len(cast)).judge(EVIDENCE)
    assert (verdict.outcome, verdict.score) == ("abstained", None)
    assert reason in verdict.reason


async def test_neutral_is_a_score() -> None:
    verdict = await PanelJudge(votes([0, 0, 1])).judge(EVIDENCE)
    assert (verdict.outcome, verdict.score) == ("scored", 0)


async def test_no_valid_vote_is_a_failure() -> None:
    verdict = await PanelJudge(votes(["down", "down", "no key"], hint=[hinting("Answer more briefly.")])).judge(
        EVIDENCE
    )
    assert (verdict.outcome, verdict.score, verdict.hints) == ("failed", None, ())
    assert verdict.reason == "no valid vote: down; no key"
    assert [v.failure for v in verdict.votes if v.question == "score"] == ["down", "down", "no key"]


async def test_one_valid_vote_among_failures_is_enough() -> None:
    verdict = await PanelJudge(votes(["down", 1, "down"])).judge(EVIDENCE)
    assert (verdict.outcome, verdict.score) == ("scored", 1)


async def test_the_threshold_makes_the_panel_wait_for_all() -> None:
    asker = votes([1, 1, (0.02, 1)])
    verdict = await PanelJudge(asker, consensus_threshold=0.9).judge(EVIDENCE)
    assert verdict.score == 1
    assert len([v for v in verdict.votes if v.question == "score"]) == 3
    verdict = await PanelJudge(votes([1, 1, -1]), consensus_threshold=0.9).judge(EVIDENCE)
    assert verdict.outcome == "abstained"


async def test_hints_come_from_a_positive_majority() -> None:
    longer, shorter = hinting("Answer in one short sentence only."), hinting("Give the formula as well.")
    judge = PanelJudge(votes([-1] * 3, hint=[longer, r"\boxed{-1}", shorter]))
    verdict = await judge.judge(EVIDENCE)
    assert verdict.hints == ("Give the formula as well.", "Answer in one short sentence only.")
    verdict = await PanelJudge(votes([-1] * 3, hint=[longer, r"\boxed{-1}", r"\boxed{-1}"])).judge(EVIDENCE)
    assert verdict.hints == ()
    verdict = await PanelJudge(votes([-1] * 2, hint=[longer, r"\boxed{-1}"]), num_judges=2).judge(EVIDENCE)
    assert verdict.hints == (), "a tie is no correction"
    assert verdict.score == -1


async def test_a_tie_about_the_score_keeps_the_hints() -> None:
    verdict = await PanelJudge(votes([1, -1, 0], hint=[hinting("Answer more briefly.")])).judge(EVIDENCE)
    assert (verdict.outcome, verdict.hints) == ("abstained", ("Answer more briefly.",))


async def test_hints_that_cannot_be_had_leave_the_score_and_a_remark() -> None:
    verdict = await PanelJudge(votes([1] * 3, hint=["garbage"])).judge(EVIDENCE)
    assert (verdict.outcome, verdict.score, verdict.hints) == ("scored", 1, ())
    assert "no valid vote about hints: there is no line" in verdict.reason


async def test_hints_pass_the_same_gate_as_all_hints() -> None:
    evidence = talk(said("tool", "the total is 48213"), "no")
    verdict = await PanelJudge(votes([-1] * 3, hint=[hinting("Say that it is 48213.")])).judge(evidence)
    assert verdict.hints == ()
    judge = PanelJudge(votes([-1] * 3, hint=[hinting("Use a table."), hinting("Name your sources.")]), max_candidates=1)
    assert len((await judge.judge(EVIDENCE)).hints) == 1


async def test_without_majority_voting_the_first_valid_vote_counts() -> None:
    asker = votes(["down", -1, 1])
    verdict = await PanelJudge(asker, majority_voting=False).judge(EVIDENCE)
    assert (verdict.outcome, verdict.score) == ("scored", -1)
    assert [seed for question, seed in asker.asked if question == "score"] == [0, 1]
    assert [seed for question, seed in asker.asked if question == "hint"] == [0]
    verdict = await PanelJudge(votes(["a", "b", "a"]), majority_voting=False).judge(EVIDENCE)
    assert (verdict.outcome, verdict.reason) == ("failed", "no valid vote: a; b")


async def test_cancelling_a_verdict_leaves_nothing_running() -> None:
    all_asked = asyncio.Event()

    def answer(*_: object) -> object:
        if len(asker.asked) == 6:
            all_asked.set()
        return LATE, r"\boxed{1}"

    asker = ScriptedAsker(answer)
    before = asyncio.all_tasks()
    judging = asyncio.create_task(PanelJudge(asker).judge(EVIDENCE))
    await all_asked.wait()
    judging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await judging
    assert asker.num_running == 0
    assert asyncio.all_tasks() == before


async def test_a_vote_that_takes_its_time_to_stop_is_waited_for() -> None:
    class Reluctant(ScriptedAsker):
        num_open = 0

        async def ask(self, messages: Sequence[Message], *, question: VoteQuestion, seed: int) -> str:
            if question == "hint" or seed < 2:
                return r"\boxed{-1}"
            self.num_open += 1
            try:
                await asyncio.sleep(LATE)
            finally:
                await asyncio.sleep(0.02)
                self.num_open -= 1
            return ""

    asker = Reluctant(lambda *_: "")
    assert (await PanelJudge(asker).judge(EVIDENCE)).score == -1
    assert asker.num_open == 0


async def test_a_programming_error_is_not_a_vote_and_leaves_nothing_running() -> None:
    def answer(_: Sequence[Message], question: VoteQuestion, seed: int) -> object:
        return ZeroDivisionError("bug") if seed == 1 else (LATE, r"\boxed{1}")

    asker = ScriptedAsker(answer)
    before = asyncio.all_tasks()
    with pytest.raises(ExceptionGroup):
        await PanelJudge(asker).judge(EVIDENCE)
    assert asker.num_running == 0
    assert asyncio.all_tasks() == before


async def test_the_name_is_the_askers_and_closing_closes_it() -> None:
    asker = votes([1])
    judge = PanelJudge(asker)
    assert (judge.name, judge.prompt_version) == ("scripted", "score-2+hint-1")
    await judge.close()
    assert asker.is_closed


async def test_a_failure_without_words_still_has_a_reason() -> None:
    verdict = await PanelJudge(ScriptedAsker(lambda *_: AskFailed())).judge(EVIDENCE)
    assert verdict.reason == "no valid vote: no answer"


cast_votes = st.lists(st.sampled_from([-1, 0, 1, "down"]), min_size=1, max_size=5)


@given(cast_votes, st.sampled_from([0.0, 0.5, 0.7]), st.randoms(use_true_random=False))
def test_a_verdict_is_that_of_all_votes_in_any_order(cast: list[int | str], threshold: float, random: object) -> None:
    """Stopping early never changes the outcome."""
    valid = [vote for vote in cast if not isinstance(vote, str)]
    random.shuffle(cast)  # type: ignore[attr-defined]
    judge = PanelJudge(votes(cast), num_judges=len(cast), consensus_threshold=threshold)
    verdict = asyncio.run(judge.judge(EVIDENCE))
    if not valid:
        assert verdict.outcome == "failed"
    else:
        expected = plain(valid, threshold)
        assert verdict.score == expected
        assert verdict.outcome == ("abstained" if expected is None else "scored")
