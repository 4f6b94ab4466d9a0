"""The pure parts of benchmarks/learning.py and latency.py: what counts, what is compared, and where a run goes on."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.latency import Answer, Learned, Stream, stands_on
from benchmarks.learning_arms import ARMS, GRID, GRID_BATCHES, GRID_RATES, TUNE_PEOPLE, TUNED
from benchmarks.learning_plots import preference_by_session
from benchmarks.learning_results import (
    Cell,
    Probe,
    Record,
    RecordFile,
    Stability,
    capability_change,
    ceiling_share,
    figures,
    reaches,
    sessions_ratio,
    sessions_to_stable,
    summarise,
    winners,
)
from benchmarks.learning_run import Plan, known_by_version, questions_of
from benchmarks.tuning_user import Compact
from openclaw_rl.config import TrainingConfig, load_config
from openclaw_rl.evaluation.questions import load_questions
from openclaw_rl.evaluation.users import Brief
from openclaw_rl.judge.heads import RulesJudge
from openclaw_rl.types import Evidence, Message, Version
from tests.factories.weights import folder_ref

CAP = 6
SOON, LATE, NEVER = (True,) * 3, (False, False, True, True, True), (False,) * CAP


def record(arm: str, seed: int, first_ok: tuple[bool, ...], **changes: object) -> Record:
    made = Record(
        arm=arm,
        user="brief",
        seed=seed,
        plan="p",
        measured="m",
        cap=CAP,
        first_ok=first_ok,
        first_scores=tuple(map(float, first_ok)),
        probes=(
            Probe(session=0, preference=0.2, on_topic=1.0, tokens=90.0),
            Probe(session=len(first_ok), preference=0.2 + 0.1 * seed, on_topic=0.9, tokens=30.0),
        ),
        right="1101",
        base_right="1100",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_the_ratio_is_that_of_mean_sessions_and_a_cap_counts_as_itself() -> None:
    ours = summarise("default", [record("default", 1, SOON), record("default", 2, LATE)])
    theirs = summarise("reference", [record("reference", 1, LATE), record("reference", 2, NEVER)])
    ratio = sessions_ratio(ours, theirs)
    assert ratio is not None
    assert ratio.value == pytest.approx((1 + 3) / (3 + CAP))
    assert (ratio.bound, str(ratio)) == ("at most", "≤ 0.44")
    assert [str(one.stability) for one in theirs.records] == ["3", ">6"]


@pytest.mark.parametrize(
    ("ours", "theirs", "bound"),
    [(SOON, LATE, "exact"), (NEVER, LATE, "at least"), (SOON, NEVER, "at most"), (NEVER, NEVER, "unknown")],
)
def test_a_cap_says_on_which_side_the_truth_lies(ours: tuple[bool, ...], theirs: tuple[bool, ...], bound: str) -> None:
    ratio = sessions_ratio(summarise("a", [record("a", 1, ours)]), summarise("b", [record("b", 1, theirs)]))
    assert ratio is not None
    assert ratio.bound == bound


def test_only_people_that_both_arms_have_are_compared() -> None:
    ours = summarise("default", [record("default", 1, SOON), record("default", 2, NEVER)])
    ratio = sessions_ratio(ours, summarise("reference", [record("reference", 1, LATE)]))
    assert ratio is not None
    assert ratio.value == pytest.approx(1 / 3)
    assert ratio.bound == "exact"
    assert sessions_ratio(ours, None) is None


def test_figures_have_every_key_and_null_for_what_was_not_run() -> None:
    found = figures({"default": summarise("default", [record("default", 1, SOON), record("default", 3, SOON)])})
    assert (found["sessions_vs_reference"], found["sessions_vs_memory"]) == (None, None)
    assert found["preference_gain"] == pytest.approx(0.2)
    assert found["capability_change"] == pytest.approx(0.25)
    assert found["arms"]["default"]["each"] == {"brief-1": "1", "brief-3": "1"}


def test_capability_is_compared_item_by_item_over_people() -> None:
    change = capability_change([record("a", 1, SOON), record("a", 2, SOON, right="0100")])
    assert change is not None
    assert change.value == pytest.approx((0.25 - 0.25) / 2)
    assert change.low < 0 < change.high
    assert capability_change([record("a", 1, SOON, right="", base_right="")]) is None


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "learning.jsonl")
    assert file.read() == []
    file.add([record("default", 1, SOON, known=((0, 0.5), (1, 0.6)))])
    with (tmp_path / "learning.jsonl").open("a") as written:
        written.write(record("default", 2, SOON).to_json()[:50])  # killed while it wrote
    file.add([record("default", 3, LATE), record("default", 4, LATE, plan="another")])
    assert set(file.of("default", "p")) == {("brief", 1), ("brief", 3)}
    assert file.of("default", "p")["brief", 1] == record("default", 1, SOON, known=((0, 0.5), (1, 0.6)))
    assert file.of("reference", "p") == {}


def test_another_setting_is_another_plan() -> None:
    plan = Plan(people=(("brief", 1),), cap=6)
    names = {plan.name(ARMS[name]) for name in ("default", "reference", "published", "grpo", "opd")}
    assert len(names | {replace(plan, cap=7).name(ARMS["default"])}) == 6


def test_people_of_one_user_after_the_other() -> None:
    plan = Plan(people=(("brief", 1), ("steps", 1), ("brief", 2)), cap=6)
    assert [part.people for part in plan.by_user()] == [(("brief", 1), ("brief", 2)), (("steps", 1),)]
    assert {part.name(ARMS["opd"]) for part in plan.by_user()} == {plan.name(ARMS["opd"])}


def test_no_two_seeds_ask_the_same_while_questions_last() -> None:
    asked = [[q.text for q in islice(questions_of(Brief(), seed, 3), 11)] for seed in (1, 2, 3)]
    assert len({text for texts in asked for text in texts}) == 33
    assert asked[0] == [q.text for q in islice(questions_of(Brief(), 1, 3), 11)]
    assert asked[0] != [q.text for q in islice(questions_of(Brief(), 101, 3), 11)]


def test_the_best_cell_has_fewest_sessions_then_the_best_first_replies() -> None:
    def cell(batch_size: int, sessions: float, first_score: float) -> Cell:
        return Cell(
            preset="default",
            learning_rate=1e-4,
            batch_size=batch_size,
            sessions=sessions,
            num_capped=0,
            first_score=first_score,
            num_people=6,
        )

    best = winners([cell(2, 5.0, 0.9), cell(4, 4.0, 0.3), cell(8, 4.0, 0.5), cell(16, 4.0, 0.5)])["default"]
    assert best.batch_size == 8


def test_the_default_arm_is_the_product_and_the_grid_says_so() -> None:
    defaults = TrainingConfig()
    assert (defaults.learning_rate, defaults.batch_size) == TUNED["default"]
    asked = {(cell.learning_rate, cell.batch_size) for cell in GRID if cell.preset == "default"}
    assert asked == {(rate, size) for rate in GRID_RATES for size in GRID_BATCHES}, "both have the same grid"
    assert asked == {(cell.learning_rate, cell.batch_size) for cell in GRID if cell.preset == "reference"}
    assert not {user for user, _ in TUNE_PEOPLE} & {"brief"}
    assert min(seed for _, seed in TUNE_PEOPLE) > 100


@pytest.mark.parametrize("name", [name for name, arm in ARMS.items() if arm.learns])
def test_settings_of_arms_are_settings(name: str) -> None:
    training = load_config(overrides=ARMS[name].settings, env={}).config.training
    assert training.batch_size == ARMS[name].batch_size
    assert (training.max_wait_s is None) == (training.preset == "reference") == (not ARMS[name].at_once)


def test_the_gates_capability_comes_with_that_of_the_base_model() -> None:
    def version(number: int, share: float) -> Version:
        report = {
            "measures": [{"name": "kl", "candidate": 0.1}, {"name": "capability", "candidate": share, "base": 0.5}]
        }
        return Version(
            line="a",
            number=number,
            parent=number - 1,
            state="live",
            created_at=0.0,
            weights=folder_ref("p", "s"),
            gate=report,
        )

    assert known_by_version([version(1, 0.6), version(2, 0.7)]) == ((0, 0.5), (1, 0.6), (2, 0.7))
    assert known_by_version([]) == ()


def test_who_has_left_keeps_the_last_preference() -> None:
    def probes(*values: tuple[int, float]) -> tuple[Probe, ...]:
        return tuple(Probe(session=at, preference=value, on_topic=1.0, tokens=1.0) for at, value in values)

    stayed = record("a", 1, NEVER, probes=probes((0, 0.0), (6, 1.0)))
    left = record("a", 2, SOON, probes=probes((0, 0.2), (3, 0.4)))
    assert preference_by_session([stayed, left]) == [(0, 0.1), (3, 0.45), (6, 0.7)]


def test_gaps_are_within_answers_and_pieces_stand_for_tokens() -> None:
    stream = Stream(None, ())  # type: ignore[arg-type]
    for begin in (0.0, 10.0):
        times = [begin, begin + 1.0, begin + 3.0]
        stream.answers.append(Answer(version="v0", turn="t", text="", times=times, num_tokens=6, is_cut=False))
    assert stream.longest_gap_ms([(0.0, 20.0)]) == pytest.approx(2000.0)
    assert stream.longest_gap_ms([(0.0, 2.0)]) == pytest.approx(1000.0)
    assert stream.tokens_per_s([(0.0, 2.0), (10.0, 12.0)]) == pytest.approx(2 * 2 * 2 / 4.0)


def test_parts_follow_one_another_from_the_correction_on() -> None:
    learned = Learned(sent_at=1.0, ends=(2.0, 3.0, 13.0, 20.0, 30.0, 31.0))
    assert learned.seconds == 30.0
    assert (learned.part("judge"), learned.part("wait"), learned.part("live")) == (
        (1.0, 2.0),
        (3.0, 13.0),
        (30.0, 31.0),
    )


def test_a_version_stands_on_its_parents() -> None:
    def version(number: int, parent: int) -> Version:
        return Version(
            line="a",
            number=number,
            parent=parent,
            state="retired",
            created_at=0.0,
            weights=folder_ref("p", "s"),
            gate=None,
        )

    versions = {one.number: one for one in (version(1, 0), version(2, 1), version(3, 1))}
    assert stands_on(versions, 3, 1)
    assert stands_on(versions, 2, 2)
    assert not stands_on(versions, 3, 2)
    assert not stands_on(versions, 0, 2)


def test_the_judge_understands_whom_the_grid_is_tuned_with() -> None:
    judge, person = RulesJudge(), Compact(seed=101)
    asked, answered = (
        Message(role="user", content="Why does it rain?"),
        Message(role="assistant", content="It rains. " * 9),
    )
    for said in (*person.complaints, f"That's not what I asked. {person.wish}"):
        verdict = judge.verdict(
            Evidence(request=(asked,), reply=answered, following=(Message(role="user", content=said),))
        )
        assert (verdict.score, any("two sentences" in hint for hint in verdict.hints)) == (-1, True), (said, verdict)
    question = next(iter(load_questions("train")))
    whole = "Rain falls from clouds. Drops grow heavy there."
    assert person.style(question, whole) == 1.0 > person.style(question, f"{whole} {whole}") > 0.0


@pytest.mark.parametrize(
    ("ok", "stable"),
    [
        ("", None),
        ("++", None),
        ("+++", 1),
        ("-+++", 2),
        ("++-+++", 4),
        ("++-++-++", None),
        ("+-+-+-+", None),
        ("---+++---", 4),
        ("-----", None),
        ("--+++++", 3),
        ("----++", None),
    ],
)
def test_sessions_to_stable(ok: str, stable: int | None) -> None:
    assert sessions_to_stable([one == "+" for one in ok]) == stable


@pytest.mark.parametrize(
    ("ok", "cap", "text", "sessions", "reached"),
    [
        ("-+++", 10, "2", 2, True),
        ("----", 10, ">10", 10, False),
        ("--------+++", 10, ">10", 10, False),
        ("-------+++", 10, "8", 8, True),
    ],
)
def test_the_cap_counts_where_it_was_never_stable(ok: str, cap: int, text: str, sessions: int, reached: bool) -> None:
    stability = Stability.of([one == "+" for one in ok], cap=cap)
    assert (str(stability), stability.sessions, stability.reached) == (text, sessions, reached)


def test_a_cap_must_be_reachable() -> None:
    with pytest.raises(ValueError, match="never be met"):
        Stability.of([], cap=2)


def test_the_ceiling_share_is_the_way_that_was_learned_and_ignores_wishes_with_no_way_to_go() -> None:
    ceiling = Probe(session=0, preference=0.6, on_topic=0.95, tokens=40.0)
    learned = record("default", 1, NEVER, ceiling=ceiling)
    better = record("default", 3, NEVER, ceiling=ceiling)
    nothing = replace(learned, user="plain", ceiling=replace(ceiling, preference=0.3))
    (brief, plain) = reaches([learned, nothing, better, record("default", 2, NEVER)])
    assert (brief.base, brief.ceiling, brief.topic_ceiling, brief.topic_learned) == (0.2, 0.6, 0.95, 0.9)
    assert brief.share == pytest.approx((0.4 - 0.2) / (0.6 - 0.2))
    assert plain.share is None
    assert ceiling_share([brief, plain]) == brief.share
    assert ceiling_share([plain]) is None
