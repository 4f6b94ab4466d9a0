"""Keeps a program running in the box, and carries single messages to it and back.

    python relay.py serve SOCKET -- COMMAND …     starts COMMAND; returns as soon as messages may come
    python relay.py ask SOCKET SECONDS <message   prints what became of it

COMMAND reads and writes JSON-RPC, one message a line. A message with an id waits for the answer with that id; other
lines are passed over, and requests of COMMAND itself are declined. What `ask` prints is a JSON object with one key:

    reply: the answer, null for a message without id
    timeout: no answer came in time
    died: COMMAND is gone; how it ended, and its last words
    flood, garbage: it said too much, or nothing of sense
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

MAX_LINE = 4 << 20
MAX_STRAY_LINES = 200
LAST_WORDS = 2000

Json = object
Told = dict[str, Json]


class NoReply(Exception):
    """What became of a message instead of an answer."""

    def __init__(self, told: Told) -> None:
        super().__init__(str(told))
        self.told = told


class RelayedProgram:
    """COMMAND, its output as lines, and the end of what it says on stderr."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._stdin, False)
        self._unread = b""
        self._last_words = b""
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def exchange(self, message: bytes, wanted: Json, deadline: float) -> Json:
        """The answer with the id that is wanted; None right away where none is."""
        self._send(message.replace(b"\n", b" ") + b"\n", deadline)
        for _ in range(MAX_STRAY_LINES if wanted is not None else 0):
            said = _parsed(self._line(deadline))
            if "method" in said and "id" in said:
                self._decline(said, deadline)
            elif said.get("id") == wanted and ("result" in said or "error" in said):
                return said
        if wanted is not None:
            raise NoReply({"garbage": f"{MAX_STRAY_LINES} lines, and none of them the answer"})
        return None

    def _decline(self, request: Told, deadline: float) -> None:
        declined: Told = {"error": {"code": -32601, "message": "this client has nothing to ask"}}
        answer: Told = {"result": {}} if request["method"] == "ping" else declined
        self._send(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}).encode() + b"\n", deadline)

    def _send(self, data: bytes, deadline: float) -> None:
        while data:
            self._await(write=True, deadline=deadline)
            try:
                data = data[os.write(self._stdin, data) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._death() from None

    def _line(self, deadline: float) -> bytes:
        while b"\n" not in self._unread:
            if len(self._unread) > MAX_LINE:
                raise NoReply({"flood": f"a line of more than {MAX_LINE} bytes"})
            self._await(write=False, deadline=deadline)
            more = os.read(self._stdout, 1 << 16)
            if not more:
                raise self._death()
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _await(self, *, write: bool, deadline: float) -> None:
        left = deadline - time.monotonic()
        streams = ([], [self._stdin]) if write else ([self._stdout], [])
        if left <= 0 or not any(select.select(*streams, [], left)):
            raise NoReply({"timeout": "no answer came in time"})

    def _death(self) -> NoReply:
        try:
            code = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._listening.join(timeout=1)
        words = self._last_words.decode(errors="replace").strip()
        how = f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
        return NoReply({"died": f"{how}{': ' if words else ''}{words}"})

    def _listen(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        while said := stderr.read(1 << 16):
            self._last_words = (self._last_words + said)[-LAST_WORDS:]


def _parsed(line: bytes) -> Told:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def serve(path: str, command: Sequence[str]) -> None:
    """Starts COMMAND in the background, and answers at the socket as long as the box lives."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(8)
    if os.fork():
        return
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    try:
        program: RelayedProgram | str = RelayedProgram(command)
    except OSError as error:
        program = f"{command[0]} cannot be started: {error}"
    while True:
        connection, _ = listener.accept()
        with connection:
            _answer(connection, program)


def _answer(connection: socket.socket, program: RelayedProgram | str) -> None:
    try:
        with connection.makefile("rb") as incoming:
            seconds = float(incoming.readline())
            message = incoming.read()
        if isinstance(program, str):
            raise NoReply({"died": program})
        told: Told = {"reply": program.exchange(message, _parsed(message).get("id"), time.monotonic() + seconds)}
    except NoReply as ended:
        told = ended.told
    except OSError:  # who asked is gone
        return
    try:
        connection.sendall(json.dumps(told).encode())
    except OSError:
        return


def ask(path: str, seconds: str) -> None:
    """Hands on what stands on stdin, and prints what comes back."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(f"{float(seconds)}\n".encode() + sys.stdin.buffer.read())
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(1 << 16):
            sys.stdout.buffer.write(part)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], sys.argv[4:])
    else:
        ask(sys.argv[2], sys.argv[3])
