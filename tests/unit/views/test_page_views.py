"""What the page shows of a store: the state of a correction at every place of its way, lists, versions side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from openclaw_rl.config.learning import ReleaseConfig
from openclaw_rl.errors import NotFound, RequestError
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Feedback, Lesson, Skip, Step, Version, own_hint
from openclaw_rl.views.measures import MEASURE_WORDS, limits_of
from openclaw_rl.views.page.corrections import Correction
from openclaw_rl.views.page.languages import language_of
from openclaw_rl.views.page.left_out import WORDS, count_left_out
from openclaw_rl.views.page.lessons import list_lessons, read_lesson, read_tokens
from openclaw_rl.views.page.loops import agreement, read_judge, read_stages
from openclaw_rl.views.page.paging import Paging, place
from openclaw_rl.views.page.talking import list_conversations, read_conversation_part, title_of
from openclaw_rl.views.page.teaching import LessonFilter
from openclaw_rl.views.page.tracing import read_corrections
from openclaw_rl.views.page.versions import compare, list_line_versions, number_of, read_trends, read_version
from openclaw_rl.views.rows import open_rows
from openclaw_rl.views.tokens import TokenTexts
from tests.factories.lessons import HINT, SESSION, fill, settings
from tests.factories.weights import folder_ref

TURN = f"{SESSION}.0"
GATE = {
    "check": "full",
    "parent": "v0",
    "seconds": 4.0,
    "live_at": 140.0,
    "reason": "",
    "measures": [
        {"name": "kl", "candidate": 0.2, "parent": None, "base": None, "limit": "≤ 0.5", "objection": ""},
        {"name": "length", "candidate": 0.9, "parent": None, "base": 1.0, "limit": "≤ 1.6", "objection": "too long"},
    ],
    "proof": {"num_tokens": 300, "correlation": 0.9999, "change": 0.01, "noise": 1e-6, "reason": ""},
}


def correction(data_dir: Path, index: int = 0) -> Correction:
    return read_corrections(open_rows(settings(data_dir).store), [(SESSION, index)])[SESSION, index]


def step(number: int = 1, **changes: object) -> Step:
    made = Step(line="ann", number=number, state="planned", planned_at=125.0, seed=0, parent=0, sample_ids=(TURN,))
    return replace(made, **changes)  # type: ignore[arg-type]


def version(number: int = 1) -> Version:
    return Version(
        line="ann", number=number, parent=0, state="candidate", created_at=130.0, weights=folder_ref("/v/w", "ab")
    )


async def made(store: SqliteStore, number: int = 1) -> None:
    await store.lessons.plan_step(step(number))
    done = step(number, state="done", finished_at=130.0, metrics={"loss/total": 0.25})
    await store.lessons.finish_step(done, version(number))


async def test_every_place_of_the_way_has_its_words(tmp_path: Path) -> None:
    await fill(tmp_path)
    waits = correction(tmp_path)
    assert (waits.state, waits.words) == ("judged", "judged −1; waits for its step")
    assert [one.at for one in waits.stages] == [110.0, 115.0, None, None, None]
    assert waits.stages[1].words == "−1: asks for a change"
    async with await SqliteStore.open(tmp_path) as store:
        await store.lessons.plan_step(step())
        assert correction(tmp_path).state == "learning"
        done = step(state="done", finished_at=130.0, metrics={"loss/total": 0.25})
        await store.lessons.finish_step(done, version())
        assert correction(tmp_path).words == "v1.ann is being checked"
        await store.lessons.set_version_state("ann", 1, "live", gate={**GATE, "check": "quick"})
        probation = correction(tmp_path)
        assert (probation.state, probation.version) == ("live", "v1.ann")
        assert "probation" in probation.words
        await store.lessons.set_version_state("ann", 1, "live", gate=GATE)
        live = correction(tmp_path)
        assert live.words == "live in v1.ann"
        assert [(one.at, one.took_s) for one in live.stages] == [
            (110.0, None),
            (115.0, 5.0),
            (125.0, 10.0),
            (140.0, 15.0),
            (140.0, 0.0),
        ]
        await store.lessons.undo(Lesson(line="ann", turn=(SESSION, 0)), reason="undone")
        back = correction(tmp_path)
        assert (back.state, back.version) == ("taken_back", "v1.ann")


async def test_what_did_not_pass_says_why(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with await SqliteStore.open(tmp_path) as store:
        await made(store)
        await store.lessons.set_version_state("ann", 1, "rejected", reason="it talks on and on", gate=GATE)
        told = correction(tmp_path)
        assert told.state == "rejected"
        assert told.words == "v1.ann did not pass: it talks on and on"


async def test_what_was_not_to_blame_is_tried_again(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with await SqliteStore.open(tmp_path) as store:
        await made(store)
        await store.lessons.set_version_state("ann", 1, "rejected", reason="the engine died", blameless=True)
        told = correction(tmp_path)
        assert (told.state, told.version) == ("rejected", "v1.ann")
        assert told.words.endswith("the lesson is tried again")
        await made(store, 2)
        await store.lessons.set_version_state("ann", 2, "no_effect", reason="below the noise")
        assert correction(tmp_path).state == "checking"


async def test_left_out_and_waiting_for_the_judge(tmp_path: Path) -> None:
    await fill(tmp_path)
    tied, waiting = correction(tmp_path, 1), correction(tmp_path, 2)
    assert tied.left_out is not None
    assert (tied.state, tied.left_out.reason) == ("left_out", "abstained")
    assert tied.left_out.remedy
    assert (waiting.state, waiting.verdict) == ("heard", None)
    counts = count_left_out(open_rows(settings(tmp_path).store), "ann").items
    assert [(one.reason, one.num_turns) for one in counts] == [("abstained", 1)]


async def test_newer_words_open_the_way_again(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with await SqliteStore.open(tmp_path) as store:
        said = Feedback(
            session=SESSION, index=1, user="ann", given_at=300.0, score=-1, text=own_hint("Be brief, please.")
        )
        await store.put_feedback(said)
    told = correction(tmp_path, 1)
    assert (told.state, told.sentence) == ("heard", "Be brief, please.")
    assert told.stages[0].at == 300.0


def test_every_skip_has_words() -> None:
    assert set(WORDS) == set(Skip)


async def test_a_rejected_lesson_says_so_whatever_comes_later(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with await SqliteStore.open(tmp_path) as store:
        await store.lessons.undo(Lesson(line="ann", turn=(SESSION, 0), skip=Skip.REJECTED), reason="rejected")
        told = correction(tmp_path)
        assert told.left_out is not None
        assert (told.state, told.left_out.reason) == ("left_out", "rejected")
        assert await store.lessons.waiting() == []


async def test_lessons_are_listed_and_filtered(tmp_path: Path) -> None:
    await fill(tmp_path)
    rows = open_rows(settings(tmp_path).store)
    listed = list_lessons(rows, "ann", LessonFilter(), Paging())
    assert [one.turn for one in listed.items] == [f"{SESSION}.{index}" for index in (2, 1, 0)]
    assert [one.kind for one in listed.items] == ["unjudged", "abstained", "bad"]
    assert listed.next is None
    first = list_lessons(rows, "ann", LessonFilter(), Paging(limit=2))
    rest = list_lessons(rows, "ann", LessonFilter(), Paging(limit=2, after=first.next))
    assert [one.turn for one in (*first.items, *rest.items)] == [one.turn for one in listed.items]
    bad = list_lessons(rows, None, LessonFilter(verdict="bad", language="en", state="judged"), Paging())
    assert [(one.turn, one.hint, one.judge) for one in bad.items] == [(TURN, HINT, "rules")]
    assert list_lessons(rows, "bob", LessonFilter(), Paging()).items == ()
    assert list_lessons(rows, "ann", LessonFilter(language="zh"), Paging()).items == ()
    with pytest.raises(RequestError):
        list_lessons(rows, "ann", LessonFilter(), Paging(after=place(1)))


async def test_one_lesson_with_its_tokens(tmp_path: Path) -> None:
    await fill(tmp_path)
    rows = open_rows(settings(tmp_path).store)
    session = rows.session(SESSION)
    assert session is not None
    told = read_lesson(rows, session, 0, TokenTexts())
    assert [one.answer for one in told.votes] == ["−1", "failed", "yes"]
    assert set(told.actions) == {"accept", "reject", "hint", "forget"}
    (sample,) = told.samples
    assert [one.way for one in sample.tokens] == ["none", *["down"] * (len(sample.tokens) - 1)]
    assert all(one.before is None for one in sample.tokens)
    size = len(sample.tokens)
    scores = {TURN: {"before": [-1.0] * size, "after": [-2.0] * size}}
    (moved,) = read_tokens(rows, session, 0, TokenTexts(), scores, "").samples
    assert all(one.before is not None and one.after is not None and one.after < one.before for one in moved.tokens)
    with pytest.raises(NotFound):
        read_lesson(rows, session, 3, TokenTexts())


async def test_versions_and_what_each_learned(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with await SqliteStore.open(tmp_path) as store:
        await made(store)
        await store.lessons.set_version_state("ann", 1, "live", gate=GATE)
        rows, limits = open_rows(settings(tmp_path).store), ReleaseConfig()
        listed = list_line_versions(rows, "ann", Paging())
        assert (listed.answering, [one.state for one in listed.items]) == ("v1.ann", ["live"])
        assert listed.items[0].live_at == 140.0
        told = read_version(rows, "ann", 1, limits)
        assert [(one.name, one.low, one.high, one.objects) for one in told.measures] == [
            ("kl", None, 0.5, False),
            ("length", None, 1.6, True),
        ]
        assert told.proof is not None
        assert told.proof.is_proved
        assert [(one.turn, one.hint) for one in told.lessons] == [(TURN, HINT)]
        both = compare(rows, "ann", 1, 0)
        assert (both.right, [one.turn for one in both.only_left], both.only_right) == (None, [TURN], ())
        assert [(one.name, one.left, one.right) for one in both.measures] == [("kl", 0.2, None), ("length", 0.9, 1.0)]
        trends = {one.name: one for one in read_trends(rows, "ann", limits).trends}
        assert [one.value for one in trends["length"].points] == [0.9]
        assert (trends["length"].low, trends["length"].high) == (None, 1.6)
        assert number_of(rows, "ann", "v1.ann") == number_of(rows, "ann", "1") == 1
        assert number_of(rows, "ann", "v0") == 0
        for label in ("v2.ann", "v1.bob", ""):
            with pytest.raises(NotFound):
                number_of(rows, "ann", label)


async def test_conversations_come_with_their_opening(tmp_path: Path) -> None:
    turns = await fill(tmp_path)
    rows = open_rows(settings(tmp_path).store)
    (row,) = list_conversations(rows, "ann", Paging()).items
    assert row.title == title_of(turns[0].messages[-1].content)
    assert list_conversations(rows, "bob", Paging()).items == ()
    session = rows.session(SESSION)
    assert session is not None
    whole = read_conversation_part(rows, session, Paging())
    assert [one.asked[-1].text for one in whole.turns] == [turn.messages[-1].content for turn in turns]
    assert [one.answer.text for one in whole.turns] == [turn.message.content for turn in turns]
    part = read_conversation_part(rows, session, Paging(limit=3))
    before = read_conversation_part(rows, session, Paging(limit=3, after=part.next))
    assert [one.index for one in (*before.turns, *part.turns)] == [0, 1, 2, 3]


async def test_stages_say_what_waits(tmp_path: Path) -> None:
    await fill(tmp_path)
    rows, config = open_rows(settings(tmp_path).store), settings(tmp_path)
    stages = {one.name: one for one in read_stages(rows, "ann", config, now=200.0, learns=True)}
    assert (stages["judged"].num_waiting, stages["judged"].num_last_hour) == (1, 2)
    assert (stages["trained"].num_waiting, stages["trained"].light) == (1, "waits")
    assert stages["trained"].oldest_s == pytest.approx(80.0)
    assert {one.light for one in read_stages(rows, None, config, now=200.0, learns=False)[1:4]} == {"off"}
    assert read_stages(rows, "bob", config, now=200.0, learns=True)[1].num_waiting == 0
    told, _ = read_judge(rows, config, learns=True)
    assert (told.num_judged, told.light) == (2, "ok")


def test_votes_that_agree() -> None:
    assert agreement([]) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("shorter, please", "en"),
        ("请简短一点", "zh"),
        ("短く答えてください", "ja"),
        ("짧게 대답해 주세요", "ko"),
        ("короче, пожалуйста", "ru"),
        ("por favor, más corto", "other"),
        ("👎", ""),
        ("", ""),
    ],
)
def test_the_language_of_a_sentence(text: str, code: str) -> None:
    assert language_of(text) == code


def test_limits_as_numbers() -> None:
    assert limits_of("≤ 1.6") == (None, 1.6)
    assert limits_of("≥ 0.25") == (0.25, None)
    assert limits_of("≥ -0.5 and ≤ 2") == (-0.5, 2.0)
    assert limits_of("") == (None, None)
    assert MEASURE_WORDS["kl"]
