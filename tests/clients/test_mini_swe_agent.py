"""The real mini-swe-agent talks to the real server, over /v1/chat/completions. It works by itself, and does not stream.

It has no conversation that goes on later: what is multi-turn is its work on one task, and what follows its answers are
results of tools, and its own complaint about an answer that calls none.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from openclaw_rl.envs.harness.programs import MINI_SWE_AGENT
from tests.clients.talking import (
    ANSWER,
    CLIENT,
    Agent,
    Relay,
    assert_swap_is_not_noticed,
    call,
    conversations,
    next_states,
    script,
    slow_server,
    turns,
)
from tests.server import Server

pytestmark = CLIENT

SUBMIT = call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
SCRIPT = script(
    call("bash", command=r"echo colour \1"),
    ("Tool call error", SUBMIT),
    (r"<tool_response>[\s\S]*shade of (\w+)", r"It is a shade of \1."),
    (r"<tool_response>[\s\S]*colour (\w+)", call("bash", command=r"echo shade of \1")),
    ("at length", f"{ANSWER}\n{SUBMIT}"),
)
QUIET = {
    "MSWEA_CONFIGURED": "true",  # else it asks which model
    "MSWEA_COST_TRACKING": "ignore_errors",  # else it refuses a model that has no price
    "MSWEA_SILENT_STARTUP": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}


def test_two_tasks(server: Server, tmp_path: Path) -> None:
    mini = Agent(MINI_SWE_AGENT, tmp_path, QUIET)
    env = exported(mini.connect(server, "env"))
    for colour in ("blue", "red"):
        mini.run(*task(f"please look up {colour}"), env=env)
    for session, colour in zip(conversations(server), ("blue", "red"), strict=True):
        kept = turns(server, session)
        assert [(turn.index, turn.parent, turn.kind) for turn in kept] == [
            (0, None, "main"),
            (1, 0, "main"),
            (2, 1, "main"),
            (3, 1, "main"),
        ]
        looked_up, looked_closer, spoke, submitted = kept
        assert spoke.message.content == f"It is a shade of {colour}."
        assert submitted.message.tool_calls
        # The answer without a call is not in the history any more, so nothing is known to have followed it.
        states = next_states(server, session)
        assert set(states) == {looked_up.index, looked_closer.index}
        assert [(role, f"colour {colour}" in text) for role, text in states[0]] == [("tool", True)]
        assert [(role, f"shade of {colour}" in text) for role, text in states[1]] == [("tool", True)]


def test_a_swap_while_it_waits(tmp_path: Path) -> None:
    with slow_server(tmp_path, SCRIPT) as server, Relay(server) as relay:
        mini = Agent(MINI_SWE_AGENT, tmp_path / "home", QUIET)
        env = exported(mini.connect(server, "env", by=relay.url))
        running = mini.start(*task("tell me at length"), env=env)
        assert_swap_is_not_noticed(server, relay, running, streams=False)


def task(words: str) -> tuple[str, ...]:
    return ("--model", "openai/any", "--task", words, "--yolo", "--exit-immediately")


def exported(lines: str) -> dict[str, str]:
    """The variables that a shell would have after these lines."""
    words = [shlex.split(line) for line in lines.splitlines() if line.startswith("export ")]
    return dict(word.split("=", 1) for _, word in words)
