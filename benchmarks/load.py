"""Requests as bytes -> answers with the times at which they came. The load generator of the benchmarks.

HTTP/1.1 written by hand over bare event-loop protocols: what it costs stands on the same cores as what it measures, so
it does as little as possible while the clock runs and takes answers apart afterwards. It knows no dialect and no
gateway; `gateway.py` says what is sent where.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from pathlib import Path

_END_OF_CHUNKS = b"\r\n0\r\n\r\n"


class LoadError(Exception):
    """A request was not answered as the benchmark needs it; no figure is worth anything then."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: when it was to be asked for, when its last byte was there, and its bytes as they arrived."""

    due_at: float
    ended_at: float
    arrivals: Sequence[tuple[float, bytes]]

    @property
    def seconds(self) -> float:
        return self.ended_at - self.due_at

    @property
    def data(self) -> bytes:
        return b"".join(part for _, part in self.arrivals)

    def header(self, name: bytes) -> str:
        """The value of a header, spelled as the server spells it; "" if there is none."""
        head = self.data.partition(b"\r\n\r\n")[0]
        _, found, rest = head.partition(b"\r\n" + name + b": ")
        return rest.partition(b"\r\n")[0].decode() if found else ""

    def event_times(self, marker: bytes) -> list[float]:
        """When each event that holds `marker` had arrived, in seconds after `due_at`."""
        ends = list(accumulate(len(part) for _, part in self.arrivals))
        whole, times, at = self.data, list[float](), -1
        while (at := whole.find(marker, at + 1)) >= 0:
            times.append(self.arrivals[bisect_left(ends, at + len(marker))][0] - self.due_at)
        return times


class Connection(asyncio.Protocol):
    """A keep-alive connection that carries one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[None] | None = None
        self._arrivals: list[tuple[float, bytes]] = []
        self._left: int | None = None
        self._tail = b""

    async def ask(self, request: bytes, due_at: float | None = None) -> Answer:
        """Sends a request and waits for the end of its answer; a status other than 200 is a `LoadError`."""
        assert self._transport is not None
        assert self._done is None or self._done.done()
        self._done = asyncio.get_running_loop().create_future()
        self._arrivals = arrivals = []
        self._left, self._tail = None, b""
        began_at = time.perf_counter()
        self._transport.write(request)
        await self._done
        return Answer(began_at if due_at is None else due_at, arrivals[-1][0], arrivals)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        first = not self._arrivals
        self._arrivals.append((time.perf_counter(), data))
        assert self._done is not None
        if first:
            if not data.startswith(b"HTTP/1.1 200 "):
                self._done.set_exception(LoadError(f"expected a 200, got {data[:300]!r}"))
                return
            self._left = _body_end(data)
        if self._left is not None:
            self._left -= len(data)
            if self._left <= 0:
                self._done.set_result(None)
            return
        self._tail = (self._tail + data)[-len(_END_OF_CHUNKS) :]
        if self._tail == _END_OF_CHUNKS:
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(LoadError(f"the server closed the connection in the middle of an answer: {exc}"))

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


def _body_end(data: bytes) -> int | None:
    """How long head and body are together; None for a chunked body. Servers here send the head in one piece."""
    head, blank, _ = data.partition(b"\r\n\r\n")
    if not blank:
        raise LoadError(f"a head in pieces: {data[:300]!r}")
    _, found, rest = head.lower().partition(b"\r\ncontent-length: ")
    return len(head) + 4 + int(rest.partition(b"\r\n")[0]) if found else None


async def connect(address: tuple[str, int] | Path, num: int) -> list[Connection]:
    """Connections to a TCP address or a Unix socket."""
    loop = asyncio.get_running_loop()
    if isinstance(address, Path):
        return [(await loop.create_unix_connection(Connection, str(address)))[1] for _ in range(num)]
    return [(await loop.create_connection(Connection, *address))[1] for _ in range(num)]


async def closed_loop(
    connections: Sequence[Connection], make: Callable[[int], bytes], *, seconds: float
) -> list[Answer]:
    """Every connection asks again as soon as it is answered; `make` gives connection i its next request."""
    end = time.perf_counter() + seconds
    answers: list[Answer] = []

    async def talk(number: int, connection: Connection) -> None:
        while time.perf_counter() < end:
            answers.append(await connection.ask(make(number)))

    await _together(talk(i, c) for i, c in enumerate(connections))
    return answers


async def open_loop(
    connections: Sequence[Connection], make: Callable[[int], bytes], *, per_s: float, seconds: float
) -> list[Answer]:
    """`per_s` requests a second in total, evenly spaced whatever the answers do; connections take turns.

    A request that is still waiting for its connection's last answer has been due all that time.
    """
    begin = time.perf_counter() + 0.05
    answers: list[Answer] = []

    async def talk(number: int, connection: Connection) -> None:
        for turn in count():
            due_in = (turn * len(connections) + number) / per_s
            if due_in >= seconds:
                return
            request = make(number)
            await asyncio.sleep(begin + due_in - time.perf_counter())
            answers.append(await connection.ask(request, begin + due_in))

    await _together(talk(i, c) for i, c in enumerate(connections))
    return answers


async def all_at_once(connections: Sequence[Connection], make: Callable[[int], bytes], *, over_s: float) -> list[Answer]:
    """One request for each connection, begun evenly over `over_s` seconds."""
    return await open_loop(connections, make, per_s=len(connections) / over_s, seconds=over_s)


async def _together(talks: Callable[[], None] | object) -> None:
    async with asyncio.TaskGroup() as group:
        for talk in talks:  # type: ignore[attr-defined]
            group.create_task(talk)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100).__int__() - 1)]
