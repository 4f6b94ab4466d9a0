"""A real agent program in a home of its own, a server over the scripted engine, and what the store then holds.

    Agent            a program and its home; `connect` gives it the settings that `openclaw-rl connect` writes
    Relay            what passes between the two
    conversations    what the store says of them

Knows no program by name. What each says on the command line is in the test of that program.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from safetensors.numpy import save_file

from openclaw_rl.envs.harness.programs import Program
from openclaw_rl.errors import EnvError
from openclaw_rl.types import BASE_VERSION, Session, Turn
from tests.clients.programs import SHELF
from tests.server import Server
from tests.wire.asking import eventually, reader, replies

CLIENT = [pytest.mark.clients, pytest.mark.timeout(900)]
"""What every test of a real program is: `make test-clients` runs it, and installs the program first."""

COMMAND_S = 120.0
"""How long one command may take on a busy machine."""

ANSWER = " ".join(["lemon"] * 90)
"""An answer that takes a while at `PACE`. Its word is one token, and no prompt of an agent holds it."""
PACE = "engine.scripted.tokens_per_s=8"


def call(tool: str, **arguments: Any) -> str:
    """A tool call as the model writes it; a number of a group of the script stays as it is."""
    written = json.dumps({"name": tool, "arguments": arguments}).replace("\\\\", "\\")
    return f"<tool_call>\n{written}\n</tool_call>"


def script(look_up: str, *more: tuple[str, str]) -> str:
    """The setting of an engine that looks a colour up with the call `look_up`, and then says which it is.

    `more` are tried first. Whatever else is asked is answered with two words.
    """
    return replies(
        *more,
        (r"<tool_response>[\s\S]*colour (\w+)", r"The colour is \1."),
        (r"please look up (\w+)", look_up),
        ("at length", ANSWER),
        (".", "Very well."),
    )


class Asking(Protocol):
    """Something that asks the server a question and ends."""

    @property
    def is_over(self) -> bool: ...

    def output(self) -> str: ...

    def kill(self) -> str: ...


class Running:
    """A program that was started; `typed` is its whole input."""

    def __init__(self, command: Sequence[str | Path], folder: Path, env: Mapping[str, str], typed: str) -> None:
        self._command = " ".join(map(str, command))
        # Files, so that neither side ever waits for us.
        self._printed = tempfile.TemporaryFile("w+")  # noqa: SIM115
        with tempfile.TemporaryFile("w+") as given:
            given.write(typed)
            given.seek(0)
            self._process = subprocess.Popen(
                command, env=env, cwd=folder, stdin=given, stdout=self._printed, stderr=subprocess.STDOUT
            )

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def output(self) -> str:
        """What it printed, once it has ended well."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=COMMAND_S)
        status = self._process.poll()
        printed = self.kill()
        assert status == 0, f"{self._command}: {'did not end' if status is None else status}\n{printed}"
        return printed

    def kill(self) -> str:
        """Ends it, if it is not over; what it printed."""
        if not self.is_over:
            self._process.kill()
            self._process.wait()
        with self._printed:
            self._printed.seek(0)
            return self._printed.read()


class Agent:
    """A program in a home of its own, and a folder in which it works."""

    def __init__(self, program: Program, home: Path, env: Mapping[str, str] | None = None) -> None:
        try:
            self._command = SHELF.install(program)
        except EnvError as error:
            pytest.skip(f"{program.command} cannot be installed here: {error}")
        self.home = home
        self.folder = home / "work"
        self.folder.mkdir(parents=True)
        path = f"{self._command.parent}{os.pathsep}{os.environ['PATH']}"
        self._env = {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8", **(env or {})}

    def connect(self, server: Server, name: str, *, by: str | None = None) -> str:
        """What `openclaw-rl connect NAME` printed; the settings that it wrote are in the home from now on.

        `by` is another address of the same server, to be asked instead.
        """
        printed = Running(_product(server, "connect", name, "--yes"), self.home, self._env, "").output()
        if by is not None:
            for file in self.home.rglob("*"):
                if file.is_file() and server.url in (text := file.read_text()):
                    file.write_text(text.replace(server.url, by))
            printed = printed.replace(server.url, by)
        return printed

    def start(
        self, *words: str, folder: Path | None = None, typed: str = "", env: Mapping[str, str] | None = None
    ) -> Running:
        """Starts the program; `typed` is its input."""
        return Running((self._command, *words), folder or self.folder, {**self._env, **(env or {})}, typed)

    def run(
        self, *words: str, folder: Path | None = None, typed: str = "", env: Mapping[str, str] | None = None
    ) -> str:
        """What it printed; it must end well."""
        return self.start(*words, folder=folder, typed=typed, env=env).output()


class Relay:
    """Another address of a server. Passes bytes on both ways, and keeps what was asked and answered so far."""

    def __init__(self, server: Server) -> None:
        address = urlsplit(server.url)
        self._server = (str(address.hostname), int(address.port or 80))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked, self.answered = bytearray(), bytearray()

    @property
    def prompts(self) -> int:
        """How many requests for an answer have passed."""
        return len(re.findall(rb"POST /v1/(?:chat/completions|responses|messages)(?:\?[^ ]*)? HTTP", self.asked))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                for source, target, kept in ((client, server, self.asked), (server, client, self.answered)):
                    threading.Thread(target=_pass_on, args=(source, target, kept), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
    with suppress(OSError), closing(target):
        while data := source.recv(65536):
            kept += data
            target.sendall(data)


def _product(server: Server, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "openclaw_rl", *words, "--data-dir", str(server.data_dir))


@contextmanager
def slow_server(folder: Path, *settings: str) -> Iterator[Server]:
    """A server whose answers take their time, with a version 1 that nobody is answered by yet."""
    with Server(folder / "data", PACE, *settings) as server:
        adapter = folder / "adapter"
        adapter.mkdir()
        (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 1}))
        zero = np.zeros((1, 1), dtype=np.float32)
        names = ("base_model.model.up.lora_A.weight", "base_model.model.up.lora_B.weight")
        save_file(dict.fromkeys(names, zero), adapter / "adapter_model.safetensors")
        subprocess.run(_product(server, "import", str(adapter)), check=True, capture_output=True)
        yield server


def assert_swap_is_not_noticed(
    server: Server, relay: Relay, running: Asking, *, prompts: int = 1, streams: bool = True
) -> str:
    """Another version goes live while the client is answered: it ends well, having asked once. What it printed.

    `prompts` is how many requests the client makes for one question anyway, those for itself included.
    """

    def is_being_answered() -> bool:
        return (b"lemon" in relay.answered) if streams else relay.prompts > 0 and _open_sessions(server) > 1

    try:
        eventually(lambda: is_being_answered() or running.is_over, timeout_s=COMMAND_S)
        if not running.is_over:
            subprocess.run(_product(server, "rollback", "1", "--untried"), check=True, capture_output=True)
            assert not main_turns(server), "the answer had ended before the swap"
    except BaseException:
        running.kill()
        raise
    printed = running.output()
    eventually(lambda: all(turn.delivered for turn in main_turns(server)))  # written a moment after the last byte
    [turn] = main_turns(server)
    assert turn.message.content.strip() == ANSWER
    assert [span.version for span in turn.completion.version_spans] == [BASE_VERSION]
    assert turn.completion.finish_reason in ("stop", "tool_calls")
    assert relay.prompts == prompts
    assert server.chat("and now?").headers["X-OpenClaw-RL-Version"] == "v1"
    return printed


def _open_sessions(server: Server) -> float:
    """That of `connect` included."""
    found = re.search(r"^openclaw_rl_open_sessions (.+)$", httpx.get(f"{server.url}/metrics").text, re.MULTILINE)
    assert found
    return float(found[1])


def conversations(server: Server) -> list[Session]:
    """The sessions that a person spoke in, in their order; not the one with which `connect` tries the way."""
    found = [summary.session for summary in reader(server).sessions() if not summary.session.opted_out]
    return sorted(found, key=lambda session: session.opened_at)


def turns(server: Server, session: Session) -> list[Turn]:
    return reader(server).turns(session.id)


def main_turns(server: Server) -> list[Turn]:
    return [turn for session in conversations(server) for turn in turns(server, session) if turn.kind == "main"]


def next_states(server: Server, session: Session) -> dict[int, list[tuple[str, str]]]:
    """What followed each turn: roles and words."""
    states = reader(server).next_states(session.id)
    return {state.index: [(message.role, message.content) for message in state.messages] for state in states}


def assert_looked_up(server: Server, session: Session, colour: str, reaction: str) -> None:
    """Asked, looked up, answered, reacted to: three main turns in a row, and what followed the first two."""
    asked, told, reacted = (turn for turn in turns(server, session) if turn.kind == "main")
    assert (asked.parent, told.parent, reacted.parent) == (None, asked.index, told.index)
    said = [message.content for message in asked.messages if message.role == "user"]
    assert said[-1].rstrip().endswith(f"please look up {colour}")
    assert [len(turn.message.tool_calls) for turn in (asked, told, reacted)] == [1, 0, 0]
    assert [turn.message.content for turn in (told, reacted)] == [f"The colour is {colour}.", "Very well."]
    assert {turn.skip for turn in (asked, told)} == {None}
    states = next_states(server, session)
    assert set(states) == {asked.index, told.index}
    [(role, result)] = states[asked.index]
    assert role == "tool"
    assert f"colour {colour}" in result
    assert states[told.index] == [("user", reaction)]
