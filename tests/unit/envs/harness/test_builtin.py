"""The small agent of ours against the real gateway: what it calls, when it ends, and what the store then holds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from openclaw_rl.envs.harness.builtin import BuiltinAgent
from openclaw_rl.errors import EnvError
from openclaw_rl.protocols import Harness
from openclaw_rl.types import Door, Message, Observation, Opening, ToolCall, Turn
from tests.fakes.rooms import RUN, SUBMIT, FakeRoom, opening
from tests.server import Server
from tests.wire.asking import eventually, reader, replies

WINDOW = 900


def call(command: str) -> str:
    return f'<tool_call>\n{{"name": "run", "arguments": {{"command": "{command}"}}}}\n</tool_call>'


SCRIPT = replies(
    (r"<tool_response>\s*go on (\d+)", call(r"again \1")),
    (r"<tool_response>\s*all is (\w+)", r"It is \1."),
    (r"<tool_response>", "Done."),
    ("do both", f"{call('one')}\n{call('two')}"),
    ("write badly", '<tool_call>\n{"name": "run", "arguments": {"command": "oh" no}}\n</tool_call>'),
    ("ramble", "word " * 3000),
    ("do it", call("look")),
    (".", "There is nothing to do."),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server") / "data", f"engine.context_window={WINDOW}", SCRIPT) as running:
        yield running


@pytest.fixture
def door(server: Server) -> Door:
    return Door(url=server.url, key=server.key, model="any")


def agent(*, max_turns: int = 10, max_steps: int = 50) -> BuiltinAgent:
    return BuiltinAgent(max_turns=max_turns, max_steps=max_steps)


def newest(server: Server) -> list[Turn]:
    """The turns of the attempt that ended last."""

    def look() -> list[Turn]:
        summary = max(reader(server).sessions(), key=lambda each: each.session.opened_at)
        return reader(server).turns(summary.session.id)

    return eventually(look)


async def test_calls_reach_the_room_and_their_results_the_model(server: Server, door: Door) -> None:
    async def step(_: ToolCall) -> Observation:
        return Observation(content="all is well")

    room = FakeRoom(step)
    harness: Harness = agent()
    assert await harness.attempt(room, opening("please do it"), door) == "finished"
    assert [(made.name, json.loads(made.arguments)) for made in room.calls] == [("run", {"command": "look"})]
    asked, told = newest(server)
    assert [(turn.index, turn.parent, turn.kind) for turn in (asked, told)] == [(0, None, "main"), (1, 0, "main")]
    assert told.message.content == "It is well."
    before = asked.prompt_ids + asked.completion.token_ids
    assert told.prompt_ids[: len(before)] == before
    [state] = reader(server).next_states(asked.session)
    assert [(message.role, message.content) for message in state.messages] == [("tool", "all is well")]


async def test_attempts_at_once_are_sessions_of_their_own(server: Server, door: Door) -> None:
    num_before = len(reader(server).sessions())
    harness, rooms = agent(), [FakeRoom() for _ in range(4)]
    ends = await asyncio.gather(*(harness.attempt(room, opening("please do it"), door) for room in rooms))
    assert ends == ["finished"] * 4
    assert [len(room.calls) for room in rooms] == [1] * 4
    assert len(reader(server).sessions()) == num_before + 4


async def test_the_last_words_are_submitted_where_there_is_a_tool_for_that(door: Door) -> None:
    room = FakeRoom()
    await agent().attempt(room, opening("say “ä”", SUBMIT, RUN), door)
    [handed] = room.calls
    assert (handed.name, json.loads(handed.arguments)) == ("submit", {"answer": "There is nothing to do."})
    room = FakeRoom()
    await agent().attempt(room, opening("say “ä”", RUN), door)
    assert room.calls == []


async def test_parallel_calls_are_made_in_order_and_all_are_answered(server: Server, door: Door) -> None:
    async def step(made: ToolCall) -> Observation:
        return Observation(content=f"saw {json.loads(made.arguments)['command']}")

    room = FakeRoom(step)
    assert await agent().attempt(room, opening("do both"), door) == "finished"
    assert [json.loads(made.arguments)["command"] for made in room.calls] == ["one", "two"]
    last = newest(server)[-1]
    told = [(message.content, message.tool_call_id) for message in last.messages if message.role == "tool"]
    assert told == [(f"saw {name}", made.id) for name, made in zip(("one", "two"), room.calls, strict=True)]


async def test_the_room_may_end_the_attempt_between_two_calls(door: Door) -> None:
    async def step(_: ToolCall) -> Observation:
        return Observation(content="over", is_done=True)

    room = FakeRoom(step)
    assert await agent().attempt(room, opening("do both", RUN, SUBMIT), door) == "finished"
    assert [made.name for made in room.calls] == ["run"]


async def test_arguments_that_are_no_json_go_to_the_room_as_they_are(door: Door) -> None:
    async def step(made: ToolCall) -> Observation:
        with pytest.raises(json.JSONDecodeError):
            json.loads(made.arguments)
        return Observation(content="these arguments are no JSON", is_error=True)

    room = FakeRoom(step)
    assert await agent().attempt(room, opening("write badly"), door) == "finished"
    assert len(room.calls) == 1


async def test_answers_and_calls_are_counted(server: Server, door: Door) -> None:
    async def step(_: ToolCall) -> Observation:
        return Observation(content="go on 1")

    room = FakeRoom(step)
    assert await agent(max_turns=3).attempt(room, opening("please do it"), door) == "max_turns"
    assert len(room.calls) == len(newest(server)) == 3
    room = FakeRoom(step)
    assert await agent(max_steps=2).attempt(room, opening("please do it"), door) == "max_turns"
    assert len(room.calls) == 2
    assert len(newest(server)) == 3


async def test_the_clock_ends_an_attempt(door: Door) -> None:
    async def step(_: ToolCall) -> Observation:
        await asyncio.Event().wait()
        raise AssertionError

    assert await agent().attempt(FakeRoom(step), opening("please do it", timeout_s=0.5), door) == "timeout"


async def test_a_time_limit_of_the_room_is_not_the_agents(door: Door) -> None:
    async def step(_: ToolCall) -> Observation:
        raise TimeoutError("the room's own")

    with pytest.raises(TimeoutError, match="own"):
        await agent().attempt(FakeRoom(step), opening("please do it"), door)


async def test_whole_turns_are_left_out_where_the_window_is_full(server: Server, door: Door) -> None:
    numbers = iter(range(1, 10))

    async def step(_: ToolCall) -> Observation:
        number = next(numbers)
        return Observation(content="all is well" if number == 9 else f"go on {number} " + "and on " * 60)

    assert await agent(max_turns=10).attempt(FakeRoom(step), opening("please do it"), door) == "finished"
    turns = newest(server)
    # One answer had no room to end in: it is not in the history, and was asked for again with less before it.
    assert [turn.completion.finish_reason for turn in turns].count("length") == 1
    assert len(turns) == 11
    shortened = [[message.content for message in turn.messages] for turn in turns]
    markers = [text[1] for text in shortened if len(text) > 1 and "left out" in text[1]]
    assert markers
    assert markers[0] in ("[1 earlier steps left out]", "[2 earlier steps left out]")
    assert {text[0] for text in shortened} == {"please do it"}
    assert turns[-1].message.content == "It is well."


async def test_what_no_window_holds_ends_the_attempt(door: Door) -> None:
    async def step(_: ToolCall) -> Observation:
        return Observation(content="1 2 3 4 5 6 7 8 9 " * 100)

    assert await agent().attempt(FakeRoom(step), opening("please do it"), door) == "context"


async def test_a_task_that_no_window_holds_is_not_the_agents_fault(door: Door) -> None:
    with pytest.raises(EnvError, match=f"does not fit the model's window.*{WINDOW}"):
        await agent().attempt(FakeRoom(), opening("1 2 3 4 5 6 7 8 9 " * 100), door)


async def test_an_answer_that_was_cut_by_the_window_is_the_last_one_where_nothing_can_be_left_out(door: Door) -> None:
    assert await agent().attempt(FakeRoom(), opening("ramble"), door) == "finished"


async def test_long_results_are_cut(server: Server, door: Door) -> None:
    async def step(_: ToolCall) -> Observation:
        return Observation(content="x" * 5000)

    assert await agent().attempt(FakeRoom(step), opening("please do it"), door) == "finished"
    [result] = [message.content for message in newest(server)[-1].messages if message.role == "tool"]
    assert result == f"{'x' * 450}\n[{5000 - WINDOW} characters left out]\n{'x' * 450}"


async def test_a_result_that_is_no_unicode_is_told_as_well_as_it_can_be(server: Server, door: Door) -> None:
    async def step(_: ToolCall) -> Observation:
        return Observation(content="half \ud800 é")

    assert await agent().attempt(FakeRoom(step), opening("please do it"), door) == "finished"
    assert [message.content for message in newest(server)[-1].messages if message.role == "tool"] == ["half ? é"]


async def test_a_system_message_of_the_opening_is_told(server: Server, door: Door) -> None:
    messages = (Message(role="system", content="Be brief."), Message(role="user", content="hello"))
    assert await agent().attempt(FakeRoom(), Opening(messages=messages), door) == "finished"
    [turn] = newest(server)
    assert [message.content for message in turn.messages] == ["Be brief.", "hello"]


def test_it_needs_nothing_in_the_box() -> None:
    assert agent().programs() == {}
