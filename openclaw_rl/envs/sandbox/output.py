"""A pipe that a command writes to -> the head of what it said. The rest is read and thrown away, at a pace of ours."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress

from openclaw_rl.types import Ran

_CHUNK = 256 * 1024
_PIPE_BYTES = 1 << 20
_PAUSE_S = 0.005
"""Between two reads of what is thrown away: a program that never stops writing must not keep this process busy."""


class Output:
    """Reads `pipe` until all who may write to it are gone, or `close`."""

    def __init__(self, pipe: int, max_kept: int) -> None:
        self.begin()
        self._pipe = pipe
        self._max_kept = max_kept
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        os.set_blocking(pipe, False)
        self._loop.add_reader(pipe, self._read)

    def drain(self) -> None:
        """Takes what has been written by now: of a program that has ended, all of it."""
        for _ in range(2 * _PIPE_BYTES // _CHUNK):
            if self._pipe < 0 or not self._take():
                return

    def begin(self, on_data: Callable[[bytes], None] | None = None) -> None:
        """What comes from here on is another command's; `on_data` sees every byte of it."""
        self.kept = bytearray()
        self.total = 0
        self._on_data = on_data

    def forget(self) -> None:
        """What comes is read, so that whoever runs in the background can go on writing, but nobody wants it."""
        self._max_kept = 0
        self.begin()

    @property
    def is_closed(self) -> bool:
        return self._pipe < 0

    def close(self) -> None:
        if self._pipe >= 0:
            self._rest()
            os.close(self._pipe)
            self._pipe = -1

    def _read(self) -> None:
        if self._take() and self.total > self._max_kept:
            self._rest()
            self._pause = self._loop.call_later(_PAUSE_S, self._resume)

    def _take(self) -> bool:
        try:
            data = os.read(self._pipe, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self.kept += data[: max(0, self._max_kept - len(self.kept))]
        self.total += len(data)
        if self._on_data is not None:
            self._on_data(data)
        return True

    def _rest(self) -> None:
        self._loop.remove_reader(self._pipe)
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._pipe, self._read)


def output_pipe() -> tuple[int, int]:
    """As wide as an ordinary user's may be."""
    reads, writes = os.pipe()
    with suppress(PermissionError):  # this user has many pipes; a narrow one does as well
        fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return reads, writes


def ran(exit_code: int | None, kept: bytes | bytearray, total: int, max_kept: int) -> Ran:
    """Bytes that are no text become U+FFFD, and so does NUL, which not every store can keep."""
    is_cut = total > max_kept
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    text = decoder.decode(bytes(kept[:max_kept]), final=not is_cut)  # a character that was cut in two is left out
    return Ran(exit_code=exit_code, output=text.replace("\0", "\N{REPLACEMENT CHARACTER}"), is_cut=is_cut)
