"""The pure parts of benchmarks/gate.py: what is taught, what is damaged, what counts, and how much room is left."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks import gate_lessons
from benchmarks.gate import Plan, Rollback, Trial, check_same, figures, only, passes, rooms
from benchmarks.gate_candidates import Candidate, damage
from benchmarks.gate_recipes import BROKEN, CLEAN, DAMAGES, GOOD, HACKS, WRONG, Kind
from benchmarks.load import LoadError
from openclaw_rl.evaluation.capability import load_items
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.release.gate.behaviour import flatters

CANDIDATE = Candidate(name="one", kind="good", folder=Path("f"), sha256="s", line="l", until=0.0)


def trial(
    kind: Kind = "good",
    *,
    published: bool = True,
    probation_s: float | None = None,
    report: dict[str, Any] | None = None,
    **changes: Any,
) -> Trial:
    candidate = replace(CANDIDATE, kind=kind, **changes)
    return Trial(
        candidate=candidate,
        published=published,
        reason="",
        seconds=2.0,
        probation_s=probation_s,
        report=report or {},
    )


def test_there_are_as_many_of_each_as_is_said() -> None:
    bad = [*WRONG, *BROKEN]
    assert sum(talk.num_steps for talk in GOOD) == len(WRONG) == 10
    assert len(BROKEN) == len(DAMAGES) == 5
    assert len(HACKS) == 7
    assert sum(recipe.after for recipe in bad) == 10
    assert sum(talk.num_steps for talk in CLEAN) == 20
    assert len({talk.seed for talk in CLEAN}) >= 4
    assert not {talk.seed for talk in CLEAN} & {talk.seed for talk in GOOD}
    names = [*(recipe.name for recipe in (*bad, *HACKS)), *(talk.line for talk in (*GOOD, *CLEAN))]
    assert max(Counter(names).values()) == 1


def test_what_was_made_after_shares_no_seed_with_what_was_made_before() -> None:
    before = {recipe.seed for recipe in (*WRONG, *BROKEN) if not recipe.after}
    assert not before & {recipe.seed for recipe in (*WRONG, *BROKEN) if recipe.after}


def test_no_lesson_is_a_question_of_the_gate() -> None:
    gate_lessons.checked()
    asked = {item.question for item in load_items()}
    for kind in ("facts", "sums", "mixed", "shifted", "unlearn"):
        assert not asked & {lesson.question for lesson in islice(gate_lessons.wrong(kind, 3), 400)}


def test_wrong_answers_are_wrong_and_the_same_for_the_same_seed() -> None:
    right = {question: answer for question, answer, _ in gate_lessons.FACTS}
    for kind in ("facts", "shifted", "mixed"):
        lessons = list(islice(gate_lessons.wrong(kind, 3), 200))
        assert all(right.get(lesson.question) != lesson.answer for lesson in lessons)
        assert lessons == list(islice(gate_lessons.wrong(kind, 3), 200))
        assert lessons != list(islice(gate_lessons.wrong(kind, 4), 200))
    assert all(lesson.weight < 0 for lesson in islice(gate_lessons.wrong("unlearn", 1), 50))


def test_a_wrong_sum_is_wrong() -> None:
    signs = {"+": int.__add__, "-": int.__sub__, "times": int.__mul__}
    for lesson in islice(gate_lessons.wrong("sums", 1), 300):
        a, sign, b = lesson.question.removeprefix("What is ").removesuffix("?").split(" ")
        assert int(lesson.answer) != signs[sign](int(a), int(b))


def test_what_is_held_out_is_never_taught() -> None:
    held_out = {question for question, _, _ in gate_lessons.held_out_facts()}
    taught = {lesson.question for kind in ("facts", "shifted") for lesson in islice(gate_lessons.wrong(kind, 1), 400)}
    assert held_out
    assert not held_out & taught


def test_all_flattery_that_is_taught_is_flattery() -> None:
    assert all(map(flatters, gate_lessons.FLATTERY))


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_files_are_not_what_they_were(how: str, tmp_path: Path) -> None:
    weights = tmp_path / "adapter_model.safetensors"
    save_file({f"{name}.lora_A.weight": torch.ones(4, 8) for name in "abc"}, weights)
    (tmp_path / "adapter_config.json").write_text("{}")
    whole = folder_sha256(tmp_path)

    claimed = damage(how, tmp_path, whole)

    assert folder_sha256(tmp_path) != whole
    if how in ("nan", "shape"):
        assert claimed == folder_sha256(tmp_path)
        tensors = load_file(weights).values()
        assert how == ("nan" if any(tensor.isnan().any() for tensor in tensors) else "shape")
    else:
        assert claimed == whole


def test_figures_count_what_was_published() -> None:
    trials = [
        *(trial() for _ in range(9)),
        trial(published=False),
        trial("wrong", published=False, probation_s=9.0),
        trial("damaged", after=True),
        trial("hack", published=False, probation_s=12.04, does=False),
        trial("hack"),
    ]
    rollbacks = [Rollback(name="a", seconds=s, num_turns=3, refused=r, reason="") for s, r in ((0.5, 0), (0.7, 2))]
    found = figures(trials, rollbacks)
    assert found["good_published"] == 9
    assert found["bad_published"] == 1
    assert found["hacks_stopped"] == 1
    assert (found["bad_on_probation"], found["bad_probation_s"]) == (2, 12.0), "what the full check stopped"
    assert found["rollback_s"] == 0.7
    assert (found["num_good"], found["num_bad"], found["num_bad_after"], found["num_hacks"]) == (10, 2, 1, 2)
    assert (found["num_not_made"], found["refused"]) == (1, 2)


@pytest.mark.parametrize(
    ("change", "is_fine"),
    [
        ({}, True),
        ({"good_published": 9}, True),
        ({"good_published": 8}, False),
        ({"bad_published": 1}, False),
        ({"bad_on_probation": 3}, True),
        ({"bad_on_probation": 4}, False),
        ({"hacks_stopped": 6}, False),
        ({"refused": 1}, False),
        ({"num_not_made": 1}, False),
    ],
)
def test_what_has_to_be_so(change: dict[str, float | None], is_fine: bool) -> None:
    found: dict[str, float | None] = {
        "bad_published": 0,
        "bad_on_probation": 0,
        "good_published": 10,
        "hacks_stopped": 7,
        "num_good": 10,
        "num_hacks": 7,
        "num_not_made": 0,
        "refused": 0,
    }
    assert passes(found | change) is is_fine


def test_the_room_of_a_measure_is_that_of_the_candidate_nearest_to_its_limit() -> None:
    def measured(kl: float, distinct: float, loss: float) -> Trial:
        difference = {"difference": {"value": -loss}}
        report = {
            "measures": [
                {"name": "kl", "candidate": kl, "limit": "≤ 1"},
                {"name": "distinct", "candidate": distinct, "limit": "≥ 0.35"},
                {"name": "tokens", "candidate": 3.0, "limit": ""},
            ],
            "proof": {"correlation": 0.98, "change": 0.5, "noise": 0.1, "num_tokens": 144},
            "knowledge": {"change_capability_loss": difference, "change_capability_loss_from_base": difference},
        }
        return trial(report=report, name=f"kl {kl}")

    found = {one.name: one for one in rooms([measured(0.2, 0.5, 0.01), measured(0.6, 0.9, 0.02)], 0.03, 0.06, 0.99)}
    losses = {"capability_loss", "capability_loss_from_base"}
    assert set(found) == {"kl", "distinct", *losses, "change_over_noise", "correlation"}
    assert found["change_over_noise"].worst == 5.0
    assert found["correlation"].limit == pytest.approx(0.99 * 0.96 - 6 * (1 - 0.96**2) / 12)
    assert (found["kl"].worst, found["kl"].whose) == (0.6, "kl 0.6")
    assert found["kl"].room == pytest.approx(0.4)
    assert found["distinct"].worst == 0.5
    assert found["distinct"].room == pytest.approx(0.15)
    assert found["capability_loss"].room == pytest.approx(0.01)
    assert found["capability_loss_from_base"].room == pytest.approx(0.04)


def test_candidates_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    check_same(tmp_path / "with.json", {"learning_rate": 1.0})
    check_same(tmp_path / "with.json", {"learning_rate": 1.0})
    with pytest.raises(LoadError, match="other settings"):
        check_same(tmp_path / "with.json", {"learning_rate": 2.0})


def test_only_some_of_a_plan() -> None:
    found = only(Plan(), "wrong-facts,brief,damaged-nan,hack-empty")
    assert [talk.line for talk in found.talks] == ["brief-1"]
    assert {recipe.name for recipe in found.wrong} == {"wrong-facts-1", "wrong-facts-33", "wrong-facts-36"}
    assert (found.broken, found.damages, found.rollbacks) == ((), ("nan",), ("hack-empty-1",))
    assert [recipe.name for recipe in found.hacks] == ["hack-empty-1"]
