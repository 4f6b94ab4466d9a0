"""Beside people who never stop the background has its fifth, counted in tokens; and people have all the rest."""

from __future__ import annotations

import pytest

from openclaw_rl.engine.embedded.scheduler import SHARE, AnswerJob, HiddenJob, Job, Scheduler
from openclaw_rl.types import BACKGROUND
from tests.unit.engine.embedded import rig

STEPS = 50
MANY = 400
"""Tokens of an answer, or a prompt, that does not end within the steps."""


def seen(job: Job) -> int:
    return 0 if job.strand is None else job.strand.length


def writers(num: int, priority: int = 0) -> list[AnswerJob]:
    return [rig.answer([number], max_tokens=MANY, priority=priority) for number in range(num)]


def fed(scheduled: Scheduler, *jobs: Job, steps: int = STEPS) -> list[int]:
    """How many tokens of each job the model saw within so many steps."""
    for job in jobs:
        scheduled.submit(job)
    before = [seen(job) for job in jobs]
    for _ in range(steps):
        scheduled.step()
    return [seen(job) - start for job, start in zip(jobs, before, strict=True)]


@pytest.mark.parametrize("max_active", [1, 4, 5, 8])
def test_of_five_places_one_is_the_backgrounds(max_active: int) -> None:
    people, background = writers(max_active + 2), writers(3, BACKGROUND)
    num_fed = fed(rig.scheduler(max_active=max_active), *people, *background)
    assert sum(num_fed[len(people) :]) == STEPS * max_active // SHARE
    assert sum(num_fed) == STEPS * max_active, "no place stays empty"


def test_where_nobody_waits_in_the_background_people_have_all_places() -> None:
    assert fed(rig.scheduler(max_active=4), *writers(4)) == [STEPS] * 4
    assert fed(rig.scheduler(max_active=4), *writers(3), *writers(1, BACKGROUND)) == [STEPS] * 4


@pytest.mark.parametrize("chunk", [1, 8, 10])
def test_of_five_tokens_of_prompts_one_is_the_backgrounds(chunk: int) -> None:
    person = rig.answer([*range(60)] * 7)
    waiting = rig.answer([*range(60)] * 7, priority=BACKGROUND, salt="another")
    num_fed = fed(rig.scheduler(prefill_chunk=chunk), person, waiting, steps=30)
    assert num_fed == [30 * chunk - 30 * chunk // SHARE, 30 * chunk // SHARE]


def test_a_prompt_of_a_person_has_the_whole_chunk_unless_another_waits_in_the_background() -> None:
    person, writes = rig.answer([*range(60)] * 7), writers(1, BACKGROUND)
    assert fed(rig.scheduler(prefill_chunk=10), person, *writes, steps=30)[0] == 300


def test_a_person_who_writes_beside_both_waits_for_one_chunk_and_no_more() -> None:
    scheduled, (writes,) = rig.scheduler(prefill_chunk=40), writers(1)
    fed(scheduled, writes, steps=1)
    reads, waiting = rig.answer([*range(60)] * 8), rig.answer([*range(60)] * 8, priority=BACKGROUND, salt="another")
    scheduled.submit(reads)
    scheduled.submit(waiting)
    for _ in range(10):
        before = [seen(job) for job in (writes, reads, waiting)]
        scheduled.step()
        assert [seen(job) - start for job, start in zip((writes, reads, waiting), before, strict=True)] == [1, 32, 8]


@pytest.mark.parametrize(("num_tokens", "num_steps"), [(2, 4), (16, 4), (20, 5), (30, 7)])
def test_a_hidden_state_waits_for_four_times_its_tokens_of_a_long_prompt(num_tokens: int, num_steps: int) -> None:
    """At 16 to 18 tokens of the person's in a step."""
    scheduled, person = rig.scheduler(prefill_chunk=18), rig.answer([*range(60)] * 8)
    first, second = (HiddenJob(tuple(range(num_tokens)), 1, rig.weights(), BACKGROUND) for _ in range(2))
    fed(scheduled, person, first, second, steps=num_steps - 1)
    assert (first.over, second.over) == (False, False)
    scheduled.step()
    assert (first.over, second.over) == (True, False)
