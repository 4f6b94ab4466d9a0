"""Taking a lesson back changes all rows or none; forgetting leaves no word of a session on the disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from openclaw_rl.store import SqlStore
from openclaw_rl.store.sql import undoing
from openclaw_rl.store.sql.undoing import FORGOTTEN
from openclaw_rl.types import TRACES_LEFT, Feedback, Judgement, Lesson, Skip, Verdict, Version, WeightsRef
from tests.factories.orders import sample
from tests.factories.planned import LINE, history, made, of, planned, states, take, waiting
from tests.factories.stored import put_lesson, put_samples, turn_of
from tests.factories.weights import folder_ref
from tests.stores import open_store, read_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with await open_store(tmp_path) as opened:
        yield opened


async def test_a_lesson_goes_and_its_company_waits_in_the_old_order(store: SqlStore, tmp_path: Path) -> None:
    await history(store)
    store.lessons.woken("train").clear()
    undone = await store.lessons.undo(of("b"), reason="it was wrong")
    assert (undone.is_done, undone.num_removed, undone.num_returned, undone.plan.back_to) == (True, 1, 2, 1)
    assert store.lessons.woken("train").is_set(), "the train loop looks at once"
    assert await states(store) == ["live", "rolled_back", "rolled_back"]
    assert [one.reason for one in await store.lessons.versions(LINE)] == ["", "it was wrong", "it was wrong"]
    assert await waiting(store) == ["c.0", "d.0"]
    assert all(one.is_returned for one in await store.lessons.waiting_samples(LINE, 9))
    assert await store.lessons.doubted_samples(LINE) == []
    reader = read_store(tmp_path)
    assert reader.num_returned() == {LINE: 2}
    (credit,) = reader.credits("b")
    assert (credit.skip, reader.turn("b", 0).skip) == (Skip.UNDONE, Skip.UNDONE)  # type: ignore[union-attr]
    assert reader.skips() == {Skip.UNDONE: 1}
    await take(store, planned(4, 1, "c.0", "d.0"))
    assert reader.num_returned() == {}


async def test_nothing_is_learned_from_it_again_whatever_is_said_later(store: SqlStore) -> None:
    await history(store)
    await store.lessons.undo(of("b"), reason="it was wrong")
    await store.put_feedback(Feedback(session="b", index=0, user=LINE, given_at=9.0, score=1))
    (held,) = await store.lessons.lease("judge", limit=9, ttl_s=60.0)
    judgement = Judgement(
        session="b",
        index=0,
        num_evidence=2,
        judge="rules",
        prompt_version="1",
        judged_at=9.0,
        verdict=Verdict(outcome="scored", score=1),
    )
    assert await store.lessons.put_judgement(held, judgement)
    (held,) = await store.lessons.lease("credit", limit=9, ttl_s=60.0)
    (before,) = await store.lessons.credits("b")
    assert await store.lessons.put_credit(held, replace(before, num_evidence=2, skip=None, samples=(made("b"),)))
    (credit,) = await store.lessons.credits("b")
    assert (credit.skip, await store.lessons.samples_named(["b.0"])) == (Skip.UNDONE, [])


async def test_a_step_that_learns_from_it_just_now_ends_there(store: SqlStore) -> None:
    await put_samples(store, [made("a"), made("b")])
    step = planned(1, 0, "a.0", "b.0")
    await store.lessons.plan_step(step)
    undone = await store.lessons.undo(of("a"), reason="it was wrong")
    assert (undone.plan.undone, undone.num_removed, await waiting(store)) == ((), 1, ["b.0"])
    assert await store.lessons.doubted_samples(LINE) == [], "b is not to blame"
    version = Version(line=LINE, number=1, parent=0, state="candidate", created_at=1.0, weights=folder_ref("/v1", "ab"))
    assert not await store.lessons.finish_step(replace(step, state="done"), version), "what it makes is nobody's"
    assert (await store.lessons.versions(LINE), await store.lessons.next_step_number(LINE)) == ([], 2)


async def test_a_step_on_an_undone_version_ends_and_one_beside_goes_on(store: SqlStore) -> None:
    await history(store)
    await put_samples(store, [made("e"), sample(0, session="f", id="f.0", line="ann")])
    await store.lessons.plan_step(planned(4, 3, "e.0"))
    await store.lessons.plan_step(replace(planned(1, 0, "f.0"), line="ann"))
    await store.lessons.undo(of("d"), reason="it was wrong")
    assert [step.line for step in await store.lessons.planned_steps()] == ["ann"]
    assert await waiting(store) == ["e.0"]


async def test_a_lesson_that_nobody_learned_from_yet_is_only_taken_out(store: SqlStore) -> None:
    await history(store)
    await put_samples(store, [made("e")])
    undone = await store.lessons.undo(of("e"), reason="it was wrong")
    assert (undone.plan.back_to, undone.plan.undone, undone.num_removed) == (3, (), 1)
    assert (await states(store), await waiting(store)) == (["retired", "retired", "live"], [])


async def test_a_rewrite_of_the_turn_goes_with_it(store: SqlStore) -> None:
    first, second = made("a", 0), made("a", 1)
    rewrite = sample(1, session="a", id="a.1+rewrite", kind="rewrite", prompt_index=0, logprobs=None, num_hints=0)
    await put_samples(store, [first])
    await store.put_turn(turn_of(second))
    await put_lesson(store, replace(rewrite, response_ids=second.response_ids))
    await take(store, planned(1, 0, "a.1+rewrite"))
    undone = await store.lessons.undo(of("a"), reason="it was wrong")
    assert (undone.plan.back_to, undone.num_removed, await waiting(store)) == (0, 2, [])


async def test_nothing_is_done_before_the_version_to_go_back_to_is_loaded(store: SqlStore) -> None:
    await history(store)
    before = (await states(store), await waiting(store))
    undone = await store.lessons.undo(of("b"), reason="it was wrong", loaded={0, 3})
    assert (undone.is_done, undone.plan.back_to) == (False, 1)
    assert (await states(store), await waiting(store)) == before
    undone = await store.lessons.undo(of("b"), reason="it was wrong", loaded={0, 3}, unusable={1})
    assert (undone.is_done, undone.plan.back_to, undone.num_returned) == (True, 0, 3)
    assert await states(store) == ["rolled_back"] * 3


async def test_who_opted_out_since_does_not_come_back(store: SqlStore) -> None:
    await history(store)
    session = await store.lessons.get_session("c")
    assert session is not None
    await store.put_session(replace(session, opted_out=True))
    undone = await store.lessons.undo(of("b"), reason="it was wrong")
    assert (undone.num_returned, await waiting(store)) == (1, ["d.0"])


def found_in(folder: Path, words: str) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and words.encode() in path.read_bytes()]


async def test_a_forgotten_session_leaves_no_word_behind(store: SqlStore, tmp_path: Path) -> None:
    await put_samples(store, [made("marker-1"), made("b")])
    await take(store, planned(1, 0, "marker-1.0"))
    await take(store, planned(2, 1, "b.0", replayed=("marker-1.0",)))
    await store.lessons.undo(of("marker-1"), reason="turn marker-1.0 was undone")
    lesson = Lesson(line=LINE, sessions=("marker-1",))
    undone = await store.lessons.undo(lesson, reason="forgotten")
    assert await store.lessons.forget(lesson, undone.plan)
    assert await store.erase()
    assert found_in(tmp_path, "marker-1") == []
    versions = await store.lessons.versions(LINE)
    assert [(one.weights, one.gate, one.reason) for one in versions] == [(None, None, FORGOTTEN)] * 2
    reader = read_store(tmp_path)
    assert [(one.sample_ids, one.replayed_ids) for one in reader.steps(LINE)] == [((), ()), (("b.0",), ())]
    assert (reader.session("marker-1"), await waiting(store)) == (None, ["b.0"])
    assert (await store.lessons.baseline(LINE, "main")).count == 0
    assert await store.lessons.next_step_number(LINE) == 3, "no number is given twice"


async def test_killed_before_the_sessions_go_nobody_learns_from_what_is_left(store: SqlStore, tmp_path: Path) -> None:
    await put_samples(store, [made("marker-1"), made("marker-2"), made("b")])
    lesson = Lesson(line=LINE, sessions=("marker-1", "marker-2"))
    plan = (await store.lessons.undo(lesson, reason="forgotten")).plan
    assert await store._transact(lambda connection: undoing.forget(connection, lesson, plan))
    session = await store.lessons.get_session("marker-1")
    assert (session is not None and session.opted_out, await waiting(store)) == (True, ["b.0"])
    assert await store.lessons.flag(TRACES_LEFT) is not None
    assert await store.lessons.forget(lesson, (await store.lessons.undo(lesson, reason="forgotten")).plan)
    assert await store.erase()
    assert (found_in(tmp_path, "marker-1"), found_in(tmp_path, "marker-2")) == ([], [])
    assert [summary.session.id for summary in read_store(tmp_path).sessions()] == ["b"]


async def forget(store: SqlStore, *sessions: str) -> None:
    lesson = Lesson(line=LINE, sessions=sessions)
    assert await store.lessons.forget(lesson, (await store.lessons.undo(lesson, reason="forgotten")).plan)


@pytest.mark.parametrize("name", ["e", "0", "live", "release", "imported", "rev-1", ".*", "rev-10.0 was"])
async def test_what_does_not_name_a_forgotten_turn_stays_as_it_is(store: SqlStore, tmp_path: Path, name: str) -> None:
    """The session is a part of words, or of other sessions' names, and no turn of its own is named."""
    await put_samples(store, [made("rev-10"), made("b"), made(name)])
    await take(store, planned(1, 0, "rev-10.0"))
    await take(store, planned(2, 1, "b.0"))
    await store.lessons.put_imported(LINE, lambda number: WeightsRef.of_folder(Path(f"/v{number}/weights"), "cd"))
    reasons = [
        "turn rev-10.0 was undone",
        "it is 0.50 nats a token away from its parent; release.max_kl allows 0.3",
        "what it says at turn x.rev-1.0 is 0.50 nats a token away; turn rev-1.0.2 was undone; version 0 was put live",
    ]
    for number, reason in enumerate(reasons, 1):
        gate = {"reason": reason, "measures": [{"objection": reason}]}
        await store.lessons.set_version_state(LINE, number, "rejected", reason=reason, gate=gate, blameless=True)
    before = [(one.reason, one.gate) for one in await store.lessons.versions(LINE)]
    await forget(store, name)
    assert [(one.reason, one.gate) for one in await store.lessons.versions(LINE)] == before
    assert [one.reason for one in read_store(tmp_path).steps(LINE)] == ["", "", "imported"]


@pytest.mark.parametrize("name", ["rev-1", "a(b|c)*", "ann/with.2", "two words", 'quo"ted', "\\d", "käse"])
async def test_every_name_of_a_forgotten_turn_goes_and_the_words_around_it_stay(
    store: SqlStore, tmp_path: Path, name: str
) -> None:
    """Of a version that never learned from it: its gate tried it on the turn, and said what it found."""
    await put_samples(store, [made("b"), made("c"), made(name)])
    await take(store, planned(1, 0, "b.0"))
    said = "what it says at turn {} is 2.50 nats a token away from its parent; release.max_kl_prompt allows 2"
    reason = said.format(f"{name}.0")
    gate = {"kl": 0.1, "measures": [{"name": "kl_prompt", "objection": reason, "limit": "≤ 2"}], "reason": reason}
    await store.lessons.set_version_state(LINE, 1, "rejected", reason=reason, gate=gate)
    step = planned(2, 1, "c.0")
    await store.lessons.plan_step(step)
    undone = f"turn {name}.12 was undone"
    assert await store.lessons.finish_step(replace(step, state="discarded", reason=undone), None)
    await forget(store, name)
    assert await store.erase()
    (version,) = await store.lessons.versions(LINE)
    left = said.replace("turn {}", "a forgotten turn")
    measure = {"name": "kl_prompt", "objection": left, "limit": "≤ 2"}
    assert version.reason == left
    assert version.gate == {"kl": 0.1, "measures": [measure], "reason": left}
    assert version.folder == Path("/v1/weights")
    assert read_store(tmp_path).steps(LINE)[1].reason == "a forgotten turn was undone"
    assert found_in(tmp_path, name) == []


async def test_what_was_learned_meanwhile_must_be_taken_back_first(store: SqlStore) -> None:
    await history(store)
    lesson = Lesson(line=LINE, sessions=("d",))
    plan = (await store.lessons.undo(lesson, reason="forgotten")).plan
    assert plan.undone == (3,)
    await put_lesson_again(store)
    await take(store, planned(4, 2, "d.1"))
    assert not await store.lessons.forget(lesson, plan)
    assert await store.lessons.get_session("d") is not None
    plan = (await store.lessons.undo(lesson, reason="forgotten")).plan
    assert (plan.undone, plan.holding) == ((4,), (3, 4))
    assert await store.lessons.forget(lesson, plan)


async def put_lesson_again(store: SqlStore) -> None:
    await store.put_turn(turn_of(made("d", 1)))
    await put_lesson(store, made("d", 1))


async def test_an_imported_version_has_a_number_a_parent_and_no_samples(store: SqlStore, tmp_path: Path) -> None:
    await history(store)
    numbers: list[int] = []

    def place(number: int) -> WeightsRef:
        numbers.append(number)
        return WeightsRef.of_folder(Path(f"/v{number}/weights"), "cd")

    version = await store.lessons.put_imported(LINE, place)
    assert (version.number, version.parent, version.state, version.folder) == (4, 3, "candidate", Path("/v4/weights"))
    assert numbers == [4]
    reader = read_store(tmp_path)
    assert (reader.steps(LINE)[3].sample_ids, reader.steps(LINE)[3].reason) == ((), "imported")
    assert await store.lessons.next_step_number(LINE) == 5
