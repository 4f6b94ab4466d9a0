"""How long the page takes in a real browser, with 10,000 turns and 300 versions in the store.

    python -m benchmarks.page_in_browser [--turns 10000] [--versions 300]

Prints two tables. First paint: from the address to the first words on the screen, in a browser that has nothing of the
page yet; the slowest of five counts. Scrolling: the longest that anything held up the page while a person scrolls
through the list for five seconds; below 50 ms a browser counts nothing. Needs playwright and a Chromium.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.page import fill
from tests.page.chromium import chromium_path
from tests.server import Server
from tests.wire.browsing import new_link

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROUNDS = 5
PAGES = ("#/chat", "#/lessons", "#/versions", "#/machine", "#/settings")
FIRST_PAINT = """() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime"""
LONGEST_TASK = """async () => {
    const place = document.querySelector(".turns") ?? document.scrollingElement;
    const list = document.querySelector(".talks .list");
    let longest = 0;
    const watch = new PerformanceObserver((seen) => seen.getEntries().forEach((one) => {
        longest = Math.max(longest, one.duration);
    }));
    watch.observe({ type: "longtask" });
    for (let step = 0; step < 150; step += 1) {
        place.scrollBy(0, 900);
        list?.scrollBy(0, 900);
        await new Promise((resolve) => setTimeout(resolve, 30));
    }
    watch.disconnect();
    return { longest, rows: document.querySelectorAll(".lesson, .talk, .node").length };
}"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--versions", type=int, default=300)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder) / "data"
        data_dir.mkdir(mode=0o700)
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(fill(data_dir, given.turns, given.versions))).result()
        with Server(data_dir, "evaluation.judge=rules") as server, chromium() as browser:
            print(f"first paint, ms: median and slowest of {ROUNDS}")
            for place in PAGES:
                times = [first_paint(browser, server, place) for _ in range(ROUNDS)]
                print(f"{statistics.median(times):8.0f} {max(times):8.0f}  {place}")
            print("scrolling: longest that it was held up, ms; rows in the page at its end")
            for place, row in (("#/chat", ".talk"), ("#/lessons", ".lesson"), ("#/versions", ".node")):
                page = signed_in(browser, server)
                page.goto(f"{server.url}/ui/{place}")
                page.locator(row).first.wait_for()
                if place == "#/versions":
                    show_all(page)
                told = page.evaluate(LONGEST_TASK)
                print(f"{told['longest']:8.0f} {told['rows']:8}  {place}")
                page.context.close()


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    path = chromium_path()
    if path is None:
        raise SystemExit("no browser: put chromium on the PATH, or name one by OPENCLAW_RL_CHROMIUM")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def signed_in(browser: Browser, server: Server) -> Page:
    page = browser.new_context(viewport={"width": 1440, "height": 800}).new_page()
    page.goto(new_link(server))
    page.locator("#nav a").first.wait_for()
    return page


def first_paint(browser: Browser, server: Server, place: str) -> float:
    """Signed in, and with nothing of the page in its cache."""
    known = signed_in(browser, server)
    fresh = browser.new_context(viewport={"width": 1440, "height": 800}, storage_state=known.context.storage_state())
    known.context.close()
    page = fresh.new_page()
    page.goto(f"{server.url}/ui/{place}")
    page.locator("#nav a").first.wait_for()
    time_ms = float(page.wait_for_function(FIRST_PAINT).json_value())
    fresh.close()
    return time_ms


def show_all(page: Page) -> None:
    """Every version in the graph."""
    more = page.get_by_role("button", name="Show more")
    page.locator(".node").nth(50).wait_for()
    while more.count():
        before = page.locator(".node").count()
        more.click()
        page.locator(".node").nth(before).wait_for()


if __name__ == "__main__":
    main()
