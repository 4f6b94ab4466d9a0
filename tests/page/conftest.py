"""A real browser before the real server. Where there is no browser, these tests are skipped and say so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.page import fill
from tests.page.chromium import NAMES, chromium_path
from tests.server import Server
from tests.wire.browsing import new_link

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

PATIENCE_MS = 20_000
"""How long a test waits for something to appear: the machine may be busy."""

Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of a file: while it is there this thread has a loop that runs, and others want to start theirs."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="no browser: the package playwright is not installed")
    path = chromium_path()
    if path is None:
        pytest.skip("no browser: none of " + ", ".join(NAMES) + " is on the PATH, nor is OPENCLAW_RL_CHROMIUM set")
    with sync_api.sync_playwright() as driver:
        # A box of its own inside a container's box needs rights that tests do not have.
        found = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """A signed-in page of a server. At the end of a test the page must not have complained about anything."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def opened(server: Server, place: str = "#/chat", *, is_new: bool = True, calm: bool = True, **looks: Any) -> Page:
        """`is_new`: another person's browser, with nothing remembered. `calm`: complaints fail the test."""
        if is_new or not contexts:
            contexts.append(browser.new_context(locale="en", **looks))
            contexts[-1].set_default_timeout(PATIENCE_MS)
        page = contexts[-1].new_page()
        if calm:
            page.on("pageerror", lambda error: complaints.append(f"{error.message}\n{error.stack}"))
            page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        if is_new:
            page.goto(new_link(server))
            page.locator("#nav").wait_for()
        if place != "#/chat" or not is_new:
            page.goto(f"{server.url}/ui/{place}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not complaints


def filled(data_dir: Path, *, num_turns: int, num_versions: int) -> Path:
    """A store with so much in it; in a thread of its own, as the browser's loop runs in this one."""
    data_dir.mkdir(mode=0o700)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(fill(data_dir, num_turns, num_versions))).result()
    return data_dir


def write_script(path: Path, replies: list[dict[str, str]]) -> str:
    """The setting by which the scripted engine gives these answers."""
    path.write_text(json.dumps(replies))
    return f"engine.scripted.script={path}"
