"""Requests as bytes -> answers with the times at which they came. The load generator of the benchmarks.

HTTP/1.1 written by hand over bare event-loop protocols: what it costs stands on the same cores as what it measures, so
it does as little as possible while the clock runs and takes answers apart afterwards. It knows no dialect and no
gateway; `gateway.py` says what is sent where.
"""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from pathlib import Path
from typing import cast

_END_OF_CHUNKS = b"\r\n0\r\n\r\n"

Make = Callable[[int], bytes]
"""Gives connection i its next request."""


class LoadError(Exception):
    """A request was not answered as the benchmark needs it: no figure is worth anything then."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: when its request was due, and its bytes with the times at which they arrived."""

    due_at: float
    arrivals: Sequence[tuple[float, bytes]]

    @property
    def ended_at(self) -> float:
        return self.arrivals[-1][0]

    @property
    def seconds(self) -> float:
        return self.ended_at - self.due_at

    def header(self, name: str) -> str:
        """The value of a header, its name spelled as the server spells it; "" if there is none."""
        head, _, _ = self.arrivals[0][1].decode("latin-1").partition("\r\n\r\n")
        return head.partition(f"\r\n{name}: ")[2].partition("\r\n")[0]

    def event_times(self, marker: bytes) -> list[float]:
        """When each event that holds `marker` had arrived, in seconds after the request was due."""
        ends = list(accumulate(len(part) for _, part in self.arrivals))
        whole = b"".join(part for _, part in self.arrivals)
        times: list[float] = []
        at = whole.find(marker)
        while at >= 0:
            times.append(self.arrivals[bisect_left(ends, at + len(marker))][0] - self.due_at)
            at = whole.find(marker, at + 1)
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
        self._done = asyncio.get_running_loop().create_future()
        self._arrivals = []
        self._tail = b""
        began_at = time.perf_counter()
        self._transport.write(request)
        await self._done
        return Answer(began_at if due_at is None else due_at, self._arrivals)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has another base class

    def data_received(self, data: bytes) -> None:
        assert self._done is not None
        self._arrivals.append((time.perf_counter(), data))
        if len(self._arrivals) == 1:
            try:
                self._left = _answer_bytes(data)
            except LoadError as error:
                self._done.set_exception(error)
                return
        if self._left is None:
            self._tail = (self._tail + data)[-len(_END_OF_CHUNKS) :]
            ended = self._tail == _END_OF_CHUNKS
        else:
            self._left -= len(data)
            ended = self._left <= 0
        if ended:
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(LoadError(f"the server closed the connection in the middle of an answer: {exc}"))

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


def _answer_bytes(first: bytes) -> int | None:
    """How long head and body will be together; None for a chunked body. Both our servers send the head in one piece."""
    head, blank, _ = first.partition(b"\r\n\r\n")
    if not blank or not head.startswith(b"HTTP/1.1 200 "):
        raise LoadError(f"expected a 200, got {first[:400]!r}")
    _, found, rest = head.lower().partition(b"\r\ncontent-length: ")
    return len(head) + 4 + int(rest.partition(b"\r\n")[0]) if found else None


async def connect(address: tuple[str, int] | Path, num: int) -> list[Connection]:
    """Connections to a TCP address or a Unix socket."""
    loop = asyncio.get_running_loop()
    if isinstance(address, Path):
        return [(await loop.create_unix_connection(Connection, str(address)))[1] for _ in range(num)]
    return [(await loop.create_connection(Connection, *address))[1] for _ in range(num)]


async def closed_loop(connections: Sequence[Connection], make: Make, *, seconds: float) -> list[Answer]:
    """Every connection asks again as soon as it is answered."""
    end = time.perf_counter() + seconds
    answers: list[Answer] = []

    async def talk(number: int, connection: Connection) -> None:
        while time.perf_counter() < end:
            answers.append(await connection.ask(make(number)))

    await _all(talk(i, c) for i, c in enumerate(connections))
    return answers


async def open_loop(connections: Sequence[Connection], make: Make, *, per_s: float, seconds: float) -> list[Answer]:
    """`per_s` requests a second in total, evenly spaced whatever the answers do; connections take turns.

    A request that must wait until its connection has the answer to the one before has been due all that time.
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

    await _all(talk(i, c) for i, c in enumerate(connections))
    return answers


async def _all(talks: Iterable[Coroutine[None, None, None]]) -> None:
    tasks = [asyncio.ensure_future(talk) for talk in talks]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest of the values that at least `percent` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def best_rate(answers: Sequence[Answer], *, begin: float, window_s: float, num_windows: int) -> float:
    """Answers a second in the best of the windows that follow one another from `begin` on."""
    counts = [0] * num_windows
    for answer in answers:
        window = int((answer.ended_at - begin) / window_s)
        if window < num_windows:
            counts[window] += 1
    return max(counts) / window_s
