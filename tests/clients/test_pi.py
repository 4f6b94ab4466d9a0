"""The real pi talks to the real server, over /v1/chat/completions."""

from __future__ import annotations

from pathlib import Path

from tests.clients.programs import PI
from tests.clients.talking import (
    ANSWER,
    CLIENT,
    Agent,
    Relay,
    assert_looked_up,
    assert_swap_is_not_noticed,
    call,
    conversations,
    script,
    slow_server,
    turns,
)
from tests.server import Server

pytestmark = CLIENT

SCRIPT = script(call("bash", command=r"echo colour \1"))
QUIET = {"PI_OFFLINE": "1"}


def test_two_conversations(server: Server, tmp_path: Path) -> None:
    pi = Agent(PI, tmp_path, QUIET)
    pi.connect(server, "pi")
    assert "The colour is blue." in ask(pi, "first", "please look up blue")
    assert "The colour is red." in ask(pi, "second", "please look up red")
    ask(pi, "first", "shorter, please", "--continue")
    ask(pi, "second", "thank you", "--continue")
    for session, name, colour, reaction in zip(
        conversations(server), ("first", "second"), ("blue", "red"), ("shorter, please", "thank you"), strict=True
    ):
        # The name is pi's own, because `connect` made it send one; it is part of the name of the file, too.
        [file] = (tmp_path / name).iterdir()
        assert session.key is not None
        assert session.key in file.name
        assert len(turns(server, session)) == 3
        assert_looked_up(server, session, colour, reaction)


def test_a_swap_while_it_streams(tmp_path: Path) -> None:
    with slow_server(tmp_path, SCRIPT) as server, Relay(server) as relay:
        pi = Agent(PI, tmp_path / "home", QUIET)
        pi.connect(server, "pi", by=relay.url)
        assert ANSWER in assert_swap_is_not_noticed(server, relay, pi.start("--print", "tell me at length"))


def ask(pi: Agent, folder: str, words: str, *options: str) -> str:
    """Asks in the session that is kept in a folder."""
    return pi.run("--session-dir", str(pi.home / folder), *options, "--print", words)
