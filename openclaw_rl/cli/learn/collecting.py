"""`openclaw-rl rollouts collect`: a server's settled turns to JSON lines, until Ctrl-C. Knows HTTP and files only.

    consumes      the caller's own turns, as `/v1/rollouts` tells them
    produces      lines in files; the cursor is saved after them, so that a kill repeats some and loses none
    waits for     the server's next settled turn
    woken by      the server's answer, or Ctrl-C

At the end the turns that nothing has followed yet are written too, with a `next_state` of null. A server that goes away
is waited for, but one that was never there is an error.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path

from rich.markup import escape

from openclaw_rl.backoff import Backoff
from openclaw_rl.cli.address import ServerGone
from openclaw_rl.cli.client import GatewayClient, RolloutPage, ServerRefused
from openclaw_rl.cli.learn.rollout_files import RolloutFiles
from openclaw_rl.cli.screen import make_console

_PAGE = 50
_WAIT_S = 25.0
_BACKOFF = Backoff(first_s=1.0, longest_s=30.0)


def run_collect(url: str, key: str | None, folder: Path, *, session_aware: bool) -> None:
    """Writes until Ctrl-C or SIGTERM, and says how it goes on standard error."""
    with RolloutFiles(folder, session_aware=session_aware) as files:
        asyncio.run(_until_told(url, key, folder, files))


async def _until_told(url: str, key: str | None, folder: Path, files: RolloutFiles) -> None:
    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    console, before = make_console("stderr"), files.num_turns
    async with GatewayClient(url, key, name="openclaw-rl-rollouts") as client:
        collector = Collector(client, files, stop)
        await collector.begin()
        here = f" ({before} turns are there already)" if before else ""
        console.print(f"Collecting from {url} into {folder}{here}. Ctrl-C ends it.", markup=False, soft_wrap=True)
        status = console.status("…", spinner_style="dim") if console.is_terminal else None
        show = (lambda text: status.update(escape(text))) if status else lambda _: None
        with status or nullcontext():
            await collector.follow(show)
        num_open = await collector.write_open()
    new = files.num_turns - before
    if num_open is None:
        rest = "the server is gone: turns that nothing has followed yet are missing, the next run writes them"
    else:
        rest = f"nothing has followed {num_open} of them yet"
    console.print(f"{new} turns written, {files.num_turns} in all; {rest}.", markup=False, soft_wrap=True)


class Collector:
    """Reads pages and writes lines. `stop` ends it between two pages, or in the middle of waiting."""

    def __init__(self, client: GatewayClient, files: RolloutFiles, stop: asyncio.Event) -> None:
        self._client = client
        self._files = files
        self._stop = stop

    async def begin(self) -> None:
        """The first page. A server that is not there, or a key that is not known, shows here."""
        try:
            await self._next_page(wait_s=0.0)
        except ServerRefused as refusal:
            if refusal.status != 404:
                raise
            message = "this server has no /v1/rollouts: it is another program, or an older release"
            raise ServerRefused(message, status=404) from None

    async def follow(self, show: Callable[[str], None]) -> None:
        """All that is settled, and all that settles until `stop`. `show` is told how it stands."""
        num_failures = 0
        while not self._stop.is_set():
            show(f"{self._files.num_turns} turns")
            try:
                await self._next_page(wait_s=_WAIT_S)
                num_failures = 0
            except ServerGone as gone:
                num_failures += 1
                pause_s = _BACKOFF.pause_s(num_failures)
                show(f"{self._files.num_turns} turns; {gone}; trying again in {pause_s:.0f} s")
                await self._or_stop(asyncio.sleep(pause_s))

    async def write_open(self) -> int | None:
        """The turns that something may still follow, as they are; how many, or None if the server is gone."""
        after, num_open = "", 0
        try:
            while (page := await self._client.rollouts(after, limit=_PAGE, state="open")).lines:
                self._files.put(page.lines)
                after, num_open = page.cursor, num_open + len(page.lines)
        except ServerGone:
            return None
        return num_open

    async def _next_page(self, *, wait_s: float) -> None:
        page = await self._or_stop(self._client.rollouts(self._files.cursor, limit=_PAGE, wait_s=wait_s))
        if page is not None:
            self._files.put(page.lines, page.cursor)

    async def _or_stop(self, work: Awaitable[RolloutPage | None]) -> RolloutPage | None:
        """What `work` gives, or None if `stop` comes first."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            return await working if working.done() else None
        finally:
            working.cancel()
            stopping.cancel()
