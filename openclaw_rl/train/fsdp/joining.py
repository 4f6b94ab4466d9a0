"""Rank 0 of processes that somebody started by hand, on its way to the system that they train for.

    ADDRESS   HOST:PORT, or the path of a socket on this machine
    <-  {"nonce": …}        ->  {"proof": HMAC of the nonce, "world_size": 16, "format": 1}
    <-  {"model": FOLDER, "options": {…}}, or {"refused": "why"}
    <-  {"bytes": 512, "target": FOLDER}, and the order     ->  {"report": …} or {"error": "why not"}

The key itself is never sent. Orders are: across machines use a network of your own, or a tunnel. When the connection
ends these processes end too, in the middle of a step as well; whoever started them starts them again, and they wait
until somebody listens. Standard library only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from openclaw_rl.errors import TrainerLost, TrainError
from openclaw_rl.train.wire import Report, report_line

_log = logging.getLogger(__name__)

FORMAT = 1
_RETRY_S = 1.0
_MAX_LINE = 1 << 20
MAX_SOCKET = 103 if sys.platform == "darwin" else 107
"""Bytes of a path: `sun_path` has one more."""


def prove(key: str, nonce: str) -> str:
    """That somebody knows the key."""
    return hmac.new(key.encode(), nonce.encode(), hashlib.sha256).hexdigest()


def parse_address(address: str) -> tuple[str, int] | Path:
    """A host and a port, or a socket's path."""
    host, colon, port = address.rpartition(":")
    if address.startswith("/"):
        if (size := len(os.fsencode(address))) > MAX_SOCKET:
            raise TrainError(
                f"the socket's path {address} has {size} bytes, and this system allows {MAX_SOCKET}; set "
                "training.listen to a shorter one, or to HOST:PORT, and join there"
            )
        return Path(address)
    if not colon or not host or not port.isdigit():
        raise TrainError(f"{address!r} is no address to join; give HOST:PORT, or the full path of a socket")
    return host.strip("[]"), int(port)


class Joined:
    """The connection, once both sides know each other: `__main__.Employer` of rank 0."""

    def __init__(
        self, address: str, key: str, *, world_size: int, on_end: Callable[[], None] = lambda: os._exit(1)
    ) -> None:
        """Waits until somebody listens; `TrainError` if these processes are not wanted. `on_end` is called when the
        connection has ended."""
        self._on_end = on_end
        self._socket = _connect(address)
        self._file = self._socket.makefile("rb")
        nonce = str(self._read()["nonce"])
        self._say({"proof": prove(key, nonce), "world_size": world_size, "format": FORMAT})
        welcome = self._read()
        if (why := welcome.get("refused")) is not None:
            self._close()
            raise TrainError(str(why))
        self.model = Path(str(welcome["model"]))
        self.options: Mapping[str, Any] = welcome["options"]
        self._orders: SimpleQueue[tuple[str, str | None]] = SimpleQueue()
        Thread(target=self._receive, daemon=True).start()
        _log.info("joined", extra={"address": address, "world_size": world_size})

    def next_order(self) -> tuple[str, str | None]:
        return self._orders.get()

    def answer(self, report: Report | str) -> None:
        self._say({"error": report} if isinstance(report, str) else {"report": report_line(report)})

    def lost(self, why: str) -> None:
        """The last words of these processes."""
        self._say({"lost": why})

    def _receive(self) -> None:
        """Passes orders on until there is nobody left to give one: then what is being computed is of no use either."""
        try:
            while True:
                head = self._read()
                size = int(head["bytes"])
                if len(body := self._file.read(size)) != size:
                    break
                self._orders.put((body.decode(), head["target"]))
        except (OSError, ValueError, TrainerLost):
            pass
        _log.warning("the system that we train for is gone")
        self._close()
        self._on_end()

    def _close(self) -> None:
        self._file.close()
        self._socket.close()

    def _read(self) -> Mapping[str, Any]:
        line = self._file.readline(_MAX_LINE)
        if not line.endswith(b"\n"):
            raise TrainerLost("the system that we train for is gone")
        found: Mapping[str, Any] = json.loads(line)
        return found

    def _say(self, words: Mapping[str, Any]) -> None:
        try:
            self._socket.sendall(json.dumps(words).encode() + b"\n")
        except OSError as error:
            raise TrainerLost(f"the system that we train for is gone ({error})") from error


def _connect(address: str) -> socket.socket:
    place = parse_address(address)
    waiting = False
    while True:
        try:
            if isinstance(place, Path):
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(str(place))
            else:
                connection = socket.create_connection(place)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return connection
        except OSError as error:
            if not waiting:
                _log.warning("nobody listens yet at %s (%s); waiting", address, error)
            waiting = True
            time.sleep(_RETRY_S)
