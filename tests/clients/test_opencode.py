"""The real opencode talks to the real server, over /v1/chat/completions. Each session is given a title first."""

from __future__ import annotations

import json
from pathlib import Path

from openclaw_rl.envs.harness.programs import OPENCODE
from tests.clients import talking
from tests.server import Server

pytestmark = talking.CLIENT

SCRIPT = talking.script(
    talking.call("bash", command=r"echo colour \1", description="says it"),
    ("(?i)a title", "Colours"),
    (r"<tool_response>[\s\S]*nine", "Nine, they say."),
    ("count the stars", "There are nine."),
    ("ask a colleague", talking.call("task", description="stars", prompt="count the stars", subagent_type="general")),
)
QUIET = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def test_two_conversations(server: Server, tmp_path: Path) -> None:
    opencode = talking.Agent(OPENCODE, tmp_path, QUIET)
    opencode.connect(server, "opencode")
    first = ask(opencode, "please look up blue")
    second = ask(opencode, "please look up red")
    ask(opencode, "shorter, please", session=first)
    ask(opencode, "thank you", session=second)
    for session, name, colour, reaction in zip(
        talking.conversations(server), (first, second), ("blue", "red"), ("shorter, please", "thank you"), strict=True
    ):
        assert (session.key, session.client) == (name, "opencode/1.18.33")
        kinds = [turn.kind for turn in talking.turns(server, session)]
        assert sorted(kinds) == ["main", "main", "main", "side"]  # the title
        talking.assert_looked_up(server, session, colour, reaction)


def test_a_colleague_is_side(server: Server, tmp_path: Path) -> None:
    opencode = talking.Agent(OPENCODE, tmp_path, QUIET)
    opencode.connect(server, "opencode")
    name = ask(opencode, "please ask a colleague")
    *_, session, colleague = talking.conversations(server)
    assert session.key == name
    kinds = {turn.message.content: turn.kind for turn in talking.turns(server, session)}
    assert kinds == {"Colours": "side", "": "main", "Nine, they say.": "main"}
    assert [(turn.message.content, turn.kind) for turn in talking.turns(server, colleague)] == [
        ("There are nine.", "side")
    ]
    assert not talking.next_states(server, colleague)


def test_a_swap_while_it_streams(tmp_path: Path) -> None:
    with talking.slow_server(tmp_path, SCRIPT) as server, talking.Relay(server) as relay:
        opencode = talking.Agent(OPENCODE, tmp_path / "home", QUIET)
        opencode.connect(server, "opencode", by=relay.url)
        running = opencode.start("run", "--format", "json", typed="tell me at length")
        assert talking.ANSWER in talking.assert_swap_is_not_noticed(server, relay, running, prompts=2)


def ask(opencode: talking.Agent, words: str, *, session: str | None = None) -> str:
    """Asks, in a new session or in that one; its name."""
    goes_on = () if session is None else ("--session", session)
    printed = opencode.run("run", "--format", "json", "--auto", *goes_on, typed=words)
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return next(str(event["sessionID"]) for event in events)
