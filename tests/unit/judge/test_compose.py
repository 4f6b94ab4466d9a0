"""How a verdict comes about: what was said outright, the judges in their order, and whose claims are marked."""

from __future__ import annotations

import asyncio

import pytest

from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.compose import Composed
from openclaw_rl.judge.heads import RulesJudge
from openclaw_rl.protocols import Judge
from openclaw_rl.types import Evidence, Verdict, Vote, own_hint
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


def test_the_only_judge_forgets() -> None:
    inner = Inner()
    Composed([inner]).forget()
    assert inner.has_forgotten


async def test_without_feedback_the_inner_judge_decides() -> None:
    inner = Inner()
    evidence = talk("shorter please")
    assert await Composed([inner]).judge(evidence) == inner.verdict
    assert inner.shown == [evidence]


async def test_a_score_alone_asks_nobody() -> None:
    inner = Inner()
    for score in (1, -1, 0):
        verdict = await Composed([inner]).judge(talk(feedback=[thumbs(score)]))
        assert (verdict.outcome, verdict.score, verdict.reason) == ("scored", score, "explicit feedback")
        assert [vote.score for vote in verdict.votes] == [score]
    assert inner.shown == []


async def test_the_score_is_explicit_and_the_hints_are_read() -> None:
    inner = Inner()
    verdict = await Composed([inner]).judge(talk("hm", feedback=[thumbs(1, "but shorter next time")]))
    assert (verdict.score, verdict.hints) == (1, ("Answer more briefly.",))
    assert [(vote.question, vote.score) for vote in verdict.votes] == [("score", 1), ("hint", 1)]
    assert inner.shown[0].following == (said("user", "hm"), said("user", "but shorter next time"))
    assert inner.shown[0].feedback == ()


async def test_the_latest_score_counts_whatever_was_written_later() -> None:
    feedback = [thumbs(None, "a word", at=3), thumbs(1, at=2), thumbs(-1, at=1)]
    verdict = await Composed([Inner()]).judge(talk(feedback=feedback))
    assert verdict.score == 1


async def test_text_without_a_score_is_read_by_the_inner_judge() -> None:
    inner = Inner()
    feedback = [thumbs(None, "second", at=2), thumbs(None, "first", at=1), thumbs(None, "  ", at=3)]
    assert await Composed([inner]).judge(talk(said("tool", "ok"), feedback=feedback)) == inner.verdict
    assert [m.content for m in inner.shown[0].following] == ["ok", "first", "second"]


async def test_a_failing_inner_judge_does_not_take_the_score_away() -> None:
    inner = Inner(Verdict(outcome="failed", reason="it is down"))
    verdict = await Composed([inner]).judge(talk("hm", feedback=[thumbs(-1)]))
    assert (verdict.outcome, verdict.score, verdict.hints) == ("scored", -1, ())
    assert verdict.reason == "explicit feedback; no hints: it is down"


async def test_only_blank_text_and_nothing_else_abstains() -> None:
    inner = Inner()
    verdict = await Composed([inner]).judge(talk(feedback=[thumbs(None, "  ")]))
    assert (verdict.outcome, verdict.reason) == ("abstained", "the feedback is blank")
    assert inner.shown == []


PLUS = Verdict(outcome="scored", score=1, votes=(Vote(question="score", score=1, raw="thanks"),))
NEUTRAL = Verdict(outcome="scored", score=0)
ABSTAINED = Verdict(outcome="abstained", reason="nothing to go by")
HINTED = Verdict(outcome="abstained", reason="a tie", hints=("Answer more briefly.",))
FAILED = Verdict(outcome="failed", reason="it is down")


class Fixed:
    def __init__(self, name: str, verdict: Verdict) -> None:
        self.name, self.prompt_version = name, f"{name}-1"
        self.verdict = verdict
        self.num_asked = 0
        self.is_closed = self.has_forgotten = False

    async def judge(self, evidence: Evidence) -> Verdict:
        self.num_asked += 1
        return self.verdict

    def forget(self) -> None:
        self.has_forgotten = True

    async def close(self) -> None:
        self.is_closed = True


def chain(*verdicts: Verdict) -> tuple[Composed, list[Fixed]]:
    judges = [Fixed(name, verdict) for name, verdict in zip(("rules", "endpoint", "self"), verdicts, strict=False)]
    return Composed(judges), judges


@pytest.mark.parametrize(
    ("verdicts", "outcome", "score", "num_asked", "reason"),
    [
        ((PLUS, FAILED), "scored", 1, [1, 0], "rules scored"),
        ((NEUTRAL, PLUS), "scored", 0, [1, 0], "rules scored"),
        ((ABSTAINED, PLUS), "scored", 1, [1, 1], "endpoint scored; rules abstained (nothing to go by)"),
        ((FAILED, PLUS), "scored", 1, [1, 1], "endpoint scored; rules failed (it is down)"),
        ((ABSTAINED, ABSTAINED), "abstained", None, [1, 1],
         "endpoint abstained (nothing to go by); rules abstained (nothing to go by)"),
        ((ABSTAINED, FAILED), "failed", None, [1, 1],
         "endpoint failed (it is down); rules abstained (nothing to go by)"),
        ((FAILED, ABSTAINED), "failed", None, [1, 1],
         "endpoint abstained (nothing to go by); rules failed (it is down)"),
        ((ABSTAINED, FAILED, PLUS), "scored", 1, [1, 1, 1],
         "self scored; endpoint failed (it is down); rules abstained (nothing to go by)"),
    ],
)  # fmt: skip
async def test_the_first_that_scores_decides(
    verdicts: tuple[Verdict, ...], outcome: str, score: int | None, num_asked: list[int], reason: str
) -> None:
    judge, judges = chain(*verdicts)
    verdict = await judge.judge(talk("x"))
    assert (verdict.outcome, verdict.score, verdict.reason) == (outcome, score, reason)
    assert [j.num_asked for j in judges] == num_asked


async def test_the_votes_are_those_of_who_decided() -> None:
    judge, _ = chain(ABSTAINED, PLUS)
    assert (await judge.judge(talk("x"))).votes == PLUS.votes


async def test_hints_of_who_abstained_are_kept() -> None:
    judge, _ = chain(HINTED, PLUS)
    assert (await judge.judge(talk("x"))).hints == HINTED.hints
    judge, _ = chain(HINTED, ABSTAINED)
    assert (await judge.judge(talk("x"))).hints == HINTED.hints


def test_all_of_them_forget() -> None:
    judge, judges = chain(PLUS, PLUS)
    judge.forget()
    assert all(j.has_forgotten for j in judges)


async def test_names_versions_and_closing() -> None:
    judge, judges = chain(PLUS, PLUS)
    assert (judge.name, judge.prompt_version) == ("rules+endpoint", "rules-1+endpoint-1")
    await judge.close()
    assert all(j.is_closed for j in judges)


def test_no_judge_at_all_is_refused() -> None:
    with pytest.raises(JudgeError, match="at least one judge"):
        Composed([])


async def test_who_was_asked_is_told_whoever_decided() -> None:
    judge, judges = chain(ABSTAINED, FAILED, PLUS)
    assert (await judge.decide(talk("x"))).asked == tuple(judges)
    judge, judges = chain(PLUS, PLUS)
    assert (await judge.decide(talk("x"))).asked == (judges[0],)
    assert (await judge.decide(talk(feedback=[thumbs(1)]))).asked == ()


class Broken(Fixed):
    async def judge(self, evidence: Evidence) -> Verdict:
        if self.verdict is FAILED:
            raise RuntimeError(evidence.following[0].content)
        await asyncio.sleep(3600)
        return PLUS


@pytest.mark.parametrize(
    ("verdict", "reason"), [(FAILED, "the judge raised RuntimeError"), (ABSTAINED, "no verdict within 0.01 s")]
)
async def test_a_judge_that_raises_or_hangs_has_failed_and_the_next_is_asked(
    verdict: Verdict, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken("function", verdict)
    decision = await Composed([broken, Fixed("rules", PLUS)], deadline_s=0.01).decide(talk("a secret"))
    assert (decision.verdict.score, decision.verdict.reason) == (1, f"rules scored; function failed ({reason})")
    assert len(decision.asked) == 2
    explicit = await Composed([broken], deadline_s=0.01).judge(talk("a secret", feedback=[thumbs(-1)]))
    assert (explicit.score, explicit.reason) == (-1, f"explicit feedback; no hints: {reason}")
    assert "secret" not in caplog.text


FACT = talk("Wrong!", request="How many legs does a spider have?", reply="A spider has eight legs.")


async def test_claims_by_word_lists_bind_the_rules_judge_alone() -> None:
    assert (await Composed([RulesJudge()]).judge(FACT)).claims
    other = Fixed("endpoint", Verdict(outcome="scored", score=-1))
    assert await Composed([other]).judge(FACT) == other.verdict
    assert not (await Composed([Fixed("function", ABSTAINED), other]).judge(FACT)).claims


async def test_in_a_chain_only_the_verdicts_of_the_rules_are_marked() -> None:
    other = Fixed("endpoint", Verdict(outcome="scored", score=-1, hints=("Give the number 48.",)))
    judge = Composed([RulesJudge(), other])
    assert (await judge.judge(FACT)).claims
    assert other.num_asked == 0
    unread = talk("\\boxed{1}", request="How many legs does a spider have?", reply="A spider has eight legs.")
    verdict = await judge.judge(unread)
    assert (verdict.claims, verdict.hints, other.num_asked) == (False, other.verdict.hints, 1)


@pytest.mark.parametrize("text", ["", "Wrong!"])
async def test_an_explicit_score_is_marked_where_the_rules_read_the_words_beside_it(text: str) -> None:
    rated = talk(request="How many legs does a spider have?", reply="Eight legs.", feedback=[thumbs(-1, text)])
    other = Fixed("endpoint", Verdict(outcome="scored", score=-1))
    rules_first: tuple[list[Judge], ...] = ([RulesJudge()], [RulesJudge(), other])
    for judges in rules_first:
        verdict = await Composed(judges).judge(rated)
        assert (verdict.score, verdict.claims) == (-1, True)
    verdict = await Composed([other]).judge(rated)
    assert (verdict.score, verdict.claims) == (-1, False)


async def test_what_only_another_judge_could_read_is_not_marked_by_the_rules() -> None:
    other = Fixed("endpoint", Verdict(outcome="scored", score=-1, hints=("Give the number 48.",)))
    rated = talk(request="How many legs does a spider have?", reply="Eight legs.", feedback=[thumbs(-1, "\\boxed{1}")])
    verdict = await Composed([RulesJudge(), other]).judge(rated)
    assert (verdict.score, verdict.claims, verdict.hints) == (-1, False, other.verdict.hints)


async def test_a_hint_in_the_persons_own_words_takes_the_place_of_all_others() -> None:
    inner = Inner()
    own = own_hint("Answer in one sentence.")
    verdict = await Composed([inner]).judge(talk("shorter please", feedback=[thumbs(-1, own)]))
    assert (verdict.score, verdict.hints) == (-1, ("Answer in one sentence.",))
    assert [(vote.question, vote.hint) for vote in verdict.votes] == [
        ("score", ""),
        ("hint", "Answer in one sentence."),
    ]
    assert inner.shown == [], "nobody reads it in other words"
    later = [thumbs(-1, own, at=1), thumbs(1, at=2), thumbs(None, own_hint("Answer in two sentences."), at=3)]
    verdict = await Composed([inner]).judge(talk(feedback=later))
    assert (verdict.score, verdict.hints) == (1, ("Answer in two sentences.",))


async def test_a_fact_is_none_the_less_a_claim_for_being_a_persons_own_hint() -> None:
    rules = RulesJudge()
    fact = own_hint("The capital of Australia is Sydney, not Canberra.")
    verdict = await Composed([rules]).judge(talk(feedback=[thumbs(-1, fact)]))
    assert verdict.claims
