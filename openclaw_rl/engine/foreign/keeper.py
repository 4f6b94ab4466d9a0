"""A server of others -> a process that the supervisor can keep: `python -m openclaw_rl.engine.foreign.keeper URL CMD…`

It starts the command, passes on what it writes as our JSON lines, says "ready" when GET URL answers 200, and why it
ended. SIGTERM is passed on, and the end of standard input is one too: a parent that dies, however it dies, leaves no
server behind. When the command has ended, whatever it started is killed. Standard library only; knows no engine.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

_EVERY_S = 0.25
_GRACE_S = 20.0
_LAST_WORDS_S = 1.0

_LEVELS = {"DEBUG": "debug", "INFO": "debug", "WARNING": "info", "ERROR": "warning", "CRITICAL": "warning"}
"""One step quieter than theirs: what a server says about itself is mostly for its own people."""
_LEVEL = re.compile(r"\b(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b")
_REASON = re.compile(r"(?:^|[\s)\]])((?:\w+\.)*\w*(?:Error|Exception): .+|[\w.]+: error: .+)$")
_NO_REASON = "See root cause above"
_MAX_REASON = 400


class Keeper:
    """One server, from its start to its end."""

    def __init__(self, url: str, command: list[str]) -> None:
        self._url = urlsplit(url)
        self._path = self._url.path or "/"
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._reason = ""
        self._last = ""
        self._told = False

    def run(self) -> None:
        """Until the server is gone, with what it started; then we are too."""
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, lambda *_: self._stop())
        threading.Thread(target=self._watch_parent, daemon=True).start()
        threading.Thread(target=self._watch_health, daemon=True).start()
        reading = threading.Thread(target=self._read, daemon=True)
        reading.start()
        status = self._process.wait()
        reading.join(timeout=_LAST_WORDS_S)  # what it started may live on, and hold the other end of the pipe
        if not self._told:
            ended = f"died of {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
            _say("fatal", "critical", reason=f"the server {ended}: {self._reason or self._last or 'it said nothing'}")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)  # what it started and left behind is in our own group
        time.sleep(0.5)
        os.killpg(0, signal.SIGKILL)  # what is still there, and ourselves

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._pass_on(line.decode(errors="replace").rstrip())

    def _stop(self) -> None:
        self._told = True
        with suppress(ProcessLookupError):
            self._process.terminate()

    def _watch_parent(self) -> None:
        while os.read(0, 1 << 12):
            pass
        self._stop()
        time.sleep(_GRACE_S)
        os.killpg(0, signal.SIGKILL)

    def _watch_health(self) -> None:
        began_at = time.monotonic()
        while not self._answers():
            time.sleep(_EVERY_S)
        _say("ready", "info", seconds=round(time.monotonic() - began_at, 1))

    def _answers(self) -> bool:
        connection = HTTPConnection(self._url.hostname or "", self._url.port, timeout=5.0)
        try:
            connection.request("GET", self._path)
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def _pass_on(self, line: str) -> None:
        if not line:
            return
        self._last = line[:_MAX_REASON]
        found = _REASON.search(line)
        # The first one is the cause; what follows tells who else died of it.
        if found and not self._reason and _NO_REASON not in line:
            self._reason = found[1][:_MAX_REASON]
        level = _LEVEL.search(line[:80])
        # What is told to end complains of what ended before it.
        _say(line, _LEVELS[level[1]] if level and not self._told else "debug")


def _say(event: str, level: str, **facts: object) -> None:
    sys.stdout.write(json.dumps({"event": event, "level": level, **facts}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    Keeper(sys.argv[1], sys.argv[2:]).run()
