"""What is put comes back exactly, however its turns continue each other, and a long session stays small."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openclaw_rl.types import Feedback, FinishReason, Message, NextState, Tool, Turn
from tests.factories.turns import SESSION, make_conversation, make_session, make_turn
from tests.stores import ask, open_store, read_store
from tests.unit.store.drawn import conversations


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=conversations(), wait=st.booleans())
def test_random_turns_come_back(tmp_path: Path, turns: list[Turn], wait: bool) -> None:
    """`wait` decides whether a parent is on disk when its child is put: only then they may share."""
    directory = tmp_path / "data"
    shutil.rmtree(directory, ignore_errors=True)

    async def write() -> list[Turn | None]:
        async with await open_store(directory) as store:
            puts = [store.put_session(make_session())]
            for turn in turns:
                if wait:
                    await puts[-1]
                puts.append(store.put_turn(turn))
            await asyncio.gather(*puts)
            return [await store.get_turn(SESSION, turn.index) for turn in turns]

    assert asyncio.run(write()) == turns
    reader = read_store(directory)
    assert reader.turns(SESSION) == turns
    assert [reader.turn(SESSION, turn.index) for turn in turns] == turns


async def test_what_follows_a_turn_comes_back(tmp_path: Path) -> None:
    followed = NextState(
        session=SESSION,
        index=0,
        messages=(Message(role="tool", content="2", tool_call_id="c1"), Message(role="user", content="no, shorter")),
        arrived_at=120.0,
    )
    said = [
        Feedback(session=SESSION, index=0, user="ann", given_at=130.0, score=-1),
        Feedback(session=SESSION, index=0, user="ann", given_at=131.0, text="too long"),
    ]
    async with await open_store(tmp_path) as store:
        await asyncio.gather(
            store.put_session(make_session()),
            store.put_turn(make_turn()),
            store.put_next_state(followed),
            *map(store.put_feedback, said),
        )
    reader = read_store(tmp_path)
    assert reader.next_states(SESSION) == [followed]
    assert reader.next_state(SESSION, 0) == followed
    assert reader.next_state(SESSION, 1) is None
    assert reader.feedback(SESSION) == said


async def _put_all(directory: Path, turns: Sequence[Turn]) -> None:
    async with await open_store(directory) as store:
        await store.put_session(make_session())
        for turn in turns:
            await store.put_turn(turn)


def _column(directory: Path, column: str) -> list[int]:
    return [value for (value,) in ask(directory, f'SELECT {column} FROM turn ORDER BY "index"')]


async def test_a_long_session_is_stored_linearly(tmp_path: Path) -> None:
    turns = make_conversation(100)
    await _put_all(tmp_path, turns)
    assert sum(_column(tmp_path, "length(prompt_ids)")) == 4 * 40 * 100
    assert sum(_column(tmp_path, "length(messages)")) == 16 * len(turns[-1].messages)
    assert ask(tmp_path, "SELECT count(*) FROM message") == [(201,)]
    assert read_store(tmp_path).turns(SESSION) == turns


async def test_a_prompt_that_drops_the_answer_still_shares_the_prompt_before_it(tmp_path: Path) -> None:
    """Models that strip old reasoning render the history anew after the answer begins."""
    first = make_turn(0, prompt_ids=(1, 2, 3), token_ids=(4, 5))
    second = make_turn(1, parent=0, prompt_ids=(1, 2, 3, 5, 6))
    await _put_all(tmp_path, [first, second])
    assert _column(tmp_path, "prompt_shared") == [0, 3]
    assert read_store(tmp_path).turns(SESSION) == [first, second]


@pytest.mark.parametrize("finish_reason", ["abort", "error"])
async def test_nothing_is_shared_with_a_turn_that_may_be_replaced(tmp_path: Path, finish_reason: FinishReason) -> None:
    before, after = make_conversation(2)
    attempt = replace(before, completion=replace(before.completion, finish_reason=finish_reason))
    retried = replace(make_turn(0, token_ids=(7, 8, 9), text="another"), prompt_ids=(5, 5, 5))
    await _put_all(tmp_path, [attempt, after, retried])
    assert read_store(tmp_path).turns(SESSION) == [retried, after]


async def test_nothing_is_shared_with_a_refused_turn(tmp_path: Path) -> None:
    """A second complete answer under a name is refused; a child of it must not lean on what is not there."""
    stored = make_turn(0, prompt_ids=(1, 2), token_ids=(3,))
    other = make_turn(0, prompt_ids=(1, 2), token_ids=(4,), text="other")
    child = make_turn(1, parent=0, prompt_ids=(1, 2, 4, 9))
    async with await open_store(tmp_path) as store:
        puts = [store.put_session(make_session()), *map(store.put_turn, (stored, other, child))]
        results = await asyncio.gather(*puts, return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["NoneType", "NoneType", "StoreError", "NoneType"]
    assert read_store(tmp_path).turns(SESSION) == [stored, child]


async def test_a_turn_is_rebuilt_from_its_own_branch(tmp_path: Path) -> None:
    root, left = make_conversation(2)
    right = make_turn(
        2, parent=0, prompt_ids=(*root.prompt_ids, *root.completion.token_ids, 77), messages=root.messages
    )
    leaf = make_turn(3, parent=2, prompt_ids=(*right.prompt_ids, *right.completion.token_ids, 78))
    await _put_all(tmp_path, [root, left, right, leaf])
    assert _column(tmp_path, "prompt_shared")[2:] == [80, 84]
    assert read_store(tmp_path).turn(SESSION, 3) == leaf


async def test_tools_are_stored_once(tmp_path: Path) -> None:
    tool = Tool(name="read", description="reads a file", parameters={"type": "object"})
    await _put_all(tmp_path, [make_turn(0, tools=(tool,)), make_turn(1, tools=(tool,))])
    bodies = [body for (body,) in ask(tmp_path, "SELECT body FROM message")]
    assert sum(b"reads a file" in body for body in bodies) == 1
