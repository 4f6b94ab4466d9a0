"""Tools of a box, as an agent calls them: what it sees, and what it did wrong."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from openclaw_rl.envs.sandbox.box import Box, BoxLimits
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from openclaw_rl.envs.tools import CALLS, MAX_SHOWN_CHARS, told, tool, use_tool
from openclaw_rl.types import Observation, Ran, ToolCall
from tests.fakes.boxes import boxes_of, sandbox_or_skip


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> BubblewrapSandbox:
    return sandbox_or_skip(tmp_path_factory.mktemp("scratch"))


@pytest_asyncio.fixture
async def box(sandbox: BubblewrapSandbox) -> AsyncIterator[Box]:
    async with boxes_of(sandbox) as boxes:
        yield await boxes.open(workdir="/app", limits=BoxLimits(memory_mb=256, disk_mb=16))


async def use(box: Box, name: str, *, command_s: float = 30.0, **arguments: object) -> Observation:
    call = ToolCall(id="1", name=name, arguments=json.dumps(arguments))
    return await use_tool(box, call, list(CALLS), workdir="/app", command_s=command_s)


async def says(box: Box, name: str, **arguments: Any) -> str:
    seen = await use(box, name, **arguments)
    assert not seen.is_error, seen.content
    return seen.content


async def fails(box: Box, name: str, **arguments: Any) -> str:
    seen = await use(box, name, **arguments)
    assert seen.is_error, seen.content
    return seen.content


def test_tools_are_offered_with_what_their_arguments_mean() -> None:
    offered = tool("view")
    assert offered.description == "Shows lines of a text file with their numbers."
    assert list(offered.parameters["properties"]) == ["path", "start", "num_lines"]
    assert offered.parameters["required"] == ["path"]
    assert offered.parameters["properties"]["start"]["minimum"] == 1
    assert all("description" in one for name in CALLS for one in tool(name).parameters["properties"].values())


async def test_a_shell_keeps_its_place_between_calls(box: Box) -> None:
    assert await says(box, "shell", command="mkdir d; cd d; X=5") == "[no output]"
    assert await says(box, "shell", command="pwd; echo $X") == "/app/d\n5"
    assert await says(box, "shell", command="echo no; exit 3") == "no\n[exit code 3]"
    assert await says(box, "shell", command="false") == "[exit code 1]"


async def test_a_command_that_takes_too_long_is_stopped(box: Box) -> None:
    seen = await use(box, "shell", command="echo begun; sleep 60", command_s=1)
    assert (seen.content, seen.is_error) == ("begun\n[stopped after 1 s; the shell is a new one]", True)
    assert await says(box, "shell", command="pwd") == "/app"


async def test_long_output_is_shortened_in_its_middle(box: Box) -> None:
    shown = await says(box, "shell", command="seq 10000")
    assert shown.startswith("1\n2\n")
    assert shown.endswith("9999\n10000")
    assert "characters left out]" in shown
    assert len(shown) < MAX_SHOWN_CHARS + 60


def test_output_that_was_cut_says_so() -> None:
    assert told(Ran(exit_code=0, output="a\n", is_cut=True), 5).content == "a\n[there was more]"


async def test_files_are_written_and_shown(box: Box) -> None:
    text = "".join(f"line {number}\n" for number in range(1, 6))
    assert await says(box, "write_file", path="deep/er/a.txt", content=text) == "wrote /app/deep/er/a.txt"
    assert await says(box, "view", path="/app/deep/er/a.txt", start=2, num_lines=2) == (
        "     2\tline 2\n     3\tline 3\n[2 more lines, from 4]"
    )
    assert (await says(box, "view", path="deep/er/a.txt", start=5)) == "     5\tline 5"
    assert await fails(box, "view", path="deep/er/a.txt", start=6) == "/app/deep/er/a.txt has 5 lines"
    await says(box, "write_file", path="empty", content="")
    assert await says(box, "view", path="empty") == "[an empty file]"
    await says(box, "write_file", path="no end", content="x")
    assert await says(box, "view", path="no end") == "     1\tx"


async def test_what_is_no_text_is_not_shown(box: Box) -> None:
    await box.write("/app/raw", b"\xff\xfe")
    assert await fails(box, "view", path="raw") == "/app/raw is no text in UTF-8"
    assert await fails(box, "view", path="none") == "there is no file /app/none"
    assert await fails(box, "view", path="/app") == "there is no file /app"
    await says(box, "shell", command="truncate -s 8M big")
    assert "at most 4194304 are read" in await fails(box, "view", path="big")


async def test_what_cannot_be_written_is_told(box: Box) -> None:
    assert "was not written: " in await fails(box, "write_file", path="/usr/x", content="")
    await says(box, "write_file", path="file", content="")
    assert "was not written: " in await fails(box, "write_file", path="file/x", content="")
    assert "was not written: " in await fails(box, "write_file", path="big", content="x" * (20 << 20))


async def test_a_passage_is_replaced_where_it_occurs_once(box: Box) -> None:
    await says(box, "write_file", path="a.py", content="x = 1\ny = 1\n")
    assert await says(box, "edit", path="a.py", old="x = 1", new="x = 2") == "wrote /app/a.py"
    assert await says(box, "view", path="a.py") == "     1\tx = 2\n     2\ty = 1"
    assert await fails(box, "edit", path="a.py", old=" = ", new="") == (
        "the passage occurs 2 times in /app/a.py; it must occur once"
    )
    assert "occurs 0 times" in await fails(box, "edit", path="a.py", old="z", new="")
    await says(box, "write_file", path="w.txt", content="a\r\nb\r\n")
    assert "Its lines end in \\r\\n" in await fails(box, "edit", path="w.txt", old="a\nb", new="")


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("shell", "{}", "shell: command: Field required"),
        ("shell", "ls", "shell: the arguments: Invalid JSON"),
        ("shell", '{"command": 5}', "shell: command: Input should be a valid string"),
        ("shell", '{"command": "a\\u0000b"}', "shell: command: a zero byte cannot be in it"),
        ("view", '{"path": "a", "start": 0}', "view: start: Input should be greater than or equal to 1"),
        ("write_file", '{"path": "", "content": "x"}', "write_file: path: String should have at least 1 character"),
        ("edit", '{"path": "a", "old": "", "new": "x"}', "edit: old: String should have at least 1 character"),
    ],
)
async def test_calls_that_are_none_are_told_why(box: Box, name: str, arguments: str, why: str) -> None:
    call = ToolCall(id="1", name=name, arguments=arguments)
    seen = await use_tool(box, call, list(CALLS), workdir="/app", command_s=30)
    assert seen.is_error
    assert seen.content.startswith(why)


async def test_a_tool_that_is_not_offered_is_none(box: Box) -> None:
    call = ToolCall(id="1", name="edit", arguments="{}")
    seen = await use_tool(box, call, ["shell", "view"], workdir="/app", command_s=30)
    assert (seen.content, seen.is_error) == ("there is no tool 'edit'; call shell or view", True)
