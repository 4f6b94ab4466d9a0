"""The real aider talks to the real server, over /v1/chat/completions. It has no tools: it reads edits out of answers.

Whatever it changes it commits, and lets the model write the message.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from openclaw_rl.types import Session
from tests.clients.programs import AIDER
from tests.clients.talking import (
    ANSWER,
    CLIENT,
    Agent,
    Relay,
    assert_swap_is_not_noticed,
    conversations,
    next_states,
    script,
    slow_server,
    turns,
)
from tests.server import Server

pytestmark = CLIENT

SCRIPT = script(
    "",
    ("diff --git", "chore: a colour"),
    (r"please write (\w+)", "colour.txt\n```\n\\1\n```\n"),
)
OPTIONS = (
    "--yes-always",
    "--no-pretty",
    "--no-fancy-input",
    "--no-check-update",
    "--analytics-disable",
    "--no-gitignore",
)
QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    **{f"GIT_{who}_{what}": "someone@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


@pytest.fixture
def aider(server: Server, tmp_path: Path) -> Agent:
    aider = Agent(AIDER, tmp_path / "home", QUIET)
    aider.connect(server, "aider")
    return aider


def test_two_conversations(aider: Agent, server: Server, tmp_path: Path) -> None:
    cases = (("blue", "shorter, please"), ("red", "thank you"))
    for colour, reaction in cases:
        folder = repository(tmp_path / colour)
        (folder / "colour.txt").touch()
        talk(aider, folder, "colour.txt", said=(f"into this file please write {colour}", reaction))
    talks, commits = by_kind(server)
    for session, (colour, reaction) in zip(talks, cases, strict=True):
        asked, reacted = turns(server, session)
        assert [(turn.kind, turn.parent) for turn in (asked, reacted)] == [("main", None), ("main", 0)]
        assert asked.message.content.split() == ["colour.txt", "```", colour, "```"]
        # Its rules stand behind the words; what it says and answers itself (the commit, the files) is not there.
        assert [(role, text.splitlines()[0]) for role, text in next_states(server, session)[0]] == [("user", reaction)]
    messages = [turn.message.content for session in commits for turn in turns(server, session)]
    assert messages.count("chore: a colour") == 2
    assert not any(next_states(server, session) for session in commits)


def test_a_file_that_joins_the_conversation(aider: Agent, server: Server, tmp_path: Path) -> None:
    """Aider announces it and answers itself: nobody can tell that from a person and another model."""
    talk(aider, repository(tmp_path / "green"), said=("into this file please write green", "longer, please"))
    newest = by_kind(server)[0][-1]
    assert next_states(server, newest) == {}


def test_a_swap_while_it_streams(tmp_path: Path) -> None:
    with slow_server(tmp_path, SCRIPT) as server, Relay(server) as relay:
        aider = Agent(AIDER, tmp_path / "home", QUIET)
        aider.connect(server, "aider", by=relay.url)
        running = aider.start(*OPTIONS, "--no-git", "--message", "tell me at length")
        assert ANSWER in assert_swap_is_not_noticed(server, relay, running)


def talk(aider: Agent, folder: Path, *files: str, said: tuple[str, ...]) -> None:
    """One run of the program, in which all of this is said; the file is then what was asked for."""
    aider.run(*OPTIONS, *files, folder=folder, typed="".join(f"{words}\n" for words in said))
    assert (folder / "colour.txt").read_text() == f"{said[0].split()[-1]}\n"


def by_kind(server: Server) -> tuple[list[Session], list[Session]]:
    """The conversations, and the sessions of calls that aider made for itself. No session is both."""
    kinds = {session.id: {turn.kind for turn in turns(server, session)} for session in conversations(server)}
    assert all(len(found) == 1 for found in kinds.values())
    talks = [session for session in conversations(server) if kinds[session.id] == {"main"}]
    return talks, [session for session in conversations(server) if kinds[session.id] == {"side"}]


def repository(folder: Path) -> Path:
    folder.mkdir()
    subprocess.run(("git", "init", "--quiet"), cwd=folder, check=True)
    return folder
