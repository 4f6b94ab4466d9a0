"""Whatever is said anywhere is text: over a hundred attacks through every door change nothing on any page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx
import pytest

from tests.page.conftest import Open, write_script
from tests.page.hostile import PAYLOADS
from tests.server import Server
from tests.wire.browsing import Browser

if TYPE_CHECKING:
    from playwright.sync_api import Page

NAME = "<img/src=x/onerror=window.hit=1>"
FOUND = """() => ({
    hit: window.hit ?? null,
    tags: [...document.querySelectorAll(
        "script:not([src]), iframe, object, embed, img, video, audio, base, style, marquee, math, meta[http-equiv]"
    )].map((it) => it.outerHTML),
    handlers: [...document.querySelectorAll("*")].filter(
        (it) => [...it.attributes].some((one) => one.name.startsWith("on"))
    ).map((it) => it.outerHTML),
    links: [...document.querySelectorAll("a[href]")].map((it) => it.protocol).filter(
        (one) => !["http:", "https:", "mailto:"].includes(one)
    ),
})"""
NOTHING: dict[str, list[str] | None] = {"hit": None, "tags": [], "handlers": [], "links": []}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("hostile")
    numbered = [{"match": f"number {number:03d} ", "reply": text} for number, text in enumerate(PAYLOADS)]
    script = write_script(folder / "script.json", numbered)
    with Server(folder / "data", script, "evaluation.judge=rules", f"model.served_name={NAME}") as running:
        yield running


@pytest.fixture(scope="module")
def said(server: Server) -> list[str]:
    """The sessions in which everything was said: as words and as answers, as tool results, as names, as hints."""
    with Browser.of_owner(server) as browser:
        after, session = None, None
        for number, text in enumerate(PAYLOADS):
            events = browser.say(text=f"number {number:03d} {text}", session=session, after=after)
            after, session = events[0]["turn"], events[0]["session"]
        assert session is not None
        for text in PAYLOADS[:8]:
            browser.post(f"/ui/api/turns/{session}.0/feedback", {"score": -1, "text": f"please say {text}"})
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": json.dumps({"x": NAME})}}
    history = [
        {"role": "system", "content": NAME},
        {"role": "user", "content": "use a tool"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "\n".join(PAYLOADS)},
    ]
    headers = {**server.headers, "X-Session-Id": NAME}
    body = {"messages": history, "model": NAME}
    httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=headers, timeout=60).raise_for_status()
    with Browser.of_owner(server) as browser:
        return [one["id"] for one in browser.get("/ui/api/sessions")["items"]]


def look(page: Page) -> None:
    assert page.evaluate(FOUND) == NOTHING


def test_there_are_enough_of_them() -> None:
    assert len(set(PAYLOADS)) >= 100


def test_nothing_that_is_said_runs(server: Server, said: list[str], open_page: Open) -> None:
    page = open_page(server)
    strangers: list[str] = []
    page.on("request", lambda asked: None if asked.url.startswith(server.url) else strangers.append(asked.url))
    page.on("dialog", lambda dialog: strangers.append(dialog.message))
    own = next(name for name in said if name.startswith("page-"))
    page.goto(f"{server.url}/ui/#/chat/{own}")
    for _ in range(8):  # page after page, up to the beginning
        page.locator(".turns").evaluate("it => it.scrollTo(0, 0)")
        page.wait_for_timeout(150)
    look(page)
    shown = page.locator(".bubble", has_text="number 000 ").text_content()
    assert shown == f"You: number 000 {PAYLOADS[0]}", "an attack is read as it was written"
    other = next(name for name in said if not name.startswith("page-"))
    page.goto(f"{server.url}/ui/#/chat/{quote(other, safe='')}")
    page.locator(".tool summary").first.click()
    page.get_by_text(PAYLOADS[0]).first.wait_for()
    look(page)
    page.goto(f"{server.url}/ui/#/lessons")
    for row in range(3):
        page.locator(".lesson-open").nth(row).click()
    page.locator(".steps").nth(2).wait_for()
    look(page)
    for place in ("versions", "machine", "settings"):
        page.goto(f"{server.url}/ui/#/{place}")
        page.locator(".page h1").wait_for()
        page.wait_for_timeout(200)
        look(page)
    assert strangers == []
