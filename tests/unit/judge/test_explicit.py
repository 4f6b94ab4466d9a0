"""What people said outright comes before what anybody reads into what followed."""

from __future__ import annotations

from openclaw_rl.judge.explicit import ExplicitFirst
from openclaw_rl.types import Evidence, Verdict, Vote
from tests.unit.judge.talk import said, talk, thumbs


class Inner:
    """Remembers what it was shown."""

    name, prompt_version = "inner", "inner-1"

    def __init__(self, verdict: Verdict | None = None) -> None:
        hint = Vote(question="hint", score=1, hint="Answer more briefly.")
        score = Vote(question="score", score=-1)
        self.verdict = verdict or Verdict(outcome="scored", score=-1, votes=(score, hint), hints=(hint.hint,))
        self.shown: list[Evidence] = []
        self.is_closed = self.has_forgotten = False

    async def judge(self, evidence: Evidence) -> Verdict:
        self.shown.append(evidence)
        return self.verdict

    def forget(self) -> None:
        self.has_forgotten = True

    async def close(self) -> None:
        self.is_closed = True


def test_the_inner_judge_forgets() -> None:
    inner = Inner()
    ExplicitFirst(inner).forget()
    assert inner.has_forgotten


async def test_without_feedback_the_inner_judge_decides() -> None:
    inner = Inner()
    evidence = talk("shorter please")
    assert await ExplicitFirst(inner).judge(evidence) == inner.verdict
    assert inner.shown == [evidence]


async def test_a_score_alone_asks_nobody() -> None:
    inner = Inner()
    for score in (1, -1, 0):
        verdict = await ExplicitFirst(inner).judge(talk(feedback=[thumbs(score)]))
        assert (verdict.outcome, verdict.score, verdict.reason) == ("scored", score, "explicit feedback")
        assert [vote.score for vote in verdict.votes] == [score]
    assert inner.shown == []


async def test_the_score_is_explicit_and_the_hints_are_read() -> None:
    inner = Inner()
    verdict = await ExplicitFirst(inner).judge(talk("hm", feedback=[thumbs(1, "but shorter next time")]))
    assert (verdict.score, verdict.hints) == (1, ("Answer more briefly.",))
    assert [(vote.question, vote.score) for vote in verdict.votes] == [("score", 1), ("hint", 1)]
    assert inner.shown[0].following == (said("user", "hm"), said("user", "but shorter next time"))
    assert inner.shown[0].feedback == ()


async def test_the_latest_score_counts_whatever_was_written_later() -> None:
    feedback = [thumbs(None, "a word", at=3), thumbs(1, at=2), thumbs(-1, at=1)]
    verdict = await ExplicitFirst(Inner()).judge(talk(feedback=feedback))
    assert verdict.score == 1


async def test_text_without_a_score_is_read_by_the_inner_judge() -> None:
    inner = Inner()
    feedback = [thumbs(None, "second", at=2), thumbs(None, "first", at=1), thumbs(None, "  ", at=3)]
    assert await ExplicitFirst(inner).judge(talk(said("tool", "ok"), feedback=feedback)) == inner.verdict
    assert [m.content for m in inner.shown[0].following] == ["ok", "first", "second"]


async def test_a_failing_inner_judge_does_not_take_the_score_away() -> None:
    inner = Inner(Verdict(outcome="failed", reason="it is down"))
    verdict = await ExplicitFirst(inner).judge(talk("hm", feedback=[thumbs(-1)]))
    assert (verdict.outcome, verdict.score, verdict.hints) == ("scored", -1, ())
    assert verdict.reason == "explicit feedback; no hints: it is down"


async def test_only_blank_text_and_nothing_else_abstains() -> None:
    inner = Inner()
    verdict = await ExplicitFirst(inner).judge(talk(feedback=[thumbs(None, "  ")]))
    assert (verdict.outcome, verdict.reason) == ("abstained", "the feedback is blank")
    assert inner.shown == []


async def test_it_goes_by_the_name_of_the_inner_judge_and_closes_it() -> None:
    inner = Inner()
    judge = ExplicitFirst(inner)
    assert (judge.name, judge.prompt_version) == ("inner", "inner-1")
    await judge.close()
    assert inner.is_closed
