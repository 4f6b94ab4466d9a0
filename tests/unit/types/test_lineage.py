"""Which version answers once a lesson is taken back, what is learned again, and how old an answer is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openclaw_rl.types import Lesson, Step, Version, VersionState, ancestry, num_steps_since, plan_undoing, stranded
from tests.factories.weights import folder_ref


def version(number: int, parent: int, state: VersionState = "retired", *, kept: bool = True) -> Version:
    path = f"/v{number}/weights" if kept else ""
    return Version(
        line="local", number=number, parent=parent, state=state, created_at=1.0, weights=folder_ref(path, "ab")
    )


def step(number: int, parent: int, *samples: str, replayed: tuple[str, ...] = ()) -> Step:
    return Step(
        line="local",
        number=number,
        state="done",
        planned_at=1.0,
        seed=0,
        parent=parent,
        sample_ids=samples,
        replayed_ids=replayed,
    )


def was_live(one: Version) -> Version:
    return replace(one, gate={"live_at": 1.0})


WAY = tuple(map(was_live, (version(1, 0), version(2, 1), version(3, 2), version(4, 3, "live"))))
STEPS = (step(1, 0, "a.0"), step(2, 1, "b.0"), step(3, 2, "c.0"), step(4, 3, "d.0", replayed=("a.0",)))


def of(name: str) -> Lesson:
    session, index = name.split(".")
    return Lesson(line="local", turn=(session, int(index)))


@pytest.mark.parametrize(
    ("name", "back_to", "undone"),
    [("d.0", 3, (4,)), ("c.0", 2, (3, 4)), ("b.0", 1, (2, 3, 4)), ("a.0", 0, (1, 2, 3, 4)), ("e.0", 4, ())],
)
def test_the_last_version_before_the_lesson_answers(name: str, back_to: int, undone: tuple[int, ...]) -> None:
    plan = plan_undoing(WAY, STEPS, of(name))
    assert (plan.answering, plan.back_to, plan.undone) == (4, back_to, undone)
    assert plan.rebuilt == plan.holding == undone


def test_a_lesson_that_was_only_replayed_is_undone_from_there() -> None:
    # The step that learned it first is on no way to the live version.
    versions = (version(1, 0, "rolled_back"), was_live(version(2, 0)), version(3, 2, "live"))
    steps = (step(1, 0, "a.0"), step(2, 0, "b.0"), step(3, 2, "c.0", replayed=("a.0",)))
    plan = plan_undoing(versions, steps, of("a.0"))
    assert (plan.back_to, plan.undone, plan.rebuilt, plan.holding) == (2, (3,), (3,), (1, 3))


@pytest.mark.parametrize(("gone", "unusable"), [((2,), ()), ((), (2,))])
def test_where_the_files_are_gone_an_earlier_version_answers(gone: tuple[int, ...], unusable: tuple[int, ...]) -> None:
    versions = [replace(one, weights=None) if one.number in gone else one for one in WAY]
    plan = plan_undoing(versions, STEPS, of("c.0"), unusable=unusable)
    assert (plan.back_to, plan.undone) == (1, (2, 3, 4))
    assert (plan.rebuilt, plan.holding) == ((2, 3, 4), (3, 4)), "step 2 is taken again, and its files may stay"
    gone_all = [one if one.number > 2 else replace(one, weights=None) for one in WAY]
    assert plan_undoing(gone_all, STEPS, of("c.0")).back_to == 0


def test_what_was_never_tried_does_not_answer() -> None:
    # Steps 2 to 4 were made one after the other; of these only the last was at the gate.
    versions = (WAY[0], version(2, 1), version(3, 2), WAY[3])
    plan = plan_undoing(versions, STEPS, of("d.0"))
    assert (plan.back_to, plan.undone, plan.rebuilt) == (1, (2, 3, 4), (2, 3, 4))


def test_a_candidate_with_the_lesson_never_answers_and_the_live_one_goes_on() -> None:
    versions = (version(1, 0, "live"), version(2, 1, "candidate"), version(3, 2, "candidate"))
    steps = (step(1, 0, "a.0"), step(2, 1, "b.0"), step(3, 2, "c.0"))
    plan = plan_undoing(versions, steps, of("c.0"))
    assert (plan.answering, plan.back_to, plan.undone, plan.rebuilt) == (1, 1, (3,), (3,))
    plan = plan_undoing(versions, steps, of("b.0"))
    assert (plan.back_to, plan.undone, plan.rebuilt) == (1, (2, 3), (2, 3))
    plan = plan_undoing(versions, steps, of("a.0"))
    assert (plan.back_to, plan.undone, plan.rebuilt) == (0, (1, 2, 3), (1, 2, 3))


def test_what_was_rejected_or_rolled_back_stays_so_but_holds_the_lesson() -> None:
    versions = (version(1, 0, "rejected"), version(2, 0, "rolled_back"), version(3, 0, "live"))
    steps = (step(1, 0, "a.0"), step(2, 0, "a.1"), step(3, 0, "b.0"))
    plan = plan_undoing(versions, steps, Lesson(line="local", sessions=("a",)))
    assert (plan.back_to, plan.undone, plan.holding) == (3, (), (1, 2))


def test_sessions_and_everything() -> None:
    steps = (*STEPS[:2], step(3, 2, "b.7+rewrite"), STEPS[3])
    assert plan_undoing(WAY, steps, Lesson(line="local", sessions=("b", "x"))).undone == (2, 3, 4)
    plan = plan_undoing(WAY, steps, Lesson(line="local", sessions=("a",), everything=True))
    assert (plan.back_to, plan.holding, plan.rebuilt) == (0, (1, 2, 3, 4), ())
    assert plan_undoing(WAY, steps, of("z.9"), besides={"c.0"}).undone == ()
    assert plan_undoing(WAY, STEPS, of("z.9"), besides={"c.0"}).back_to == 2


def test_a_name_says_what_a_sample_belongs_to() -> None:
    lesson = of("b.1")
    assert [lesson.holds(name) for name in ("b.1", "b.1+rewrite", "b.10", "bb.1", "anchor 0")] == [True, True] + [
        False
    ] * 3
    session = Lesson(line="local", sessions=("b",))
    assert [session.holds(name) for name in ("b.1", "b.10+rewrite", "bb.1", "b", "x.b.1")] == [True, True] + [False] * 3
    odd = Lesson(line="local", sessions=("a+b",))
    assert [odd.holds(name) for name in ("a+b.0", "a+b.0+rewrite", "a.0", "a.0+rewrite", "x+b.0")] == [True, True] + [
        False
    ] * 3
    with pytest.raises(ValueError, match="a lesson is"):
        Lesson(line="local")


def test_age_is_counted_in_steps_not_in_numbers() -> None:
    # From 4 somebody went back to 1; 5 and 6 stand on that.
    versions = (*WAY, version(5, 1), version(6, 5))
    assert ancestry(versions, 6) == [6, 5, 1]
    ages = [num_steps_since(versions, 6, sampled_by) for sampled_by in (0, 1, 2, 4, 5, 6)]
    assert ages == [3, 2, 2, 2, 1, 0]
    assert num_steps_since(versions, 6, 40) == -34, "of another store"


def test_steps_without_effect_make_no_answer_old() -> None:
    versions = [
        version(1, 0, "live"),
        version(2, 1, "no_effect"),
        version(3, 2, "no_effect"),
        version(4, 3, "candidate"),
    ]
    assert num_steps_since(versions, 3, 1) == 0
    assert (num_steps_since(versions, 4, 1), num_steps_since(versions, 4, 0)) == (1, 2)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        # On the way to what answers, or to what may: nobody.
        ([version(1, 0), version(2, 1, "no_effect"), version(3, 2, "live")], []),
        ([version(1, 0, kept=False), version(2, 1, "candidate")], []),
        ([version(1, 0), version(2, 1, "no_effect")], []),
        # All that stood on it failed, or somebody went back from below it.
        ([version(1, 0, kept=False), version(2, 1, "rejected")], [1]),
        ([was_live(version(1, 0, "rolled_back")), version(2, 1, "candidate"), version(3, 2, "candidate")], [2, 3]),
        ([version(1, 0, "live"), version(2, 1, "no_effect"), version(3, 1, "candidate")], [2]),
        # What answered once was heard, and so was everything on the way to it.
        ([version(1, 0), was_live(version(2, 1, "rolled_back"))], []),
        ([was_live(version(1, 0)), version(2, 0, "live")], []),
    ],
)
def test_what_is_stranded_never_answered_and_never_will(versions: list[Version], expected: list[int]) -> None:
    assert [one.number for one in stranded(versions)] == expected
