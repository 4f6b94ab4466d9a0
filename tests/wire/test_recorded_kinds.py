"""Every recorded kind of traffic lands where it belongs: session, turn, parent, kind, and what followed what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from openclaw_rl.types import Skip, split_turn_id
from tests.server import Server
from tests.wire.asking import CHAT, connect, eventually, log_lines, reader, replies, stored
from tests.wire.traffic import CASES, Step

CALL = '<tool_call>\n{"name": "exec", "arguments": {"command": "\\1"}}\n</tool_call>'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Answers what stands in the last braces of what was said; slowly enough to be cut off in a long answer."""
    rules = replies((r"(?s).*\{\{call ([^{}]*)\}\}(?!.*\{\{)", CALL), (r"(?s).*\{\{(.*?)\}\}", r"\1"))
    with Server(tmp_path_factory.mktemp("traffic") / "data", rules, "engine.scripted.tokens_per_s=400") as running:
        yield running
        assert [line for line in log_lines(running) if line["event"] == "unexpected error"] == []


@pytest.mark.parametrize("name", CASES)
def test_traffic_lands_where_it_belongs(server: Server, name: str) -> None:
    wanted = CASES[name]()
    aliases: dict[str, str] = {}
    for number, step in enumerate(wanted.steps):
        turn_id = cut_off(server, step) if step.fails else ask(server, step)
        session, index = split_turn_id(turn_id)
        turn = stored(server, turn_id)
        where = (name, number)
        alias = session if step.session == session else step.session
        assert aliases.setdefault(alias, session) == session, where
        assert list(aliases.values()).count(session) == 1, where
        assert (index, turn.parent, turn.kind) == (step.turn, step.parent, step.kind), where
        skip = Skip.ABORTED if step.fails else Skip.SIDE_TURN if step.kind == "side" else None
        assert turn.skip is skip, where
        assert turn.label == step.headers.get("x-turn-kind", turn.label), where
    found = {
        f"{alias}.{state.index}": [m.content for m in state.messages]
        for alias, session in aliases.items()
        for state in reader(server).next_states(session)
    }
    assert found == wanted.next_states


def request(step: Step) -> dict[str, Any]:
    names = [f"exec{i or ''}" for i in range(step.tools)]
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]
    return {"messages": step.messages, **({"tools": tools} if tools else {}), **step.body}


def ask(server: Server, step: Step) -> str:
    body = request(step)
    response = server.chat(body.pop("messages"), headers=dict(step.headers), **body)
    assert response.status_code == 200, response.text
    return response.headers["X-OpenClaw-RL-Turn"]


def cut_off(server: Server, step: Step) -> str:
    """Reads the beginning of the answer and goes away; the turn that was kept of it."""
    content = json.dumps({**request(step), "stream": True}).encode()
    lines = {"Host": "localhost", "Content-Length": str(len(content)), **server.headers, **step.headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    with connect(server) as connection:
        connection.sendall(f"POST {CHAT} HTTP/1.1\r\n{head}\r\n".encode() + content)
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(1024)
    head = received.decode().lower()
    turn_id = head.partition("x-openclaw-rl-turn: ")[2].partition("\r\n")[0]
    session, index = split_turn_id(turn_id)
    eventually(lambda: reader(server).turn(session, index))
    return turn_id
