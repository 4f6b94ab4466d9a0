"""What a demo shows: the board on a terminal, lines elsewhere, tables and a plot at its end."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console

from openclaw_rl.cli.demo.events import Doing, Measured, Point, Stepped
from openclaw_rl.cli.demo.result import DemoResult, print_result, result_json
from openclaw_rl.cli.demo.run import DEFAULT_PLOT, find_plot, show_result
from openclaw_rl.cli.demo.server import DemoServer
from openclaw_rl.cli.demo.view import Board, board_view, event_line, showing
from openclaw_rl.cli.learn import plot
from openclaw_rl.cli.learn.plot import check_plot, plot_comparison, plot_curve
from openclaw_rl.config import StoreConfig
from openclaw_rl.errors import ConfigError
from openclaw_rl.evaluation.users import Brief
from tests.unit.cli.demo_run import EVENTS, LINE, point, step, version


def board() -> Board:
    made = Board(title="brief talks to tiny", preference="One short sentence.", num_turns=3)
    for event in EVENTS:
        made.tell(event)
    return made


def drawn(shown: Any, *, width: int = 110, height: int = 40) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    console.print(shown)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_the_board_shows_turns_versions_and_what_they_do_with_unseen_questions() -> None:
    text = drawn(board_view(board(), width=110, height=40, elapsed_s=75.0))
    assert "turn 3 of 3  1:15" in text
    assert "v0 120 tokens  The sea is salty[2J because" in text, "no control character reaches the terminal"
    assert "“Too long. Answer in one short sentence.”  judged −1  hint: Answer in one short sentence.  → v1" in text
    assert "not learned: truncated" in text
    assert "live  gate: kl 0.21, distinct 0.9" in text
    assert "v2.demo-brief rejected  it repeats itself" in text
    (before, after) = [line for line in text.splitlines() if "of 64" in line]
    assert before.count("█") < 8
    assert after.count("█") > 15
    assert ("62% [50 … 73] of 64" in before, "Ctrl-C ends it here" in text) == (True, True)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (60, 16)])
def test_the_board_fits_the_screen(width: int, height: int) -> None:
    full = board()
    for number in range(3, 12):
        full.tell(Measured(point=point(number, 4 * number, is_brief=True)))
    lines = drawn(board_view(full, width=width, height=height, elapsed_s=0.0), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= max(height, 22)
    began = [line for line in lines if line.startswith("│ v0 ")]
    assert ["28%" in line and "62%" in line for line in began] == [True], "where it began is always seen, uncut"


def test_a_fuller_measurement_takes_the_place_of_the_first() -> None:
    shown = board()
    shown.tell(Measured(point=point(0, 0, is_brief=False, num_right=10)))
    assert [one.number for one in shown.points] == [0, 1]
    assert shown.points[0].capability is not None
    assert shown.points[0].capability.value == 10 / 64


def test_what_is_waited_for_is_the_last_line() -> None:
    waiting = board()
    waiting.tell(Doing(text="measuring v1", done=3, total=76))
    assert (
        drawn(board_view(waiting, width=100, height=40, elapsed_s=0.0)).splitlines()[-1].strip() == "measuring v1 3/76"
    )


def test_every_event_but_waiting_is_a_line() -> None:
    lines = [str(event_line(event)) for event in EVENTS]
    assert lines[1:4] == [
        "turn 1  asks      Why is the sea salty?",
        "turn 1  answer    v0, 120 tokens: The sea is salty[2J because rivers carry salt.",
        "turn 1  reaction  Too long. Answer in one short sentence.",
    ]
    assert lines[4] == "turn 1  judged    −1  hint: Answer in one short sentence."
    assert lines[13] == "step 1  trains on 2 lessons (turns 1, 2) …"
    assert lines[14] == "step 1  learned from 2 lessons (turns 1, 2), loss +0.250, 9.8 s"
    assert lines[16] == "v1.demo-brief live  gate: kl 0.21, distinct 0.9"
    assert lines[17].startswith("measured v1 after 2 lessons: preference ")
    assert event_line(Doing(text="measuring")) is None
    assert str(event_line(EVENTS[18])) == "step 2  learned from 2 lessons, loss +0.250, 9.8 s"


def test_one_lesson_is_one_lesson() -> None:
    alone = step(1, "planned", sample_ids=("a",), metrics={})
    assert str(event_line(Stepped(step=alone, turns=(3,)))) == "step 1  trains on 1 lesson (turn 3) …"
    assert (
        str(event_line(Stepped(step=step(1, sample_ids=("a",), metrics={}), turns=())))
        == "step 1  learned from 1 lesson"
    )
    measured = str(event_line(Measured(point=point(1, 1, is_brief=True))))
    assert measured.startswith("measured v1 after 1 lesson: preference ")


def test_a_pipe_gets_lines_and_a_terminal_is_left_clean() -> None:
    pipe = io.StringIO()
    quiet = Board(title="t", preference="p", num_turns=None)
    with showing(quiet, Console(file=pipe, width=200)) as tell:
        for event in EVENTS:
            tell(event)
    assert len(pipe.getvalue().splitlines()) == len(EVENTS)
    assert quiet.versions[2].state == "rejected"
    screen = io.StringIO()
    with showing(board(), Console(file=screen, force_terminal=True, width=100, height=30)) as tell:
        tell(Doing(text="measuring"))
    assert "\x1b[" in screen.getvalue()


def result(*points: Point, is_made: bool = False, is_kept: bool = True, **others: Any) -> DemoResult:
    server = DemoServer(
        store=StoreConfig(data_dir=Path("/data")),
        url="http://127.0.0.1:1",
        key="k",
        line=LINE,
        batch_size=4,
        learns=True,
        has_weights=True,
        is_made=is_made,
        is_kept=is_kept,
    )
    given: dict[str, Any] = {
        "records": (),
        "steps": (step(1),),
        "versions": (version(1, "live", gate={"kl": 0.2}),),
        "is_interrupted": False,
        "seed": 0,
    }
    return DemoResult(user=Brief(), server=server, points=points, **{**given, **others})


def printed(shown: DemoResult) -> str:
    console = Console(file=io.StringIO(), width=160, color_system=None)
    print_result(shown, console, plot=Path("curve.png"))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_the_end_shows_real_answers_before_and_after_and_what_changed() -> None:
    text = printed(result(point(0, 0, is_brief=False), point(1, 8, is_brief=True)))
    rows = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "better" in rows["preference"]
    assert "may be chance" in rows["capability"]
    assert "Much can be said about" in text
    assert "as many people know." in text
    assert "Nothing got worse beyond chance" in text
    assert "versions --user demo-brief --data-dir /data" in text
    assert "Plot: curve.png" in text


def test_a_loss_of_capability_is_said() -> None:
    text = printed(result(point(0, 0, is_brief=False), point(1, 8, is_brief=True, num_right=20)))
    assert "Worse than chance explains: capability." in text


def test_an_end_before_anything_was_learned_says_so() -> None:
    assert "no version" not in (text := printed(result(point(0, 0, is_brief=False), versions=(), is_interrupted=True)))
    assert "Interrupted" in text
    assert "Nothing was learned" in text
    assert "versions --user" not in text


@pytest.mark.parametrize(
    ("is_made", "is_kept", "has_learned", "told", "data_dir"),
    [
        (False, True, True, "versions --user demo-brief --data-dir /data\n", "/data"),
        (True, True, True, "versions --user demo-brief --data-dir /data   (remove it: rm -r /data)", "/data"),
        (True, True, False, "Its directory stays: /data   (remove it: rm -r /data)", "/data"),
        (True, False, False, "Its directory is removed", None),
    ],
)
def test_what_is_left_of_an_interrupted_demo_is_told(
    is_made: bool, is_kept: bool, has_learned: bool, told: str, data_dir: str | None
) -> None:
    versions = (version(1, "live"),) if has_learned else ()
    shown = result(
        point(0, 0, is_brief=False), versions=versions, is_interrupted=True, is_made=is_made, is_kept=is_kept
    )
    assert told in printed(shown)
    assert result_json(shown, plot=None)["data_dir"] == data_dir


def test_after_two_measurements_of_different_size_what_both_were_asked_is_compared() -> None:
    full = point(0, 0, is_brief=False)
    found = replace(full.examination, answers=full.examination.answers[:8])
    cut = replace(full, num_items=8, examination=found)
    shown = result(cut, point(1, 8, is_brief=True))
    assert "capability" not in {m.name for m in shown.measures()}
    assert [len(one.answers) for one in shown.pair() or ()] == [8, 8]


def test_all_of_it_is_json() -> None:
    shown = result(point(0, 0, is_brief=False), point(1, 8, is_brief=True))
    found = json.loads(orjson.dumps(result_json(shown, plot=None)))
    assert [one["version"] for one in found["points"]] == ["v0", "v1.demo-brief"]
    assert found["comparison"]["measures"]["preference"]["verdict"] == "better"
    assert len(found["comparison"]["answers"]) == 12
    assert (found["data_dir"], found["is_interrupted"]) == ("/data", False)


def test_plots_are_pictures(tmp_path: Path) -> None:
    points = (point(0, 0, is_brief=False), point(1, 8, is_brief=True))
    plot_curve(points, tmp_path / "curve.png", title="brief")
    measures = result(*points).measures()
    plot_comparison(measures, tmp_path / "bars.png", before="v0", after="v1", title="v1 beside v0")
    for name in ("curve.png", "bars.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / name).stat().st_size > 5000


@pytest.mark.parametrize("as_json", [False, True])
def test_a_plot_that_fails_takes_no_demo_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    shown = result(point(0, 0, is_brief=False), point(1, 8, is_brief=True))
    for name, is_written in (("missing/curve.png", False), ("curve.png", True)):
        console = Console(file=io.StringIO(), width=160, color_system=None)
        assert show_result(shown, console, plot=tmp_path / name, as_json=as_json) == (0 if is_written else 1)
        said = capsys.readouterr()
        if as_json:
            assert json.loads(said.out)["plot"] == (str(tmp_path / name) if is_written else None)
        else:
            text = console.file.getvalue()  # type: ignore[attr-defined]
            assert ("Nothing got worse" in text, "Plot: " in text) == (True, is_written)
        assert ("curve.png cannot be written: No such file" in said.err) == (not is_written)


def test_of_one_point_there_is_no_curve(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=160, color_system=None)
    alone = result(point(0, 0, is_brief=False))
    assert show_result(alone, console, plot=tmp_path / "curve.png", as_json=False) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "find_spec", lambda name: None)


def test_a_plot_that_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    check_plot(tmp_path / "a.png")
    with pytest.raises(ConfigError, match=r"call it a\.png"):
        check_plot(tmp_path / "a.pdf")
    with pytest.raises(ConfigError, match="make it first"):
        check_plot(tmp_path / "missing" / "a.png")
    (tmp_path / "dir.png").mkdir()
    for folder in (tmp_path, tmp_path / "dir.png"):
        with pytest.raises(ConfigError, match=r"is a folder; name a file in it"):
            check_plot(folder)
    with pytest.raises(ConfigError, match=r"/proc/a\.png cannot be written: .*; --plot names another file"):
        check_plot(Path("/proc/a.png"))
    with pytest.raises(ConfigError, match="File name too long; --plot names another file"):
        check_plot(tmp_path / f"{'a' * 300}.png")


def test_to_look_whether_a_plot_can_be_leaves_no_trace(tmp_path: Path) -> None:
    (tmp_path / "old.png").write_text("old")
    for name in ("a.png", "old.png"):
        check_plot(tmp_path / name)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.png", "old")]


@pytest.mark.usefixtures("no_matplotlib")
def test_without_its_package_the_remedy_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pip install openclaw-rl\[evaluation\]"):
        check_plot(tmp_path / "a.png")


@pytest.mark.usefixtures("no_matplotlib")
def test_a_plot_that_nobody_asked_for_is_done_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(file=io.StringIO(), width=160, color_system=None)
    assert find_plot(None, console) is None
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.startswith("No plot: --plot needs the package matplotlib")
    with pytest.raises(ConfigError, match="matplotlib"):
        find_plot(tmp_path / "a.png", console)


def test_one_is_drawn_in_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    console = Console(file=io.StringIO())
    assert (find_plot(None, console), find_plot(Path("a.png"), console)) == (DEFAULT_PLOT, Path("a.png"))
