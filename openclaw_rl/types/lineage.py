"""How versions of a line descend from each other, and what taking a lesson back does to them. Pure.

    v1 ── v2 ── v3 ── v4 (live)        a turn taught step 3, and was replayed in step 4
          └── v5 ── v6                 v2 answers at once; what else taught steps 3 and 4 is learned again

A lesson is never taken out of weights: the last version before it answers, and later ones are made again without it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from openclaw_rl.types.checks import require
from openclaw_rl.types.learning import turn_of_sample
from openclaw_rl.types.training import Step, Version, head_number
from openclaw_rl.types.turns import Skip

_UNDECIDED = ("candidate", "no_effect", "retired")
"""States of a version against which nothing was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What is to be taken back of a line: what one `turn` taught, what `sessions` did, or `everything` it learned."""

    line: str
    turn: tuple[str, int] | None = None
    sessions: tuple[str, ...] = ()
    everything: bool = False
    skip: Skip = Skip.UNDONE
    """What its turn says from then on of why nobody learns from it."""

    def __post_init__(self) -> None:
        named = (self.turn is not None, bool(self.sessions), self.everything)
        require(any(named), "a lesson is a turn, some sessions, or everything")
        require(not self.turn or named.count(True) == 1, "one turn is a lesson of its own")

    def holds(self, sample_id: str) -> bool:
        """Whether this sample is, or was, part of it; the name says so, also where the row is gone."""
        if self.everything:
            return True
        try:
            turn = turn_of_sample(sample_id)
        except ValueError:
            return False
        return turn == self.turn or turn[0] in self.sessions

    def unnamed(self, text: str) -> str:
        """A reason or a gate's objection, without the names of turns of its sessions.

        All of them name one as `turn SESSION.INDEX`, between blanks. The word before it belongs to the name: a session
        may be called 0, and 0.50 is a number.
        """
        sessions = "|".join(map(re.escape, self.sessions))
        return re.sub(rf"(?<!\S)turn (?:{sessions})\.[0-9]+(?!\S)", "a forgotten turn", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Undoing:
    """What taking a lesson back does to the versions of its line."""

    answering: int
    """The version that answers before."""
    back_to: int
    """The one that answers from then on; 0 is the base model."""
    undone: tuple[int, ...]
    """Versions that are rolled back: those that hold the lesson, and those on the way to them whose steps are taken
    again."""
    rebuilt: tuple[int, ...]
    """Steps whose other samples wait to be learned from again."""
    holding: tuple[int, ...]
    """All versions that learned from it or stand on one that did, whatever became of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """An undoing and what it did to samples. `is_done` False: nothing was changed, its `back_to` is not loaded yet."""

    plan: Undoing
    is_done: bool
    num_removed: int = 0
    """Samples that nobody will learn from any more."""
    num_returned: int = 0
    """Samples that wait to be learned from again."""


def plan_undoing(
    versions: Sequence[Version],
    steps: Sequence[Step],
    lesson: Lesson,
    *,
    besides: Collection[str] = (),
    unusable: Collection[int] = (),
) -> Undoing:
    """`besides` are further samples of the lesson; `unusable` versions cannot answer, as if their files were gone."""
    known = {one.number: one for one in versions}
    answering = next((one.number for one in versions if one.state == "live"), 0)

    def taught(step: Step) -> bool:
        return any(lesson.holds(one) or one in besides for one in (*step.sample_ids, *step.replayed_ids))

    learned = {step.number for step in steps if step.state == "done" and taught(step)}
    holding: set[int] = set()
    for number in sorted(known):  # a parent's number is below its children's
        if lesson.everything or number in learned or known[number].parent in holding:
            holding.add(number)
    way = ancestry(versions, head_number(versions))
    back_to = answering
    if answering in holding:
        back_to = min(set(ancestry(versions, answering)) & holding)
        while back_to and (back_to in holding or back_to in unusable or not known[back_to].may_answer):
            back_to = known[back_to].parent
    again = set(way[: way.index(back_to)] if back_to in way else way) if answering in holding else set(way) & holding
    rolled_back = {one for one in holding | again if known[one].state not in ("rejected", "rolled_back")}
    return Undoing(
        answering=answering,
        back_to=back_to,
        undone=tuple(sorted(rolled_back)),
        rebuilt=() if lesson.everything else tuple(sorted(again)),
        holding=tuple(sorted(holding)),
    )


def ancestry(versions: Sequence[Version], number: int) -> list[int]:
    """A version, its parent, and so on; without the base model."""
    parents = {one.number: one.parent for one in versions}
    found: list[int] = []
    while number in parents:
        found.append(number)
        number = parents[number]
    return found


def confirmed_before(versions: Sequence[Version], at: int) -> Version | None:
    """The last version below this one that a full check let answer; None: that is the base model."""
    known = {one.number: one for one in versions}
    below = (known[number] for number in ancestry(versions, at) if number != at)
    return next((one for one in below if one.may_answer and not one.on_probation), None)


def num_steps_since(versions: Sequence[Version], at: int, sampled_by: int) -> int:
    """How many of the steps that made version `at` the version that sampled an answer did not have.

    Numbers alone do not say so: after a rollback from 9 to 4 the next version is 10, and stands one step from 4. A
    version that is not known, from another store, is as old as its number says. Steps without effect do not count:
    what they made would have answered alike.
    """
    if not {at, sampled_by} <= {0, *(one.number for one in versions)}:
        return at - sampled_by
    had = {*ancestry(versions, sampled_by), *(one.number for one in versions if one.state == "no_effect")}
    return sum(number not in had for number in ancestry(versions, at))


def stranded(versions: Sequence[Version]) -> list[Version]:
    """Versions of one line that never answered, and that nothing stands on that ever did or still may."""
    parents = {one.number: one.parent for one in versions}
    kept: set[int] = set()
    for number in (head_number(versions), *(one.number for one in versions if one.was_live)):
        while number in parents and number not in kept:
            kept.add(number)
            number = parents[number]
    return [one for one in versions if one.state in _UNDECIDED and one.number not in kept]
