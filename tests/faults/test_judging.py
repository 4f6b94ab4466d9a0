"""kill -9 of a process that judges and credits: every turn gets one judgement and one credit, counted once.

A store is filled once, and worked off without a kill for comparison; then from the same start again and again, killed
at named places or at any time, until a run comes to its end: that one, which nobody kills, is in this process.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.protocols import Renderer
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import (
    Completion,
    Feedback,
    Message,
    NextState,
    Sampling,
    Session,
    ToolCall,
    Turn,
    VersionSpan,
    turn_id,
)
from tests.faults.judging_child import LEARNING, MODEL_ID
from tests.faults.judging_child import main as work_off

ROOT = Path(__file__).parents[2]
NUM_SESSIONS = 12
PLACES = [
    *((name, 2 if name.startswith("judge.") else 20) for name in LEARNING),
    *(pytest.param(name, 1, marks=pytest.mark.hardening) for name in LEARNING),
]
"""A batch has up to 16 turns, so the twentieth judgement is in the second batch."""

USER, TOOL = "user", "tool"
REACTIONS = (
    (USER, "No, shorter please."),
    (USER, "Perfect, thank you!"),
    (TOOL, "Traceback (most recent call last):\nFileNotFoundError: no such file: notes.txt"),
    (USER, "And the next one?"),
    (USER, "That's wrong, use French instead."),
)

pytestmark = pytest.mark.timeout(300)


def _turns(session: str, renderer: Renderer) -> list[Turn]:
    """A conversation with real ids in which each of REACTIONS follows one answer."""
    turns: list[Turn] = []
    messages: tuple[Message, ...] = (Message(role="user", content=f"Tell me about {session}."),)
    for index, (role, _) in enumerate(REACTIONS):
        calls = (ToolCall(id="call_1", name="read", arguments='{"path": "notes.txt"}'),) if role == TOOL else ()
        said = "" if calls else f"Here is answer number {index} about {session}."
        ids = tuple(renderer.encode(said or "<tool_call>"))
        turns.append(
            Turn(
                session=session,
                index=index,
                parent=index - 1 if index else None,
                kind="main",
                created_at=100.0 + index,
                finished_at=100.5 + index,
                dialect="chat",
                model=MODEL_ID,
                messages=messages,
                tools=(),
                sampling=Sampling(max_tokens=64),
                prompt_ids=tuple(renderer.render(messages, (), {})),
                completion=Completion(
                    token_ids=ids,
                    logprobs=(-0.5,) * len(ids),
                    finish_reason="tool_calls" if calls else "stop",
                    version_spans=(VersionSpan("v0", 0, len(ids)),),
                ),
                message=Message(role="assistant", content=said, tool_calls=calls),
                request_digest=f"request {session} {index}",
                chain=f"chain {session} {index}",
            )
        )
        messages = (*messages, turns[-1].message, _reaction(index))
    return turns


def _reaction(index: int) -> Message:
    role, text = REACTIONS[index]
    return (
        Message(role="tool", content=text, tool_call_id="call_1")
        if role == TOOL
        else Message(role="user", content=text)
    )


async def _fill(directory: Path, renderer: Renderer) -> None:
    async with await SqliteStore.open(directory) as store:
        for number in range(NUM_SESSIONS):
            session = f"s-{number:02}"
            user = ("ann", "ben")[number % 2]
            await store.put_session(Session(id=session, user=user, client="test", opened_at=100.0, last_seen_at=110.0))
            for turn in _turns(session, renderer):
                await store.put_turn(turn)
                state = NextState(
                    session=session, index=turn.index, messages=(_reaction(turn.index),), arrived_at=101.0 + turn.index
                )
                await store.put_next_state(state)
            if number % 3 == 0:
                liked = Feedback(session=session, index=3, user=user, given_at=200.0, score=1, text="Nice and calm.")
                await store.put_feedback(liked)


def _start(directory: Path, crash_at: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.judging_child", str(directory)],
        cwd=ROOT,
        env={**os.environ, "OPENCLAW_RL_CRASH_AT": crash_at},
        stdout=subprocess.PIPE,
        bufsize=0,
    )


def _end(child: subprocess.Popen[bytes]) -> int:
    child.communicate(timeout=120)
    return child.returncode


def _rows(directory: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{directory / 'store.sqlite3'}?mode=ro", uri=True)) as database:
        return database.execute(query).fetchall()


JUDGEMENTS = (
    'SELECT session, "index", num_evidence, judge, outcome, score, reason, hints, votes FROM judgement ORDER BY 1, 2, 3'
)
CREDITS = 'SELECT session, "index", num_evidence, rule, reward, skip FROM credit ORDER BY 1, 2'
SAMPLES = (
    "SELECT id, line, kind, prompt_index, reward, w_rl, w_opd, on_policy, loss_mask, candidates FROM sample ORDER BY 1"
)
BASELINES = "SELECT line, turn_kind, count, mean FROM baseline ORDER BY 1, 2"
OPEN_TASKS = "SELECT * FROM task WHERE wanted > done"


def _check_same(directory: Path, expected: Path) -> None:
    """Advantages are left out: they depend on the order in which rewards were counted, and the mean does not."""
    for query in (JUDGEMENTS, CREDITS, SAMPLES):
        assert _rows(directory, query) == _rows(expected, query)
    found, wanted = _rows(directory, BASELINES), _rows(expected, BASELINES)
    assert [row[:3] for row in found] == [row[:3] for row in wanted]
    assert [row[3] for row in found] == pytest.approx([row[3] for row in wanted])
    assert _rows(directory, OPEN_TASKS) == []


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, renderer: Renderer) -> Path:
    directory = tmp_path_factory.mktemp("filled")
    asyncio.run(_fill(directory, renderer))
    return directory


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, filled: Path) -> Path:
    directory = tmp_path_factory.mktemp("undisturbed")
    shutil.copytree(filled, directory, dirs_exist_ok=True)
    asyncio.run(work_off(directory))
    return directory


def test_without_a_kill_every_turn_is_judged_and_credited(undisturbed: Path) -> None:
    """What the others are compared with is not empty."""
    names = [turn_id(f"s-{number:02}", index) for number in range(NUM_SESSIONS) for index in range(len(REACTIONS))]
    judged = _rows(undisturbed, JUDGEMENTS)
    assert [turn_id(*row[:2]) for row in judged] == names
    assert {row[2] for row in judged if row[1] == 3} == {1, 2}, "feedback is a second piece of evidence"
    credited = _rows(undisturbed, CREDITS)
    assert [turn_id(*row[:2]) for row in credited] == names
    scores = {row[1]: row[5] for row in judged if row[0] == "s-01"}
    assert (scores[0], scores[1], scores[2]) == (-1, 1, -1)
    assert _distinct(credited, 5) > {None}
    rewards = [row for row in credited if row[4] is not None]
    assert sum(row[2] for row in _rows(undisturbed, BASELINES)) == len(rewards)
    assert _distinct(_rows(undisturbed, SAMPLES), 2) == {"turn", "rewrite"}


def _distinct(rows: Iterable[tuple[Any, ...]], column: int) -> set[Any]:
    return {row[column] for row in rows}


@pytest.mark.parametrize(("place", "passes"), PLACES)
def test_killed_at_a_named_place(tmp_path: Path, filled: Path, undisturbed: Path, place: str, passes: int) -> None:
    directory = tmp_path / "store"
    shutil.copytree(filled, directory)
    assert _end(_start(directory, f"{place}:{passes}")) == -signal.SIGKILL, f"it did not die at {place}:{passes}"
    asyncio.run(work_off(directory))
    _check_same(directory, undisturbed)


@pytest.mark.parametrize("num_kills", [4, pytest.param(24, marks=pytest.mark.hardening)])
def test_killed_at_any_time(tmp_path: Path, filled: Path, undisturbed: Path, num_kills: int) -> None:
    dice = random.Random(4)
    directory = tmp_path / "store"
    shutil.copytree(filled, directory)
    for _ in range(num_kills):
        child = _start(directory)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(dice.uniform(0.0, 0.15))
        child.kill()
        child.communicate(timeout=60)
    asyncio.run(work_off(directory))
    _check_same(directory, undisturbed)
