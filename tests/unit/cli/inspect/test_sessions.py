"""`sessions` and `inspect` over a real store."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.inspect.sessions import show_session, show_sessions
from openclaw_rl.config import Config, StoreConfig, load_config
from openclaw_rl.errors import OpenClawError, StoreError
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import Feedback, Message, NextState, Skip, Tool, ToolCall
from openclaw_rl.views.sessions import choose_session
from tests.factories.turns import make_conversation, make_session, make_turn

CAPS = pytest.CaptureFixture[str]


@pytest.fixture
async def data_dir(tmp_path: Path) -> Path:
    """A session of two main turns, a branch that calls a tool and a side turn; and an older one without turns."""
    first, second = make_conversation(2, words=3)
    called = Message(role="assistant", tool_calls=(ToolCall(id="c1", name="ls", arguments='{"path":"."}'),))
    branch = replace(
        make_turn(2, parent=0, finish_reason="tool_calls"), message=called, tools=(Tool(name="ls", description="list"),)
    )
    side = make_turn(3, kind="side", skip=Skip.SIDE_TURN, text="\x1b[31m[bold]title[/]")
    thanks = (Message(role="tool", content="a b", tool_call_id="c1"), Message(role="user", content="thanks"))
    async with await SqliteStore.open(tmp_path) as store:
        await store.put_session(make_session(last_seen_at=200.0, key="mine", client="[red]curl"))
        await store.put_session(make_session("s-2", user="bob", closed_at=150.0))
        for turn in (first, second, branch, side):
            await store.put_turn(turn)
        await store.put_next_state(NextState(session="s-1", index=1, messages=thanks, arrived_at=110.0))
        await store.put_feedback(Feedback(session="s-1", index=1, user="ann", given_at=111.0, score=1))
        await store.put_feedback(Feedback(session="s-1", index=1, user="ann", given_at=112.0, text="short, good"))
    return tmp_path


def settings(data_dir: Path) -> Config:
    return load_config(env={}, overrides=[f"store.data_dir={data_dir}"]).config


def inspect_json(data_dir: Path, name: str, capsys: CAPS, index: int | None = None) -> Any:
    show_session(settings(data_dir), name, index=index, as_json=True)
    return json.loads(capsys.readouterr().out)


async def test_sessions_as_json(data_dir: Path, capsys: CAPS) -> None:
    show_sessions(StoreConfig(data_dir=data_dir), user=None, limit=None, as_json=True)
    first, second = json.loads(capsys.readouterr().out)
    assert first == {
        "id": "s-1",
        "user": "ann",
        "client": "[red]curl",
        "key": "mine",
        "opened_at": 100.0,
        "last_seen_at": 200.0,
        "closed_at": None,
        "opted_out": False,
        "main_turns": 3,
        "side_turns": 1,
        "tokens": 12,
        "versions": ["v0"],
    }
    assert (second["id"], second["main_turns"], second["closed_at"], second["versions"]) == ("s-2", 0, 150.0, [])


async def test_sessions_of_one_user_and_the_last_ones(data_dir: Path, capsys: CAPS) -> None:
    show_sessions(StoreConfig(data_dir=data_dir), user="bob", limit=None, as_json=True)
    show_sessions(StoreConfig(data_dir=data_dir), user=None, limit=1, as_json=True)
    bobs, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert ([s["id"] for s in bobs], [s["id"] for s in last]) == (["s-2"], ["s-1"])


async def test_sessions_as_a_table(data_dir: Path, capsys: CAPS) -> None:
    show_sessions(StoreConfig(data_dir=data_dir), user=None, limit=None, as_json=False)
    head, first, second, blank, note = capsys.readouterr().out.splitlines()
    assert (blank, note) == ("", "Turns that wait: 1 for the judge")
    assert head.split() == ["session", "user", "client", "main", "side", "tokens", "versions", "last", "seen"]
    assert first.split()[:7] == ["s-1", "ann", "[red]curl", "3", "1", "12", "v0"]
    assert second.rstrip().endswith("ago closed")


async def test_no_sessions_and_no_store(tmp_path: Path, capsys: CAPS) -> None:
    with pytest.raises(StoreError, match="openclaw-rl up"):
        show_sessions(StoreConfig(data_dir=tmp_path), user=None, limit=None, as_json=True)
    async with await SqliteStore.open(tmp_path):
        pass
    show_sessions(StoreConfig(data_dir=tmp_path), user=None, limit=None, as_json=True)
    show_sessions(StoreConfig(data_dir=tmp_path), user=None, limit=None, as_json=False)
    as_json, as_text = capsys.readouterr().out.splitlines()
    assert as_json == "[]"
    assert "openclaw-rl chat" in as_text


async def test_a_session_as_json_holds_every_id_and_word(data_dir: Path, capsys: CAPS) -> None:
    shown = inspect_json(data_dir, "s-1", capsys)
    assert (shown["id"], shown["user"], shown["closed_at"]) == ("s-1", "ann", None)
    expected = make_conversation(2, words=3)[1]
    turn = shown["turns"][1]
    assert turn == {
        "id": "s-1.1",
        "index": 1,
        "parent": "s-1.0",
        "kind": "main",
        "dialect": "chat",
        "model": "smollm2",
        "created_at": 101.0,
        "finished_at": 101.5,
        "request": [message.to_json() for message in expected.messages],
        "tools": [],
        "sampling": expected.sampling.to_json(),
        "stop": [],
        "text": expected.message.content,
        "message": {"role": "assistant", "content": expected.message.content},
        "prompt_ids": list(expected.prompt_ids),
        "num_prefill": 0,
        "token_ids": list(expected.completion.token_ids),
        "logprobs": [-0.25, -0.5, -0.75],
        "version_spans": [{"version": "v0", "start": 0, "end": 3}],
        "finish_reason": "stop",
        "delivered": False,
        "skip": None,
        "next_state": [
            {"role": "tool", "content": "a b", "tool_call_id": "c1"},
            {"role": "user", "content": "thanks"},
        ],
        "feedback": [
            {"user": "ann", "given_at": 111.0, "score": 1, "text": ""},
            {"user": "ann", "given_at": 112.0, "score": None, "text": "short, good"},
        ],
        "judgement": None,
        "credit": None,
        "samples": [],
    }
    assert shown["learning"] == {"paused": None, "training_paused": None, "unjudged": 1, "uncredited": 0}
    assert [t["parent"] for t in shown["turns"]] == [None, "s-1.0", "s-1.0", None]
    assert [t["next_state"] is None for t in shown["turns"]] == [True, False, True, True]
    assert shown["turns"][2]["tools"][0]["function"]["name"] == "ls"
    assert shown["turns"][3]["skip"] == "side_turn"


async def test_one_turn(data_dir: Path, capsys: CAPS) -> None:
    for shown in (inspect_json(data_dir, "s-1", capsys, index=1), inspect_json(data_dir, "s-1.1", capsys)):
        assert [turn["index"] for turn in shown["turns"]] == [1]
        assert len(shown["turns"][0]["next_state"]) == 2
    with pytest.raises(OpenClawError, match=r"no turn s-1\.9"):
        show_session(settings(data_dir), "s-1.9", index=None, as_json=True)


async def test_a_session_as_text(data_dir: Path, capsys: CAPS) -> None:
    show_session(settings(data_dir), "mine", index=None, as_json=False)
    text = capsys.readouterr().out
    blocks = text.split("\n\n")
    assert blocks[0].startswith("s-1  ann · [red]curl · seen ")
    assert blocks[0].endswith("named mine\nTurns that wait: 1 for the judge")
    assert blocks[1].startswith("#0  main")
    assert "question 0 question 0 question 0" in blocks[1]
    assert "3 + 3 tokens  stop" in blocks[1]
    assert blocks[2].startswith("#1  main")
    assert "tool: a b" in blocks[2]
    assert "user: thanks" in blocks[2]
    assert "+1 ann\n" in blocks[2]
    assert "ann: short, good" in blocks[2]
    assert blocks[3].startswith("#2 ← #0  main")
    assert '→ ls({"path":"."})' in blocks[3]
    assert blocks[4].startswith("#3 (root)  side")
    assert "not trained: side_turn" in blocks[4]
    assert "[31m[bold]title[/]" in blocks[4]
    assert "\x1b" not in text


async def test_one_turn_as_text_is_uncut(data_dir: Path, capsys: CAPS) -> None:
    async with await SqliteStore.open(data_dir) as store:
        await store.put_turn(make_turn(4, text="word " * 100 + "end", messages=make_conversation(2)[1].messages))
    show_session(settings(data_dir), "s-1", index=None, as_json=False)
    assert "end" not in capsys.readouterr().out.split("#4")[1]
    show_session(settings(data_dir), "s-1", index=4, as_json=False)
    whole = capsys.readouterr().out
    assert "be kind" in whole
    assert whole.rstrip().endswith("word end")


SESSIONS = [make_session("s-abc1"), make_session("s-abc2"), make_session("x.7", key="named"), make_session("x")]


@pytest.mark.parametrize(
    ("name", "session", "index"),
    [
        ("s-abc1", "s-abc1", None),
        ("named", "x.7", None),
        ("x.7", "x.7", None),
        ("x.7.3", "x.7", 3),
        ("x.3", "x", 3),
        ("s-abc2.0", "s-abc2", 0),
        ("x.", "x.7", None),
    ],
)
def test_what_a_name_means(name: str, session: str, index: int | None) -> None:
    found, at = choose_session(name, SESSIONS)
    assert (found.id, at) == (session, index)


def test_an_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(OpenClawError, match="no session 's-acb1'; near it: s-abc1, s-abc2"):
        choose_session("s-acb1", SESSIONS)
    with pytest.raises(OpenClawError, match="2 sessions start with 's-a'"):
        choose_session("s-a", SESSIONS)
    with pytest.raises(OpenClawError, match="no session 'q'; `openclaw-rl sessions`"):
        choose_session("q", [])
