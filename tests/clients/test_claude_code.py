"""The real Claude Code talks to the real server, over /v1/messages."""

from __future__ import annotations

import uuid
from pathlib import Path

from openclaw_rl.envs.harness.programs import CLAUDE_CODE
from tests.clients import talking
from tests.server import Server

pytestmark = talking.CLIENT

SCRIPT = talking.script(
    talking.call("Bash", command=r"echo colour \1", description="says it"),
    ("summary of the conversation", "<summary>They spoke of colours.</summary>"),
    ("count the stars", "There are nine."),
    ("task-notification", "It is done."),
    (
        "ask a colleague",
        talking.call("Agent", description="stars", prompt="count the stars", subagent_type="general-purpose"),
    ),
)
QUIET = {"DISABLE_AUTOUPDATER": "1"}


def test_two_conversations(server: Server, tmp_path: Path) -> None:
    claude = talking.Agent(CLAUDE_CODE, tmp_path, QUIET)
    claude.connect(server, "claude-code")
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    assert "The colour is blue." in ask(claude, "please look up blue", "--session-id", first)
    assert "The colour is red." in ask(claude, "please look up red", "--session-id", second)
    ask(claude, "shorter, please", "--resume", first)
    ask(claude, "thank you", "--resume", second)
    for session, name, colour, reaction in zip(
        talking.conversations(server), (first, second), ("blue", "red"), ("shorter, please", "thank you"), strict=True
    ):
        assert session.key == name
        assert session.client.startswith("claude-cli/")
        assert [turn.kind for turn in talking.turns(server, session)] == ["main", "main", "main"]
        talking.assert_looked_up(server, session, colour, reaction)


def test_what_it_does_by_itself_is_side(server: Server, tmp_path: Path) -> None:
    claude = talking.Agent(CLAUDE_CODE, tmp_path, QUIET)
    claude.connect(server, "claude-code")
    name = str(uuid.uuid4())
    ask(claude, "please ask a colleague", "--session-id", name)
    ask(claude, "/compact", "--resume", name)
    ask(claude, "thank you", "--resume", name)
    session = talking.conversations(server)[-1]
    assert session.key == name
    kept = {
        turn.message.content or turn.message.tool_calls[0].name: turn.kind for turn in talking.turns(server, session)
    }
    assert kept.pop("Very well.") == "main"
    assert kept == {
        "Agent": "main",
        "There are nine.": "side",
        "It is done.": "side",
        "<summary>They spoke of colours.</summary>": "side",
    }
    # The colleague's start is a result of the call; nobody has reacted to anything else.
    assert set(talking.next_states(server, session)) == {0}


def test_a_swap_while_it_streams(tmp_path: Path) -> None:
    with talking.slow_server(tmp_path, SCRIPT) as server, talking.Relay(server) as relay:
        claude = talking.Agent(CLAUDE_CODE, tmp_path / "home", QUIET)
        claude.connect(server, "claude-code", by=relay.url)
        assert talking.ANSWER in talking.assert_swap_is_not_noticed(
            server, relay, claude.start("--print", "tell me at length")
        )


def ask(claude: talking.Agent, words: str, *options: str) -> str:
    return claude.run("--print", "--allowedTools", "Bash", "Agent", *options, "--", words)
