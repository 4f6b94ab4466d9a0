"""docs/environments.md is true: its options exist, its sets and agents are those that there are, its figures add up."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from openclaw_rl.cli import app as cli
from openclaw_rl.config import load_config
from openclaw_rl.config.sources import DEFAULT
from openclaw_rl.envs.registry import ENVIRONMENTS, HARNESSES
from openclaw_rl.envs.toolcall.options import SourceOptions
from openclaw_rl.envs.toolcall.task_file import read_tasks
from openclaw_rl.envs.toolcall.tools.tools_file import read_tools_file
from tests.pages import DOCS, ROOT, blocks, num_words, prose, rows, section, spans

PAGE = DOCS / "environments.md"
LINES = [
    line.removeprefix("$ ").partition("  #")[0]
    for text in [*blocks(PAGE), *spans(PAGE)]
    for line in text.splitlines()
    if line.removeprefix("$ ").startswith("openclaw-rl ")
]


def test_it_is_no_longer_than_a_person_reads() -> None:
    assert num_words(PAGE) <= 1800


@pytest.mark.parametrize("line", LINES)
def test_every_option_on_the_page_is_one(line: str) -> None:
    _, name, *words = shlex.split(line)
    command = typer.main.get_group(cli.app).commands[name]
    if isinstance(command, typer.core.TyperGroup):
        command = command.commands[words.pop(0)]
    known = {flag for parameter in command.params for flag in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    settings = [word for word in words if re.match(r"[a-z]+\.[a-z_.]+=", word)]
    told = load_config(env={}, overrides=settings).sources
    assert all(told[setting.partition("=")[0]] != DEFAULT for setting in settings)


def test_its_tracks_and_agents_are_those_that_there_are() -> None:
    tracks, agents = rows(PAGE.read_text().partition("## First run")[0]), rows(section(PAGE, "Who acts"))
    assert [row[0].strip("`") for row in tracks] == list(ENVIRONMENTS)
    assert set(HARNESSES) <= {name for row in agents for name in re.findall(r"`([a-z-]+)`", row[0])}


def test_the_questions_and_the_tools_on_it_can_be_read(tmp_path: Path) -> None:
    (question,) = (block for block in blocks(PAGE) if block.startswith('{"question"'))
    (tmp_path / "mine.jsonl").write_text(question)
    (task,) = read_tasks(tmp_path / "mine.jsonl", tools=(), system="")
    assert task.problem.question == "How many days has a leap year?"
    (tools,) = blocks(PAGE, "json")
    (tmp_path / "tools.json").write_text(tools)
    (tmp_path / "tools.py").write_text("def age(who): return 3")
    found = read_tools_file(tmp_path / "tools.json")
    assert "age" in found.names
    options = SourceOptions.model_validate({"tasks": "mine.jsonl", "reward": "shaped"})
    assert options.reward == "shaped"


def test_the_tasks_that_it_counts_are_shipped() -> None:
    shipped = sorted(path.name for path in (ROOT / "examples" / "tasks").iterdir() if path.is_dir())
    (checked,) = (block for block in blocks(PAGE) if "env check examples/tasks" in block)
    assert [line.split()[0] for line in checked.splitlines()[1:-1]] == shipped
    assert "`examples/tasks/` has four." in prose(PAGE)
    assert len(shipped) == 4
