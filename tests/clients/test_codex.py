"""The real Codex CLI talks to the real server, over /v1/responses."""

from __future__ import annotations

import json
from pathlib import Path

from openclaw_rl.envs.harness.programs import CODEX
from tests.clients import talking
from tests.server import Server

pytestmark = talking.CLIENT

SCRIPT = talking.script(
    talking.call("exec_command", cmd=r"echo colour \1"),
    ("(?i)produced a summary", "Welcome."),
    ("(?i)handoff summary", "They spoke of colours."),
    (r"<tool_response>[\s\S]*nine", "Nine, they say."),
    (r"<tool_response>[\s\S]*\bagent_id\W+([\w-]+)", talking.call("multi_agent_v1::wait_agent", targets=[r"\1"])),
    ("count the stars", "There are nine."),
    ("ask a colleague", talking.call("multi_agent_v1::spawn_agent", message="count the stars")),
)
# It brings a sandbox of its own, which does not work inside another one.
EXEC = ("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")


def test_two_conversations(server: Server, tmp_path: Path) -> None:
    codex = talking.Agent(CODEX, tmp_path)
    codex.connect(server, "codex")
    first = ask(codex, "please look up blue")
    second = ask(codex, "please look up red")
    ask(codex, "shorter, please", thread=first)
    ask(codex, "thank you", thread=second)
    for session, thread, colour, reaction in zip(
        talking.conversations(server), (first, second), ("blue", "red"), ("shorter, please", "thank you"), strict=True
    ):
        assert (session.key, session.client) == (thread, "codex_exec/0.166.0")
        assert len(talking.turns(server, session)) == 3
        talking.assert_looked_up(server, session, colour, reaction)


def test_what_it_does_by_itself_is_side(server: Server, tmp_path: Path) -> None:
    codex = talking.Agent(CODEX, tmp_path)
    codex.connect(server, "codex")
    thread = ask(codex, "please ask a colleague")
    ask(codex, "thank you", "-c", "model_auto_compact_token_limit=2000", thread=thread)
    session = talking.conversations(server)[-1]
    assert session.key == thread
    kept = {turn.message.content: (turn.kind, turn.label) for turn in talking.turns(server, session)}
    assert kept == {
        "": ("main", "turn"),  # the calls
        "Nine, they say.": ("main", "turn"),
        "There are nine.": ("side", "turn"),
        "They spoke of colours.": ("side", "compaction"),
        "Welcome.": ("main", "turn"),
    }
    # Two calls have results. What the person said stands behind a summary, in which no answer can be told.
    states = talking.next_states(server, session)
    assert [states[index][0][0] for index in sorted(states)] == ["tool", "tool"]
    assert not any("thank you" in text for state in states.values() for _, text in state)


def test_a_swap_while_it_streams(tmp_path: Path) -> None:
    with talking.slow_server(tmp_path, SCRIPT) as server, talking.Relay(server) as relay:
        codex = talking.Agent(CODEX, tmp_path / "home")
        codex.connect(server, "codex", by=relay.url)
        printed = talking.assert_swap_is_not_noticed(server, relay, codex.start(*EXEC, "tell me at length"))
        assert talking.ANSWER in printed


def ask(codex: talking.Agent, words: str, *options: str, thread: str | None = None) -> str:
    """Asks, in a new thread or in that one; its name."""
    goes_on = () if thread is None else ("resume", thread)
    printed = codex.run(*EXEC, *options, *goes_on, words)
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return next(str(event["thread_id"]) for event in events if event["type"] == "thread.started")
