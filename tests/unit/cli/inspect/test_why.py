"""`why`: the way from a sentence to a version and back, with and without an engine that knows the probabilities."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from math import log
from pathlib import Path

import pytest

from openclaw_rl.cli.inspect.why import moved_text, show_why, tokens_text
from openclaw_rl.errors import NotFound
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Lesson, Step, Version, WeightsRef
from openclaw_rl.views.why import Moved, most_moved, moved_tokens
from tests.factories.lessons import HINT, SESSION, fill, settings
from tests.factories.turns import make_session, make_turn
from tests.factories.weights import folder_ref
from tests.unit.cli.test_lessons_shown import styles

CAPS = pytest.CaptureFixture[str]
TURN = f"{SESSION}.0"
METRICS = {"loss/total": 0.25, "step/exercises": 4.0}


@pytest.fixture
async def data_dir(tmp_path: Path) -> Path:
    """Version 1 of ann learned from the first turn."""
    await fill(tmp_path)
    async with await SqliteStore.open(tmp_path) as store:
        step = Step(line="ann", number=1, state="planned", planned_at=1.0, seed=0, parent=0, sample_ids=(TURN,))
        await store.lessons.plan_step(step)
        version = Version(
            line="ann", number=1, parent=0, state="candidate", created_at=1.0, weights=folder_ref("/v1/weights", "ab")
        )
        await store.lessons.finish_step(replace(step, state="done", metrics=METRICS), version)
        gate = {"kl": 0.125, "fine": True, "capability": {"lost": 2}, "reason": ""}
        await store.lessons.set_version_state("ann", 1, "live", gate=gate)
    return tmp_path


def test_a_version_leads_back_to_the_sentence(data_dir: Path, capsys: CAPS) -> None:
    show_why(settings(data_dir), "v1.ann", user=None, as_json=False)
    shown = capsys.readouterr()
    for part in (
        "v1.ann  ann  live  from v0",
        "learned    1 new, 4 exercises  loss/total +0.250",
        "gate       kl 0.125, capability lost 2",
        f"{TURN}  new",
        "next       user: no, [31mshorter please",
        "judged     −1  by rules (rules-1): asks for a change",
        f"hint       {HINT}",
        "sample     reward −1",
    ):
        assert part in shown.out
    assert "\x1b" not in shown.out
    assert "no probabilities: no server runs here" in shown.err


def test_the_same_as_json_by_number_and_user(data_dir: Path, capsys: CAPS) -> None:
    show_why(settings(data_dir), "1", user="ann", as_json=True)
    told = json.loads(capsys.readouterr().out)
    (lesson,) = told["lessons"]
    assert (told["version"], told["samples"], lesson["sample"], lesson["moved"]) == ("v1.ann", [TURN], TURN, [])
    assert (lesson["lesson"]["judgement"]["hints"], len(told["notes"])) == ([HINT], 1)


@pytest.mark.parametrize(
    ("turn", "became"),
    [
        (TURN, "part of the version that answers"),
        (f"{SESSION}.1", "not learned from: abstained"),
        (f"{SESSION}.2", "it waits for the judge"),
        (f"{SESSION}.3", "nothing followed it yet"),
    ],
)
def test_a_turn_says_what_became_of_it(data_dir: Path, capsys: CAPS, turn: str, became: str) -> None:
    show_why(settings(data_dir), turn, user=None, as_json=False)
    shown = capsys.readouterr().out
    assert f"became     {became}" in shown
    assert ("learned in step 1  v1.ann  live" in shown) == (turn == TURN)


@pytest.fixture
async def chats(data_dir: Path) -> Path:
    """Sessions that a client calls 42 and v1, of a turn each; the version of a user 0 has the name of the latter's."""
    async with await SqliteStore.open(data_dir) as store:
        for name in ("42", "v1"):
            await store.put_session(make_session(name))
            await store.put_turn(make_turn(session=name, text=f"answer of {name}"))
        for line in ("0", "7"):
            await store.lessons.put_imported(line, lambda number: WeightsRef.of_folder(Path(f"/v{number}"), "ab"))
    return data_dir


@pytest.mark.parametrize("name", ["42.0", "4.0", "v1.0"])
def test_a_turn_of_a_session_with_a_number_for_a_name_is_found(chats: Path, capsys: CAPS, name: str) -> None:
    show_why(settings(chats), name, user=None, as_json=False)
    assert f"assistant  answer of {'v1' if name == 'v1.0' else '42'}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("42", "no version '42'; there are [^;]*$"),
        ("v1.1", "there is no turn v1.1; `openclaw-rl inspect v1` shows all"),
        ("42.7", "there is no turn 42.7; `openclaw-rl inspect 42` shows all"),
    ],
)
def test_a_number_alone_is_a_version_and_a_turn_must_be_there(chats: Path, name: str, why: str) -> None:
    with pytest.raises(NotFound, match=why):
        show_why(settings(chats), name, user=None, as_json=False)


def test_a_version_has_its_name_where_no_turn_has(chats: Path, capsys: CAPS) -> None:
    show_why(settings(chats), "v1.7", user=None, as_json=False)
    assert capsys.readouterr().out.startswith("v1.7  7  candidate")


async def undo(data_dir: Path) -> None:
    async with await SqliteStore.open(data_dir) as store:
        await store.lessons.undo(Lesson(line="ann", turn=(SESSION, 0)), reason=f"turn {TURN} was undone")


def test_what_was_undone_says_so(data_dir: Path, capsys: CAPS) -> None:
    asyncio.run(undo(data_dir))
    show_why(settings(data_dir), TURN, user=None, as_json=False)
    shown = capsys.readouterr().out
    assert "became     undone: what it taught was taken back" in shown
    assert f"learned in step 1  v1.ann  rolled back: turn {TURN} was undone" in shown
    show_why(settings(data_dir), "v1.ann", user=None, as_json=False)
    assert f"{TURN}  new; its turn is gone, or was undone" in capsys.readouterr().out
    show_why(settings(data_dir), TURN, user=None, as_json=True)
    (use,) = json.loads(capsys.readouterr().out)["uses"]
    assert (use["version_state"], use["in_live"], use["replayed"]) == ("rolled_back", False, False)


@pytest.mark.parametrize(
    ("name", "why"),
    [("v9", "no version 'v9'; there are v1.ann"), (SESSION, "is a session; name one of its turns"), ("zz", "session")],
)
def test_what_is_neither_is_told_so(data_dir: Path, name: str, why: str) -> None:
    with pytest.raises(NotFound, match=why):
        show_why(settings(data_dir), name, user=None, as_json=False)


def test_the_tokens_that_moved_most_are_named_in_their_order() -> None:
    scores = {"before": [log(0.5), log(0.2), log(0.25)], "after": [log(0.1), log(0.205), log(0.5)]}
    moved = moved_tokens(["Rain", " is\n", " wet"], scores)
    assert [round(one.after, 3) for one in moved] == [0.1, 0.205, 0.5]
    assert styles(tokens_text(moved, limit=None)) == [("Rain", "red"), (" is⏎", "dim"), (" wet", "green")]
    assert tokens_text(moved, limit=9).plain == "Rain is⏎…"
    assert moved_text(moved[0]).plain == "'Rain'         0.500 → 0.100  #0"
    many = [Moved(index=at, text="x", before=0.5, after=0.5 - at / 100) for at in range(12)]
    assert [one.index for one in most_moved(many)] == [4, 5, 6, 7, 8, 9, 10, 11]
    assert most_moved(many[:1]) == [], "what stands still did not move"
