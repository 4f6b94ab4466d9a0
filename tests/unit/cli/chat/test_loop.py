"""The chat over a gateway that a test controls: what it remembers, sends, shows and survives."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from rich.console import Console

from openclaw_rl.cli.chat.loop import ChatLoop
from openclaw_rl.cli.chat.view import View
from openclaw_rl.cli.client import GatewayClient, ServerRefused
from tests.unit.cli.gateway import DROP, HANG, KEY, FakeGateway, chunk, end, text


@dataclass
class Screen:
    """What a chat through a pipe wrote to standard output and standard error."""

    out: io.StringIO
    err: io.StringIO

    def view(self) -> View:
        out, err = (Console(file=file, width=200, highlight=False) for file in (self.out, self.err))
        return View(out, err, live=False, url="http://test")


@pytest.fixture
def screen() -> Screen:
    return Screen(io.StringIO(), io.StringIO())


@pytest.fixture
async def gateway() -> AsyncIterator[FakeGateway]:
    async with FakeGateway().running() as gateway:
        yield gateway


@pytest.fixture
async def chat(gateway: FakeGateway, screen: Screen) -> AsyncIterator[ChatLoop]:
    async with GatewayClient(gateway.url, KEY) as client:
        chat = ChatLoop(client, screen.view())
        await chat.connect()
        yield chat


async def test_a_conversation_grows_and_each_answer_is_shown(
    chat: ChatLoop, gateway: FakeGateway, screen: Screen
) -> None:
    gateway.answers = [[*text("Hel", "lo"), *end(2)], [*text("Fine\n"), *end(1)]]
    assert await chat.obey("hi\n")
    assert await chat.obey("how are you?")
    assert [message["content"] for message in gateway.requests[1]["messages"]] == ["hi", "Hello", "how are you?"]
    assert gateway.requests[1]["model"] == "tiny"
    assert gateway.sessions[0] == gateway.sessions[1]
    assert screen.out.getvalue() == "Hello\nFine\n"
    first, second = screen.err.getvalue().splitlines()
    assert first.startswith(f"v3 · {gateway.sessions[0]}.0 · 2 tokens · ")
    assert " · 1 token · " in second
    assert chat.num_failed == 0


async def test_new_starts_over_under_another_name(chat: ChatLoop, gateway: FakeGateway) -> None:
    gateway.answers = [[*text("a"), *end(1)], [*text("b"), *end(1)]]
    for line in ("one", "/new", "two"):
        await chat.obey(line)
    assert gateway.requests[1]["messages"] == [{"role": "user", "content": "two"}]
    assert gateway.sessions[0] != gateway.sessions[1]


async def test_what_is_private_is_asked_not_to_be_learned_from(
    chat: ChatLoop, gateway: FakeGateway, screen: Screen
) -> None:
    gateway.answers = [[*text("a"), *end(1)] for _ in range(4)]
    for line in ("one", "/private", "two", "/new", "three", "/private", "four"):
        await chat.obey(line)
    assert gateway.wishes == [None, "session", "session", None]
    first, second, third, fourth = gateway.sessions
    assert first == second
    assert len({second, third, fourth}) == 3
    assert [len(request["messages"]) for request in gateway.requests] == [1, 3, 1, 1]
    shown = screen.err.getvalue()
    assert "nothing is learned from this conversation, nor from what was said in it before" in shown
    assert "A new conversation, private like the last." in shown
    assert "What was private stays private. A new conversation, and this one is learned from." in shown
    assert [line.endswith(" · private") for line in shown.splitlines() if line.startswith("v3")] == [0, 1, 1, 0]


async def test_nothing_is_said_about_a_private_answer(chat: ChatLoop, gateway: FakeGateway, screen: Screen) -> None:
    gateway.answers = [[*text("a"), *end(1)]]
    for line in ("/private", "one", "/bad too long"):
        await chat.obey(line)
    assert (gateway.feedback, chat.num_failed) == ([], 1)
    assert "/private leaves it" in screen.err.getvalue()


async def test_help_lists_every_command(chat: ChatLoop, screen: Screen) -> None:
    await chat.obey("/help")
    assert "/private" in screen.err.getvalue()


async def test_feedback_is_about_the_last_answer(chat: ChatLoop, gateway: FakeGateway) -> None:
    gateway.answers = [[*text("a"), *end(1)], [*text("b"), *end(1)]]
    for line in ("one", "/good", "two", "/bad too short"):
        await chat.obey(line)
    assert gateway.feedback == [
        {"turn_id": f"{gateway.sessions[0]}.0", "rating": "good", "text": ""},
        {"turn_id": f"{gateway.sessions[0]}.1", "rating": "bad", "text": "too short"},
    ]


@pytest.mark.parametrize("line", ["/good", "/bad no", "/bda", "/bad"])
async def test_mistakes_are_told_and_sent_nowhere(
    chat: ChatLoop, gateway: FakeGateway, screen: Screen, line: str
) -> None:
    await chat.obey(line)
    assert screen.err.getvalue().startswith("error: ")
    assert (chat.num_failed, gateway.feedback, gateway.requests) == (1, [], [])


@pytest.mark.parametrize("failure", [(503, "no engine came up"), [*text("par"), DROP], [*text("par")]])
async def test_what_failed_is_forgotten_so_that_asking_again_is_the_same_request(
    chat: ChatLoop, gateway: FakeGateway, screen: Screen, failure: list[bytes] | tuple[int, str]
) -> None:
    gateway.answers = [[*text("first"), *end(1)], failure, [*text("whole"), *end(1)]]
    for line in ("one", "two", "two"):
        assert await chat.obey(line)
    assert gateway.requests[1] == gateway.requests[2]
    assert chat.num_failed == 1
    assert "error: " in screen.err.getvalue()
    assert screen.out.getvalue().endswith("\nwhole\n")


async def test_a_stopped_answer_stays_in_the_conversation(chat: ChatLoop, gateway: FakeGateway, screen: Screen) -> None:
    gateway.answers = [[*text("only ", "half"), HANG], [*text("on"), *end(1)]]
    asking = asyncio.create_task(chat.obey("tell"))
    await gateway.is_hanging.wait()
    while "half" not in screen.out.getvalue():  # noqa: ASYNC110 (a file has no event to wait for)
        await asyncio.sleep(0)
    asking.cancel()
    assert await asking is False
    assert screen.out.getvalue() == "only half\n"
    assert "stopped" in screen.err.getvalue()
    await chat.obey("go on")
    assert [message["content"] for message in gateway.requests[1]["messages"]] == ["tell", "only half", "go on"]


async def test_stopping_before_the_first_word_leaves_nothing(chat: ChatLoop, gateway: FakeGateway) -> None:
    gateway.answers = [[HANG], [*text("on"), *end(1)]]
    asking = asyncio.create_task(chat.obey("tell"))
    await gateway.is_hanging.wait()
    asking.cancel()
    assert await asking is False
    await chat.obey("anew")
    assert gateway.requests[1]["messages"] == [{"role": "user", "content": "anew"}]


async def test_an_answer_cannot_steer_the_terminal_nor_be_read_as_markup(
    chat: ChatLoop, gateway: FakeGateway, screen: Screen
) -> None:
    gateway.answers = [[*text("\x1b[2J[bold]", "\x07ok"), *end(1)]]
    await chat.obey("hi")
    assert screen.out.getvalue() == "[2J[bold]ok\n"


async def test_thoughts_stay_out_of_a_pipe(chat: ChatLoop, gateway: FakeGateway, screen: Screen) -> None:
    gateway.answers = [[chunk({"reasoning_content": "hm"}), *text("yes"), *end(2, "length")]]
    await chat.obey("hi")
    assert screen.out.getvalue() == "yes\n"
    assert "cut off" in screen.err.getvalue()


async def test_a_server_that_is_not_ready_is_announced(gateway: FakeGateway, screen: Screen) -> None:
    gateway.waiting_for = "the engine is starting"
    async with GatewayClient(gateway.url, KEY) as client:
        await ChatLoop(client, screen.view()).connect()
    assert "the engine is starting" in screen.err.getvalue()


async def test_a_wrong_key_is_refused_before_the_first_word(gateway: FakeGateway, screen: Screen) -> None:
    async with GatewayClient(gateway.url, "wrong") as client:
        with pytest.raises(ServerRefused, match="--key"):
            await ChatLoop(client, screen.view()).connect()
