"""`judge`: one turn, a range again, and lines of people's own; nothing is ever stored."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli import app as cli
from openclaw_rl.cli.learn.judging import judge_turn, replay
from openclaw_rl.cli.learn.judging_lines import judge_file
from openclaw_rl.config import Config
from openclaw_rl.errors import ConfigError, OpenClawError
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.types import Skip
from tests.factories.lessons import COMPLAINT, SESSION, fill, settings
from tests.factories.turns import make_session

CAPS = pytest.CaptureFixture[str]
REWARD = """
import asyncio

async def reward(prompt, response, next_feedback):
    words = str(next_feedback)
    if "slow" in words:
        await asyncio.sleep(0.2)
    if "break" in words:
        raise RuntimeError("no idea")
    return None if "else" in words else -0.5 if "shorter" in words else 1.0
"""
THANKS = {"request": "What is gravity?", "reply": "A force.", "next": [{"role": "user", "content": "thanks!"}]}


@pytest.fixture
async def data_dir(tmp_path: Path) -> Path:
    await fill(tmp_path / "data")
    (tmp_path / "reward.py").write_text(REWARD)
    return tmp_path / "data"


RULES = "evaluation.judge=rules"


def by_function(data_dir: Path, *overrides: str) -> Config:
    path = data_dir.parent / "reward.py"
    return settings(data_dir, "evaluation.judge=function", f"evaluation.judge_function={path}:reward", *overrides)


def ask_again(config: Config, capsys: CAPS, **range_: Any) -> Any:
    asked: dict[str, Any] = {"session": None, "user": None, "since": None, "limit": None, **range_}
    replay(config, **asked, as_json=True)
    return json.loads(capsys.readouterr().out)


def test_a_turn_is_judged_and_shown_and_nothing_is_stored(data_dir: Path, capsys: CAPS) -> None:
    before = StoreReader.open(data_dir).judgements(SESSION)
    judge_turn(by_function(data_dir), f"{SESSION}.0", as_json=False)
    text = capsys.readouterr().out
    assert text.startswith(f"{SESSION}.0  judged now, in ")
    assert "  judged     −0.5  by function (" in text
    assert f"  next       user: {COMPLAINT.content.replace(chr(27), '')}" in text
    assert "  stored     −1  by rules (rules-1), " in text
    judge_turn(by_function(data_dir), f"{SESSION}.1", as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["turn"], shown["outcome"], shown["score"]) == (f"{SESSION}.1", "abstained", None)
    assert shown["stored"]["outcome"] == "abstained"
    judge_turn(by_function(data_dir), f"{SESSION}.2", as_json=False)
    assert "stored     nothing yet" in capsys.readouterr().out
    assert StoreReader.open(data_dir).judgements(SESSION) == before


def test_rules_judge_a_turn(data_dir: Path, capsys: CAPS) -> None:
    judge_turn(settings(data_dir, RULES), f"{SESSION}.0", as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["judge"], shown["score"], len(shown["hints"])) == ("rules", -1, 1)
    assert {vote["question"] for vote in shown["votes"]} == {"score", "hint"}


def test_what_cannot_be_judged_says_why(data_dir: Path) -> None:
    for name, words in (
        (SESSION, "is a session"),
        (f"{SESSION}.3", "nothing that counts as feedback"),
        ("q.0", "no session"),
    ):
        with pytest.raises(OpenClawError, match=words):
            judge_turn(settings(data_dir), name, as_json=True)
    only_tools = settings(data_dir, "rollout.message_classification.main_line=tool")
    with pytest.raises(OpenClawError, match="nothing that counts as feedback"):
        judge_turn(only_tools, f"{SESSION}.0", as_json=True)


async def test_what_is_private_goes_to_no_endpoint(data_dir: Path) -> None:
    async with await SqliteStore.open(data_dir) as store:
        await store.mark_skip(SESSION, 0, Skip.OPTED_OUT)
    url = ("evaluation.judge=rules,endpoint", "evaluation.judge_url=http://127.0.0.1:1", "evaluation.judge_model=x")
    with pytest.raises(OpenClawError, match="is private"):
        judge_turn(settings(data_dir, *url), f"{SESSION}.0", as_json=True)


def test_a_replay_counts_where_both_agree(data_dir: Path, capsys: CAPS) -> None:
    shown = ask_again(by_function(data_dir), capsys)
    assert (shown["judge"], shown["num_turns"], shown["share_equal"], shown["share_hint_equal"]) == (
        "function",
        2,
        1.0,
        0.5,
    )
    assert shown["table"]["-1"]["-1"] == shown["table"]["abstained"]["abstained"] == 1
    assert sum(sum(row.values()) for row in shown["table"].values()) == 2
    assert shown["differences"] == []
    other = settings(data_dir, RULES)
    shown = ask_again(other, capsys)
    assert shown["share_equal"] == 0.5
    (difference,) = shown["differences"]
    assert (difference["turn"], difference["stored"]["outcome"]) == (f"{SESSION}.1", "abstained")
    replay(other, session=None, user=None, since=None, limit=None, as_json=False)
    text = capsys.readouterr().out
    assert "1 of 2 equal (50.0%)" in text
    assert f"{SESSION}.1  abstained → " in text
    assert StoreReader.open(data_dir).num_open("credit") == 0, "nothing is stored"


def test_a_replay_takes_a_range(data_dir: Path, capsys: CAPS) -> None:
    config = by_function(data_dir)
    assert ask_again(config, capsys, limit=1)["table"]["abstained"]["abstained"] == 1, "the one judged last"
    assert ask_again(config, capsys, session=SESSION, user="ann", since="1970-01-01")["num_turns"] == 2
    for nothing in ({"user": "bob"}, {"since": "1h"}):
        with pytest.raises(OpenClawError, match="no judged turn in this range"):
            ask_again(config, capsys, **nothing)
    with pytest.raises(ConfigError, match="--since 'soon' is no time"):
        ask_again(config, capsys, since="soon")


async def test_a_replay_leaves_private_sessions_alone(data_dir: Path, capsys: CAPS) -> None:
    async with await SqliteStore.open(data_dir) as store:
        await store.put_session(make_session(opted_out=True))
    with pytest.raises(OpenClawError, match="no judged turn"):
        ask_again(by_function(data_dir), capsys)


def judged_lines(config: Config, text: str, tmp_path: Path, capsys: CAPS) -> tuple[int, list[Any], str]:
    path = tmp_path / "pairs.jsonl"
    path.write_text(text)
    status = judge_file(config, path, as_json=True)
    printed = capsys.readouterr()
    return status, [json.loads(line) for line in printed.out.splitlines()], printed.err


def test_lines_are_judged_in_order_and_bad_ones_do_not_stop_the_others(
    data_dir: Path, tmp_path: Path, capsys: CAPS
) -> None:
    said = [{"role": "user", "content": "slow but shorter"}]
    lines = [
        json.dumps({**THANKS, "next": said, "id": "first", "expected": -1}),
        json.dumps(THANKS),
        "",
        "{nonsense",
        json.dumps({"id": 7, "request": "x", "replay": "y"}),
        json.dumps({**THANKS, "next": [{"role": "user", "content": "what else?"}]}),
        json.dumps({**THANKS, "next": [{"role": "user", "content": "break"}]}),
        "[1]",
    ]
    status, shown, errors = judged_lines(by_function(data_dir), "\n".join(lines), tmp_path, capsys)
    assert status == 1
    assert [(each["line"], each.get("id"), each["outcome"], each["score"]) for each in shown] == [
        (1, "first", "scored", -1),
        (2, None, "scored", 1),
        (4, None, None, None),
        (5, 7, None, None),
        (6, None, "abstained", None),
        (7, None, "failed", None),
        (8, None, None, None),
    ]
    assert "RuntimeError" in shown[5]["reason"]
    assert all({"votes", "hints"} <= set(each) for each in shown)
    assert shown[3]["error"] == "reply is missing"
    assert errors.count("error: ") == 3
    assert f"{tmp_path / 'pairs.jsonl'}:4: no JSON" in errors


def test_good_lines_are_exit_status_0_and_need_no_store(tmp_path: Path, capsys: CAPS) -> None:
    status, shown, errors = judged_lines(settings(tmp_path / "none", RULES), json.dumps(THANKS), tmp_path, capsys)
    assert (status, errors, shown[0]["score"], "error" in shown[0]) == (0, "", 1, False)
    assert judge_file(settings(tmp_path / "none", RULES), tmp_path / "pairs.jsonl", as_json=False) == 0
    assert "rules: +1: 1" in capsys.readouterr().out
    with pytest.raises(OpenClawError, match="cannot be read"):
        judge_file(settings(tmp_path), tmp_path / "missing.jsonl", as_json=True)


def test_a_pipe_is_answered_line_by_line() -> None:
    command = [sys.executable, "-m", "openclaw_rl", "judge", "--judge", "rules", "--file", "-", "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in (1, 2):
            process.stdin.write(json.dumps(THANKS) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["line"] == number, "before the pipe is closed"
        process.stdin.close()
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "name one of: a TURN"),
        (("s.1", "--replay"), "name one of: a TURN"),
        (("s.1", "--limit", "3"), "choose what --replay judges"),
        (("--replay", "--judge", "nobody"), "evaluation.judge"),
        (("--file", "x", "--judge", "endpoint"), "needs evaluation.judge_url"),
        (("evaluation.num_judges=x", "--file", "x"), "evaluation.num_judges"),
    ],
)
def test_wrong_use_is_one_line(words: tuple[str, ...], error: str, capsys: CAPS) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["judge", *words])
    assert ended.value.code == 2
    assert error in capsys.readouterr().err


def test_a_judge_that_samples_starts_an_engine_of_its_own(tmp_path: Path, capsys: CAPS) -> None:
    """The scripted engine gives the same answer to both questions: a score, and no hint."""
    replies = json.dumps([{"match": "(?s).*", "reply": "It was liked.\n\\boxed{1}"}])
    config = settings(tmp_path, "evaluation.judge=self", "engine.type=scripted", f"engine.scripted.replies={replies}")
    status, shown, _ = judged_lines(config, json.dumps(THANKS), tmp_path, capsys)
    assert (status, shown[0]["outcome"], shown[0]["score"], shown[0]["hints"]) == (0, "scored", 1, [])
    assert "It was liked." in shown[0]["votes"][0]["raw"]
