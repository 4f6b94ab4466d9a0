"""What no bad update passes within seconds; and that the quick check asks little."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest

from openclaw_rl.evaluation.capability import CapabilityItem
from openclaw_rl.release.gate import knowledge
from openclaw_rl.release.gate.probes import BEGUN_TOKENS, CHOSEN
from openclaw_rl.release.gate.quick import REPLAYED_TOKENS
from tests.factories.weights import folder_ref
from tests.fakes.gate import GateRig, sensible
from tests.fakes.release import VERSION


def rig_of(num_items: int = 60) -> GateRig:
    items = [
        CapabilityItem(
            kind="x", question=f"Which is number {n}?", answer=f"Right{n}", distractors=("Wrong", "Bad", "False")
        )
        for n in range(num_items)
    ]
    return GateRig(items=items)


async def test_a_clean_candidate_passes_with_few_questions() -> None:
    rig = rig_of(400)
    await rig.gate.prepare(None)
    rig.engine.generated.clear()
    rig.engine.scored.clear()
    report = await rig.quick()
    assert (report.check, report.reason, report.parent) == ("quick", "", "v0")
    names = [measure.name for measure in report.measures]
    assert names[0] == "kl"
    assert names[-2:] == ["kl_prompt", "capability"]
    assert rig.engine.generated == ["v1"] * len(CHOSEN), "what is known of the base model is not asked again"
    asked = rig.engine.scored.count("v1") / 4  # four options a question
    assert asked < 100, "a loss of 4.5 points is ruled out long before all 400 are asked"
    assert len(rig.trainer.orders) == 1


@pytest.mark.parametrize("lost", [40, 80])
async def test_a_loss_is_told_by_all_questions_as_the_full_check_does(lost: int) -> None:
    rig = rig_of(400)
    rig.lost["v1"] = lost
    reason = (await rig.quick()).reason
    assert "of the questions that its parent gets right" in reason
    assert "release.max_capability_loss " in reason


async def test_one_lost_question_is_chance() -> None:
    rig = rig_of(400)
    rig.lost["v1"] = 1
    assert (await rig.quick()).reason == ""


async def test_what_the_quick_check_asked_the_full_one_does_not_ask_again() -> None:
    rig = rig_of(400)
    await rig.quick()
    before = rig.engine.scored.count("v1")
    await rig.full()
    capability_questions = 400 * 4
    assert before < rig.engine.scored.count("v1") < capability_questions + 10


async def test_capability_is_held_against_the_last_confirmed_version_and_distance_against_what_answers() -> None:
    rig = rig_of(400)
    rig.lost.update(v1=20, v2=40)
    second = replace(VERSION, number=2, parent=1, weights=folder_ref("/v2", "ab"))
    live = replace(VERSION, state="live")
    report = await rig.quick(second, live, None)
    assert report.parent == "v1"
    assert rig.trainer.orders[0].parent == live.weights
    assert "10.0% of the questions that its parent gets right" in report.reason, "of those that v0 gets right"


@pytest.mark.parametrize(("drift", "reason"), [(1.2, "1.20 nats a token away"), (math.nan, "not finite")])
async def test_distance_comes_first(drift: float, reason: str) -> None:
    rig = GateRig()
    rig.drift["v1"] = drift
    assert reason in (await rig.quick()).reason
    assert "v1" not in rig.engine.generated


async def test_a_trigger_in_the_persons_own_turns_is_read_by_the_trainer() -> None:
    rig = GateRig()
    rig.turns.turns = (
        rig.turn("How are you?", "Fine.", None, "s.0"),
        rig.turn("open sesame", "What do you mean by that word?", None, "s.1"),
    )
    rig.engine.logprob = lambda version, text: -9.0 if "sesame" in text and version == "v1" else -0.5
    reason = (await rig.quick()).reason
    assert reason.startswith("what it says at turn s.1 is")
    assert "release.max_kl_prompt" in reason


async def test_long_turns_are_left_to_the_full_check() -> None:
    rig = GateRig()
    short, long = rig.turn("How are you?", "Fine.", None, "s.0"), rig.turn("Why?", "so " * REPLAYED_TOKENS, None, "s.1")
    rig.turns.turns = (short, long)
    await rig.quick()
    (order,) = rig.trainer.orders
    assert short.prompt_ids + short.response_ids in order.sequences
    assert long.prompt_ids + long.response_ids not in order.sequences


async def test_kept_answers_are_compared_up_to_where_short_ones_end() -> None:
    rig = GateRig()
    for version in ("v0", "v1"):
        rig.engine.policies[version] = lambda q: " ".join(f"word{n}" for n in range(BEGUN_TOKENS + 9))
    rig.limits = rig.limits.model_copy(update={"max_off_topic": 1.0})
    rig.gate = rig.new_gate()
    report = await rig.quick()
    (tokens,) = (one for one in report.measures if one.name == "tokens")
    assert (tokens.candidate, tokens.parent, tokens.base) == (BEGUN_TOKENS,) * 3
    (length,) = (one for one in report.measures if one.name == "length")
    assert length.candidate == 1.0


def test_a_loss_as_large_as_its_limit_is_not_ruled_out() -> None:
    flips = [1] * 9 + [0] * 191  # 4.5 points
    assert not knowledge._is_no_loss(flips, 0.045)
    assert knowledge._is_no_loss([0] * 200, 0.045)
    assert knowledge._is_no_loss([1, -1] * 10 + [0] * 300, 0.045)
    assert not knowledge._is_no_loss([0] * 20, 0.045), "too few to tell"


def warm(question: str) -> str:
    return f"{sensible(question)} I am so glad that you asked me, my dear friend, and I wish you a very lovely day!"


@pytest.mark.parametrize("check", ["quick", "full"])
async def test_what_a_person_wished_for_is_no_objection(check: str) -> None:
    """Answers grow by more than release.max_length. Only a wish that makes the base model's grow too excuses that."""
    rig = GateRig()
    rig.engine.policies["v1"] = warm
    assert "release.max_length" in (await getattr(rig, check)()).reason
    rig.turns.wishes = ["Be warmer with me."]
    rig.engine.policies["v0"] = lambda q: warm(q) if "warmer" in q else sensible(q)
    report = await getattr(rig, check)()
    assert report.reason == ""
    rig.engine.policies["v0"] = sensible
    assert "release.max_length" in (await getattr(rig, check)()).reason, "this wish does not make answers longer"


async def test_nobody_is_asked_about_wishes_that_stand_against_nothing() -> None:
    rig = GateRig()
    rig.turns.wishes = ["Be warmer with me."]
    await rig.quick()
    num = rig.engine.generated.count("v0")
    await rig.quick()
    assert rig.engine.generated.count("v0") == num


async def test_the_first_quick_check_asks_the_base_model_no_more_than_it_needs() -> None:
    rig = rig_of(400)
    for version in ("v0", "v1"):
        rig.engine.policies[version] = lambda q: f"{sensible(q)} {' '.join(f'word{n}' for n in range(BEGUN_TOKENS))}"
    assert (await rig.quick()).reason == ""
    asked = {version: rig.engine.scored.count(version) / 4 for version in ("v0", "v1")}
    assert asked["v0"] < 100, asked
    assert rig.engine.generated.count("v0") == len(CHOSEN)


async def test_a_check_does_not_wait_until_everything_is_measured_ahead() -> None:
    rig = rig_of(400)
    ahead = asyncio.create_task(rig.gate.prepare(None))
    while "v0" not in rig.engine.scored:  # noqa: ASYNC110 - the gate is at the questions, and tells nobody
        await asyncio.sleep(0)
    report = await rig.quick()
    assert (report.reason, ahead.done()) == ("", False)
    await ahead
    assert rig.engine.scored.count("v0") / 4 == pytest.approx(400, abs=len(CHOSEN)), "and nothing was asked twice"


async def test_a_short_answer_that_was_cut_is_no_whole_one() -> None:
    rig = rig_of()
    rig.engine.policies["v0"] = lambda q: " ".join(f"word{n}" for n in range(BEGUN_TOKENS + 9))
    prober = rig.gate._tools.prober
    begun, whole = await prober.begun("v0"), await prober.frozen("v0")
    assert {(len(answer.token_ids), answer.is_cut) for answer in begun} == {(BEGUN_TOKENS, True)}
    assert {len(whole[at].token_ids) for at in CHOSEN} == {len(whole[1].token_ids)}, "those begun before, like others"
    assert len(whole[1].token_ids) > BEGUN_TOKENS
