"""The real OpenClaw with the plugin in it talks to the real server: what it sends, and what the store then holds.

OpenClaw's own prompts and tools are its own; the scripted engine reads only what a person or a tool said last.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from openclaw_rl.types import Session, Turn
from tests.clients.openclaw import OpenClaw, Seen, Tap, built_plugin
from tests.clients.talking import call
from tests.server import Server
from tests.wire.asking import closed, eventually, reader, replies

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]

PATIENCE_S = 120.0
"""How long something may take that OpenClaw does in the background."""


SCRIPT = replies(
    (r"<tool_response>\s*colour (\w+)", r"The colour is \1."),
    ("<tool_response>", "It is under way."),
    (r"look up (\w+)", call("exec", command=r"echo colour \1")),
    ("ask a colleague", call("tool_call", id="sessions_spawn", args={"task": "count the stars"})),
    (".", "Very well."),
)


@pytest.fixture(scope="module")
def tap(server: Server) -> Iterator[Tap]:
    with Tap(server.url) as running:
        yield running


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_plugin(tmp_path_factory.mktemp("plugin") / "rl-training-headers")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, server: Server, tap: Tap, plugin: Path) -> OpenClaw:
    """OpenClaw with the plugin, which may not yet see what conversations are about."""
    return OpenClaw(tmp_path_factory.mktemp("openclaw") / "home", url=tap.url, key=server.key, plugin=plugin)


@pytest.fixture(scope="module")
def trusting(installed: OpenClaw) -> OpenClaw:
    installed.allow_conversation_access()
    return installed


@pytest.fixture(scope="module")
def through_gateway(trusting: OpenClaw) -> Iterator[OpenClaw]:
    """No local turns from here on: OpenClaw refuses them beside a gateway."""
    with trusting.gateway():
        yield trusting


def test_the_plugin_passes_its_own_tests(plugin: Path) -> None:
    done = subprocess.run(("npm", "test"), cwd=plugin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_access_turns_are_side_and_the_remedy_is_said(installed: OpenClaw, server: Server, tap: Tap) -> None:
    output = say_locally(installed, "blind", "hello there")
    assert "hooks.allowConversationAccess true" in output
    [request] = calls(tap, "blind")
    assert (request.headers["x-turn-type"], request.headers["x-turn-kind"]) == ("side", "unknown")
    assert [turn.kind for turn in turns(server, "blind")] == ["side"]


def test_two_local_conversations(trusting: OpenClaw, server: Server, tap: Tap) -> None:
    assert "The colour is blue." in say_locally(trusting, "first", "please look up blue")
    assert "The colour is red." in say_locally(trusting, "second", "please look up red")
    say_locally(trusting, "first", "shorter, please")
    say_locally(trusting, "second", "thank you")
    for key, colour, reaction in (("first", "blue", "shorter, please"), ("second", "red", "thank you")):
        assert_conversation(server, tap, key, colour, reaction)


def test_two_conversations_through_the_gateway(through_gateway: OpenClaw, server: Server, tap: Tap) -> None:
    assert "The colour is green." in say(through_gateway, "third", "please look up green")
    assert "The colour is grey." in say(through_gateway, "fourth", "please look up grey")
    say(through_gateway, "third", "more, please")
    say(through_gateway, "fourth", "that is wrong")
    for name, colour, reaction in (("third", "green", "more, please"), ("fourth", "grey", "that is wrong")):
        assert_conversation(server, tap, session_id(tap, name), colour, reaction)


def test_new_ends_the_session(through_gateway: OpenClaw, server: Server, tap: Tap) -> None:
    say(through_gateway, "fifth", "good morning")
    key = session_id(tap, "fifth")
    say(through_gateway, "fifth", "/new")
    eventually(lambda: closed(server, session(server, key).id))
    [notice] = [request for request in tap.seen if request.path == f"/v1/sessions/{key}/done"]
    assert (notice.body["session_id"], notice.body["reason"]) == (key, "new")
    assert "x-session-id" not in notice.headers

    # OpenClaw goes on under the same id, with nothing in mind of what was before.
    say(through_gateway, "fifth", "good evening")
    assert [(turn.parent, turn.kind) for turn in turns(server, key)] == [(None, "main"), (None, "main")]
    assert reader(server).next_states(session(server, key).id) == []


def test_what_openclaw_does_by_itself_is_side(through_gateway: OpenClaw, server: Server, tap: Tap) -> None:
    say(through_gateway, "sixth", "please ask a colleague")
    through_gateway.run("system", "event", "--mode", "now", "--text", "the kettle boils")
    create = {"agentId": "main", "message": "what is a title good for"}
    through_gateway.run("gateway", "call", "sessions.create", "--params", json.dumps(create))
    wanted = {"subagent", "announce", "heartbeat", "simple"}
    eventually(lambda: wanted <= {request.headers.get("x-turn-kind") for request in tap.seen}, timeout_s=PATIENCE_S)
    through_gateway.run("sessions", "compact", "agent:main:sixth")
    for kind in (*wanted, "compaction"):
        sent = [request for request in tap.seen if request.headers.get("x-turn-kind") == kind]
        assert sent, kind
        assert {request.headers["x-turn-type"] for request in sent} == {"side"}, kind

    asked, told, *by_itself = turns(server, session_id(tap, "sixth"))
    assert [turn.kind for turn in (asked, told)] == ["main", "main"]
    assert by_itself
    assert {turn.kind for turn in by_itself} == {"side"}
    # The colleague's report arrives in the conversation, but nobody reacted to the answer before it.
    assert [state.index for state in reader(server).next_states(asked.session)] == [asked.index]


def say_locally(claw: OpenClaw, session_name: str, text: str) -> str:
    return claw.run("agent", "--local", "--agent", "main", "--session-id", session_name, "--message", text)


def say(claw: OpenClaw, session_name: str, text: str) -> str:
    return claw.run("agent", "--agent", "main", "--session-key", f"agent:main:{session_name}", "--message", text)


def session_id(tap: Tap, name: str) -> str:
    """The id under which OpenClaw speaks now in the session that we call so."""
    named = [request for request in tap.seen if request.headers.get("x-session-key") == f"agent:main:{name}"]
    return named[-1].headers["x-session-id"]


def calls(tap: Tap, key: str) -> list[Seen]:
    return [request for request in tap.seen if request.headers.get("x-session-id") == key]


def session(server: Server, key: str) -> Session:
    found = [summary.session for summary in reader(server).sessions() if summary.session.key == key]
    assert len(found) == 1, f"{len(found)} sessions are called {key}"
    return found[0]


def turns(server: Server, key: str) -> list[Turn]:
    return reader(server).turns(session(server, key).id)


def assert_conversation(server: Server, tap: Tap, key: str, colour: str, reaction: str) -> None:
    """Asked, looked up, answered, reacted to: three main turns in a row, each known by the headers."""
    sent = calls(tap, key)
    assert {(request.headers["x-turn-type"], request.headers["x-turn-kind"]) for request in sent} == {("main", "user")}
    assert [request.headers["x-call-index"] for request in sent] == ["1", "2", "1"]
    asked, looked_up, reacted = (request.headers["x-run-id"] for request in sent)
    assert asked == looked_up != reacted

    kept = session(server, key)
    assert kept.client == "openclaw"
    assert [(turn.index, turn.parent, turn.kind) for turn in turns(server, key)] == [
        (0, None, "main"),
        (1, 0, "main"),
        (2, 1, "main"),
    ]
    result, answer = reader(server).next_states(kept.id)
    assert [(message.role, message.content) for message in result.messages] == [("tool", f"colour {colour}")]
    assert [message.role for message in answer.messages] == ["user"]
    assert answer.messages[0].content.endswith(reaction)
