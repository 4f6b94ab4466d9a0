"""`eval`: what it refuses before it measures, and what it shows of what it measured, whatever becomes of the plot."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from openclaw_rl.cli.app import main
from openclaw_rl.cli.learn.evaluating import ComparisonTable, interval_text, show_comparison
from openclaw_rl.cli.learn.plot import PlotFailed
from openclaw_rl.evaluation.comparing import ComparedMeasure, Wish, compare_examinations
from openclaw_rl.evaluation.exam import Examination
from openclaw_rl.evaluation.measures import Interval
from openclaw_rl.evaluation.users import Brief
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import VersionState, WeightsRef
from tests.unit.cli.demo_run import examination

CAPS = pytest.CaptureFixture[str]


@pytest.fixture
async def data_dir(tmp_path: Path) -> Path:
    """Ann and Zoe are answered by a version of their own; Bob's was rolled back."""
    async with await SqliteStore.open(tmp_path) as store:
        states: dict[str, VersionState] = {"zoe": "live", "ann": "live", "bob": "rolled_back"}
        for line, state in states.items():
            await store.lessons.put_imported(line, lambda number: WeightsRef.of_folder(Path(f"/v{number}"), "ab"))
            await store.lessons.set_version_state(line, 1, state)
    return tmp_path


def refused(capsys: CAPS, data_dir: Path, *words: str) -> tuple[int, str]:
    """Exit status and complaint, in one line."""
    with pytest.raises(SystemExit) as end:
        main(["eval", *words, "--data-dir", str(data_dir)])
    shown = capsys.readouterr()
    assert shown.out == ""
    return int(end.value.code or 0), " ".join(shown.err.split())


@pytest.mark.parametrize("line", ["nobody", "bob"])
def test_a_line_that_no_version_answers_is_refused_with_those_that_one_does(
    data_dir: Path, capsys: CAPS, line: str
) -> None:
    status, said = refused(capsys, data_dir, "--user", line)
    assert (status, f"no version of {line} answers" in said) == (1, True)
    assert "there are some of ann, zoe: name one of them with --user, or a version with --version" in said
    assert "no server is running" in refused(capsys, data_dir, "--user", "ann")[1]
    assert "no server is running" in refused(capsys, data_dir, "--user", line, "--version", "0")[1]


async def test_where_nothing_was_learned_that_is_said(tmp_path: Path, capsys: CAPS) -> None:
    async with await SqliteStore.open(tmp_path):
        pass
    assert "no version of local answers: nothing was learned yet" in refused(capsys, tmp_path)[1]


def test_a_bad_name_is_told_what_a_name_is(data_dir: Path, capsys: CAPS) -> None:
    for words in ((), ("--version", "0")):
        status, said = refused(capsys, data_dir, "--user", "a b", *words)
        assert (status, said.startswith("error: 'a b' is neither a user name")) == (2, True)


def pair() -> tuple[Examination, Examination]:
    return examination("v0", is_brief=False), examination("v12.demo-friendly-2", is_brief=True)


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A file that can be opened, and has no room."""
    path = tmp_path / "full.png"
    path.symlink_to("/dev/full")
    return path


@pytest.mark.parametrize("as_json", [False, True])
def test_a_plot_that_fails_takes_no_measurement_with_it(full: Path, capsys: CAPS, as_json: bool) -> None:
    with pytest.raises(PlotFailed, match=r"full\.png cannot be written: No space left on device; --plot"):
        show_comparison(Brief(), *pair(), seed=0, plot=full, as_json=as_json)
    shown = capsys.readouterr().out
    if as_json:
        found = json.loads(shown)
        assert (found["plot"], found["measures"]["preference"]["verdict"]) == (None, "better")
    else:
        assert "Nothing got worse beyond chance" in shown
        assert "Plot" not in shown


def test_a_plot_that_is_written_is_named(tmp_path: Path, capsys: CAPS) -> None:
    path = tmp_path / "bars.png"
    show_comparison(Brief(), *pair(), seed=0, plot=path, as_json=True)
    assert json.loads(capsys.readouterr().out)["plot"] == str(path)
    show_comparison(Brief(), *pair(), seed=0, plot=path, as_json=False)
    assert f"Plot: {path}\n" in capsys.readouterr().out
    assert path.read_bytes().startswith(b"\x89PNG")


def measure(name: str, before: float, change: Interval, *, wish: Wish, is_share: bool = True) -> ComparedMeasure:
    was, now = (Interval(value=value, low=0.0, high=value) for value in (before, before + change.value))
    meaning = "what it knew: right answer before three wrong ones"
    return ComparedMeasure(
        name=name, meaning=meaning, num=636, before=was, after=now, change=change, wish=wish, is_share=is_share
    )


MEASURES = (  # the first is as wide as they get
    measure("questions_back", 1.0, Interval(value=-0.099, low=-1.0, high=1.0), wish="less"),
    measure("preference", 0.3, Interval(value=0.7, low=0.6, high=0.8), wish="more"),
    measure("tokens", 120.0, Interval(value=-20.0, low=-30.0, high=-10.0), wish="none", is_share=False),
)


def drawn(width: int, *, after: str = "v12.demo-friendly-2") -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(ComparisonTable(MEASURES, before="v0", after=after))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    ("width", "has_meaning", "has_long_lines"),
    [(80, False, False), (95, False, False), (96, False, True), (121, False, True), (122, True, True)],
)
def test_intervals_and_verdicts_are_whole_however_narrow_it_is(
    width: int, has_meaning: bool, has_long_lines: bool
) -> None:
    text = drawn(width)
    assert max(map(len, text.splitlines())) <= width
    assert all(map(str.strip, text.splitlines())), "what has no verdict is one line"
    assert "…" not in re.sub(r" … ", "", text), "nothing is cut"
    for one in MEASURES:
        for interval, signed in ((one.before, False), (one.after, False), (one.change, True)):
            assert interval_text(interval, one, signed=signed) in text
    assert (text.count("better"), text.count("may be chance"), text.count("636")) == (1, 1, 3)
    assert ("meaning" in text, text.count("wrong ones")) == (has_meaning, 3 * has_meaning)
    assert ("+70 [+60 … +80]         better" in text) == has_long_lines


def test_the_longest_name_of_a_user_takes_no_room_from_intervals() -> None:
    named = drawn(80, after=f"v12.{'x' * 64}").splitlines()
    assert [line.split() for line in named[-3:]] == [line.split() for line in drawn(80).splitlines()[-3:]]
    assert "".join(named).count("x") == 64


def test_a_version_beside_itself_is_the_same_in_everything() -> None:
    same = examination("v1", is_brief=True)
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(ComparisonTable(compare_examinations(Brief(), same, same), before="v1", after="v1"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("the same") == len(text.splitlines()) - 1
    assert "may be chance" in drawn(200), "as many right answers of another version are chance"
