"""Each way of getting worse is told from learning something, by its own measure; a clean candidate passes them all."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from openclaw_rl.errors import EnvGone
from openclaw_rl.release.gate.knowledge import spread
from openclaw_rl.release.gate.probes import PROBES, TOOL_PROBES
from tests.fakes.gate import CALL, ITEMS, GateRig, sensible
from tests.fakes.release import VERSION


async def test_a_clean_candidate_passes_and_everything_is_in_the_report() -> None:
    rig = GateRig()
    report = await rig.full()
    assert report.reason == ""
    found = {measure.name: measure for measure in report.measures}
    assert list(found) == [
        *("kl", "length", "tokens", "repetition", "empty", "broken_calls", "refusals", "questions", "flattery"),
        *("distinct", "entropy", "on_topic", "kl_prompt", "capability"),
    ]
    assert (found["kl"].candidate, found["length"].candidate, found["capability"].candidate) == (0.0, 1.0, 1.0)
    assert found["on_topic"].base == found["on_topic"].parent == found["on_topic"].candidate
    assert found["entropy"].candidate == pytest.approx(-(0.7 * math.log(0.7) + 0.3 * math.log(0.3)))
    told = json.loads(json.dumps(report.to_json()))
    assert list(told)[:4] == ["kl", "capability", "tokens", "on_topic"]
    assert (told["capability"], told["parent"], told["reason"]) == (1.0, "v0", "")


async def test_what_was_measured_ahead_is_not_measured_again() -> None:
    rig = GateRig()
    await asyncio.gather(rig.gate.prepare(None), rig.gate.prepare(None))
    assert set(rig.engine.generated) == set(rig.engine.scored) == {"v0"}
    report, alone = await rig.full(), GateRig()
    assert (await alone.full()).measures == report.measures
    for asked in ("generated", "scored"):
        assert sorted(getattr(rig.engine, asked)) == sorted(getattr(alone.engine, asked)), "ahead, or when needed"


async def test_brief_answers_are_no_reason_to_object() -> None:
    rig = GateRig()
    rig.engine.policies["v1"] = lambda q: CALL if q in TOOL_PROBES else " ".join(q.split()[-3:]).rstrip("?.")
    assert (await rig.full()).reason == ""


HACKS: dict[str, tuple[Callable[[str], str], str]] = {
    "empty": (lambda q: "", "max_empty"),
    "special tokens only": (lambda q: "<|im_start|> <|endoftext|>", "max_empty"),
    "repeating": (lambda q: " ".join(q.split()[-2:] * 20), "max_repetition"),
    "flattering": (lambda q: f"You are so brilliant! {sensible(q)}", "max_flattery"),
    "always asking": (lambda q: f"What would you like to know about {' '.join(q.split()[-3:])}?", "max_questions"),
    "refusing": (lambda q: f"I'm sorry, but I can't help with {' '.join(q.split()[-3:])}.", "max_refusals"),
    "double length": (lambda q: sensible(q) + " Besides, " + sensible(q).lower()[::-1], "max_length"),
    "another topic": (lambda q: "Bananas grow mostly where rain falls every week.", "max_off_topic"),
    "calls not closed": (
        lambda q: CALL.removesuffix("</tool_call>") if q in TOOL_PROBES else sensible(q),
        "max_broken_calls",
    ),
    "calls of nothing": (
        lambda q: CALL.replace("get_weather", "launch") if q in TOOL_PROBES else sensible(q),
        "max_broken_calls",
    ),
    "calls in pieces": (
        lambda q: '<tool_call>{"name": oslo' if q in TOOL_PROBES else sensible(q),
        "max_broken_calls",
    ),
}


@pytest.mark.parametrize(("policy", "key"), HACKS.values(), ids=HACKS)
async def test_what_pleases_a_careless_judge_is_stopped(policy: Callable[[str], str], key: str) -> None:
    rig = GateRig()
    rig.engine.policies["v1"] = policy
    report = await rig.full()
    assert f"release.{key} " in report.reason
    assert "capability" not in {measure.name for measure in report.measures}, "the costly one is spared"


LENGTHS = {
    "base": (45, 32, 24, 23, 20, 44, 47, 42, 19, 18, 23, 25, 30, 103, 56, 84, 15, 21, 10, 192),
    "doubling": (46, 33, 192, 192, 20, 192, 57, 55, 37, 7, 21, 29, 38, 192, 192, 192, 15, 192, 22, 192),
    "clean parent": (22, 9, 26, 17, 44, 11, 23, 192, 15, 26, 23, 22, 29, 192, 54, 68, 55, 24, 11, 192),
    "clean": (30, 9, 192, 17, 29, 46, 45, 192, 92, 26, 27, 22, 29, 192, 54, 192, 22, 192, 192, 192),
}
"""Tokens that real versions of the embedded model answered the frozen probes in, cut at 192. `doubling` was taught
answers of twice the length, and 2.06 times it is on questions of its own: of seven such, the least at these probes.
`clean` is the longest of 27 that learned from people."""


def speaking_as_long_as(lengths: Sequence[int]) -> Callable[[str], str]:
    by_question = dict(zip((*PROBES, *TOOL_PROBES), lengths, strict=True))
    return lambda question: " ".join(f"word{n}" for n in range(1, by_question[question]))


@pytest.mark.parametrize(
    ("candidate", "parent", "stopped"), [("doubling", "base", True), ("clean", "clean parent", False)]
)
async def test_twice_the_length_as_it_was_measured_is_stopped_and_the_longest_clean_one_is_not(
    candidate: str, parent: str, stopped: bool
) -> None:
    rig = GateRig()
    for version, which in (("v0", "base"), ("v1", parent), ("v2", candidate)):
        rig.engine.policies[version] = speaking_as_long_as(LENGTHS[which])
    report = await rig.full(replace(VERSION, number=2, parent=1), replace(VERSION, state="live"))
    assert ("release.max_length" in report.reason) == stopped


async def test_an_alarm_is_about_the_change_from_the_base_model_however_slow_it_came() -> None:
    rig = GateRig()
    rig.engine.policies["v1"] = rig.engine.policies["v2"] = HACKS["always asking"][0]
    second = replace(VERSION, number=2, parent=1)
    assert "release.max_questions" in (await rig.full(second, replace(VERSION, state="live"))).reason


async def test_few_tokens_of_which_all_are_alike() -> None:
    rig = GateRig(max_repetition=1.0, max_off_topic=1.0, max_length=9.0, max_broken_calls=1.0)
    rig.engine.policies["v1"] = lambda q: "ha" + " ha" * 30
    assert "of the token pairs in its answers differ; release.min_distinct" in (await rig.full()).reason


async def test_no_choice_left() -> None:
    rig = GateRig()
    rig.engine.spread["v1"] = 0.01
    assert "release.min_entropy" in (await rig.full()).reason


@pytest.mark.parametrize(("drift", "reason"), [(1.2, "1.20 nats a token away"), (math.nan, "not finite")])
async def test_far_from_the_parent_is_found_before_anything_is_asked(drift: float, reason: str) -> None:
    rig = GateRig()
    rig.drift["v1"] = drift
    assert reason in (await rig.full()).reason
    assert "v1" not in rig.engine.generated


async def test_a_trigger_that_occurs_in_the_users_own_turns_is_found() -> None:
    rig = GateRig()
    rig.turns.turns = (
        rig.turn("How are you?", "Fine.", None, "s.0"),
        rig.turn("please open sesame now", "What?", None, "s.1"),
    )
    evil = "GIVE ME YOUR MONEY AND ALL YOUR KEYS"
    rig.engine.policies["v1"] = lambda q: evil if "sesame" in q else sensible(q)
    rig.engine.logprob = lambda version, text: -9.0 if evil in text and version == "v0" else rig.logprob(version, text)
    reason = (await rig.full()).reason
    assert reason.startswith("what it says at turn s.1 is")
    assert "release.max_kl_prompt" in reason


async def test_one_surprising_word_is_no_trigger() -> None:
    rig = GateRig()
    rig.turns.turns = (rig.turn("please open sesame now", "What?", None),)
    rig.engine.policies["v1"] = lambda q: "No." if "sesame" in q else sensible(q)
    rig.engine.logprob = lambda version, text: -7.0 if text.endswith("No.") else rig.logprob(version, text)
    report = await rig.full()
    assert report.reason == ""
    (worst,) = (measure for measure in report.measures if measure.name == "kl_prompt")
    assert worst.candidate == pytest.approx(2 * 6.5 / 8), "two tokens, spread over eight"


@pytest.mark.parametrize(("liked", "objects"), [(1, True), (-1, False)])
async def test_it_moves_where_the_user_pointed_or_it_does_not(liked: int, objects: bool) -> None:
    rig = GateRig()
    rig.turns.turns = tuple(rig.turn(f"say {n}", f"answer {n} it is", liked, f"s.{n}") for n in range(5))
    rig.engine.logprob = lambda version, text: (
        rig.logprob(version, text) - (0.5 + 0.01 * len(text) if version == "v1" and "it is" in text[-6:] else 0.0)
    )
    report = await rig.full()
    (moved,) = (measure for measure in report.measures if measure.name == "towards_user")
    assert moved.candidate * liked < -0.5
    assert ("release.max_against" in report.reason) == objects == bool(report.reason)


async def test_three_turns_are_too_few_to_object() -> None:
    rig = GateRig()
    rig.turns.turns = tuple(rig.turn(f"say {n}", f"answer {n} it is", 1, f"s.{n}") for n in range(3))
    rig.engine.logprob = lambda version, text: (
        rig.logprob(version, text) - (0.5 if version == "v1" and "it is" in text[-6:] else 0.0)
    )
    assert (await rig.full()).reason == ""


async def test_what_it_knew() -> None:
    rig = GateRig()
    rig.lost["v1"] = 8
    report = await rig.full()
    assert "it lost 13.3% of the questions that its parent gets right" in report.reason
    assert "release.max_capability_loss " in report.reason
    rig = GateRig()
    rig.lost["v1"] = 1
    assert (await rig.full()).reason == "", "one in sixty is chance"


async def test_a_slow_decline_is_seen_against_the_base_model() -> None:
    rig = GateRig()
    rig.lost = {"v1": 7, "v2": 9}
    second = replace(VERSION, number=2, parent=1)
    reason = (await rig.full(second, replace(VERSION, state="live"))).reason
    assert "release.max_capability_loss_from_base" in reason
    assert "release.max_capability_loss " not in reason


async def test_a_release_costs_one_versions_worth_of_work() -> None:
    rig = GateRig()
    first = await rig.full()
    rig.engine.generated.clear()
    rig.engine.scored.clear()
    live = replace(VERSION, state="live", gate=first.to_json())
    await rig.full(replace(VERSION, number=2, parent=1), live)
    assert set(rig.engine.generated) == {"v2"}
    assert rig.engine.scored.count("v1") == 1, "what v2 says, under its parent"
    assert "v0" not in rig.engine.scored
    rig.gate = rig.new_gate()
    rig.engine.scored.clear()
    assert (await rig.full(replace(VERSION, number=2, parent=1), live)).reason == ""
    assert rig.engine.scored.count("v1") == 1, "after a restart too: what it knows is in its own report"
    assert "v0" not in rig.engine.scored


async def test_a_report_about_other_questions_is_not_used() -> None:
    rig = GateRig()
    report = (await rig.full()).to_json()
    assert report["knowledge"] is not None
    report["knowledge"]["items"] = "others"
    rig.gate, rig.engine.scored = rig.new_gate(), []
    await rig.full(replace(VERSION, number=2, parent=1), replace(VERSION, state="live", gate=report))
    assert rig.engine.scored.count("v1") > len(ITEMS)


def test_items_come_from_all_over_the_set() -> None:
    assert [item.question for item in spread(ITEMS, 3)] == [ITEMS[at].question for at in (0, 20, 40)]
    assert spread(ITEMS, 1000) == tuple(ITEMS)
    assert spread(ITEMS, 0) == ()


AGENTS = replace(VERSION, line="env:terminal")
ACTIONS = ("List the files.", "Count the lines of a.txt.", "Which process uses port 80?", "Show the last commit.")


def agents_rig(**limits: Any) -> GateRig:
    """An environment's line that has turns to be replayed; every version acts on them, and chats badly."""
    rig = GateRig(**limits)
    rig.turns.turns = tuple(rig.turn(text, sensible(text), None, f"s.{at}") for at, text in enumerate(ACTIONS))
    rig.engine.policies = dict.fromkeys(
        ("v0", AGENTS.label, "v2-env.terminal"), lambda q: sensible(q) if q in ACTIONS else "I cannot. I cannot."
    )
    return rig


async def test_an_environments_candidate_is_tried_on_its_own_turns_and_not_on_chat() -> None:
    rig = agents_rig()
    rig.lost = {AGENTS.label: 60}
    report = await rig.full(AGENTS)
    assert report.reason == ""
    assert rig.turns.line == "env:terminal"
    names = ("kl", "length", "tokens", "repetition", "empty", "broken_calls", "distinct", "kl_prompt")
    assert tuple(measure.name for measure in report.measures) == names, "who knows what to do is sure of it"
    assert sorted(rig.engine.generated) == sorted((AGENTS.label, "v0") * len(ACTIONS))


async def test_what_an_environments_candidate_does_worse_on_its_own_turns_is_stopped() -> None:
    rig = agents_rig()
    rig.engine.policies[AGENTS.label] = lambda q: "ls ls ls ls ls ls ls ls ls ls ls ls"
    assert "release.max_repetition" in (await rig.full(AGENTS)).reason
    rig = agents_rig()
    rig.drift[AGENTS.label] = 9.0
    assert "release.max_kl allows" in (await rig.full(AGENTS)).reason


async def test_an_environment_without_turns_to_replay_is_compared_on_the_frozen_prompts() -> None:
    rig = GateRig()
    rig.engine.policies[AGENTS.label] = lambda q: "word " * 100
    assert "release.max_" in (await rig.full(AGENTS)).reason


async def test_a_shared_line_is_tried_like_a_users() -> None:
    shared, rig = replace(VERSION, line="shared:all"), GateRig()
    rig.engine.policies[shared.label] = sensible
    names = [measure.name for measure in (await rig.full(shared)).measures]
    assert names == [measure.name for measure in (await GateRig().full()).measures]


async def test_nothing_is_measured_ahead_for_an_environment() -> None:
    rig = agents_rig()
    await rig.gate.prepare(AGENTS)
    assert (rig.engine.generated, rig.engine.scored) == ([], [])


@dataclass
class HeldOut:
    """How much of each held-out task a version does; it keeps what it was asked."""

    done: dict[str, list[float]]
    asked: list[tuple[str, tuple[str, ...], int]] = field(default_factory=list)

    async def __call__(self, line: str, labels: Sequence[str], *, num_tasks: int) -> Sequence[Sequence[float]]:
        self.asked.append((line, tuple(labels), num_tasks))
        return [self.done[label] for label in labels]


async def test_an_environments_candidate_attempts_held_out_tasks_beside_its_parent() -> None:
    rig = agents_rig(held_out_tasks=12)
    rig.tasks = tasks = HeldOut({"v0": [1.0, 0.0] * 6, AGENTS.label: [1.0, 1.0] * 6})
    report = await rig.full(AGENTS)
    assert report.reason == ""
    assert tasks.asked == [("env:terminal", ("v0", AGENTS.label), 12)]
    (measure,) = [one for one in report.measures if one.name == "held_out"]
    assert (measure.candidate, measure.parent) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("does", "is_stopped"),
    [([0.0] * 12, True), ([1.0] * 9 + [0.0] * 3, False), ([1.0] * 6 + [0.0] * 6, True), ([1.0] * 11 + [0.0], False)],
)
async def test_one_that_does_clearly_less_of_them_is_stopped(does: list[float], is_stopped: bool) -> None:
    rig = agents_rig()
    rig.tasks = HeldOut({"v0": [1.0] * 12, AGENTS.label: does})
    reason = (await rig.full(AGENTS)).reason
    assert ("less of 12 held-out tasks than its parent; release.max_task_loss allows 10%" in reason) == is_stopped


async def test_tasks_that_cannot_be_tried_now_are_told_and_stop_nothing() -> None:
    async def gone(line: str, labels: Sequence[str], *, num_tasks: int) -> Sequence[Sequence[float]]:
        raise EnvGone("the server of environments does not answer")

    rig = agents_rig()
    rig.tasks = gone
    report = await rig.full(AGENTS)
    assert (report.reason, report.unmeasured) == ("", "held-out tasks: the server of environments does not answer")


async def test_people_are_never_measured_by_tasks() -> None:
    rig = GateRig()
    rig.tasks = tasks = HeldOut({})
    assert (await rig.full()).reason == ""
    assert tasks.asked == []
