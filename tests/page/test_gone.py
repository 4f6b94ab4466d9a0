"""The server dies, comes back, or is slow: the page says so, goes on, and loses nothing that was typed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.page.conftest import Open, write_script
from tests.page.talking import answer_of, say
from tests.server import Server

REPLIES = [
    {"match": "count slowly", "reply": " ".join(str(number) for number in range(400))},
    {"match": "gravity", "reply": "Gravity pulls things together."},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("gone")
    script = write_script(folder / "script.json", REPLIES)
    with Server(folder / "data", script, "engine.scripted.tokens_per_s=100") as running:
        yield running


def test_the_server_is_killed_in_the_middle_and_comes_back(server: Server, open_page: Open) -> None:
    page = open_page(server, calm=False)
    say(page, "what is gravity")
    box = page.get_by_role("textbox", name="Say something…")
    box.fill("count slowly")
    page.keyboard.press("Enter")
    page.locator(".answer.going .prose", has_text="1 2 3").wait_for()
    server.kill()
    page.get_by_text("The server does not answer.").wait_for()
    page.get_by_text("The connection was lost before the answer was complete.").wait_for()
    assert box.input_value() == "count slowly", "what was said and not answered is back where it was typed"
    box.fill("typed while nobody answered")
    server.start(port=int(server.url.rpartition(":")[2]))
    page.get_by_text("The server is back.").wait_for()
    assert box.input_value() == "typed while nobody answered"
    turn = say(page, "what is gravity, again")
    assert answer_of(turn) == "Gravity pulls things together."


def test_what_is_typed_survives_a_reload(server: Server, open_page: Open) -> None:
    page = open_page(server)
    say(page, "what is gravity")
    page.get_by_role("textbox", name="Say something…").fill("half a sentence")
    page.reload()
    page.locator(".turn").wait_for()
    assert page.get_by_role("textbox", name="Say something…").input_value() == "half a sentence"


@pytest.mark.page
def test_a_slow_connection_is_slow_and_nothing_else(server: Server, open_page: Open) -> None:
    page = open_page(server)
    wire = page.context.new_cdp_session(page)
    wire.send("Network.enable")
    slow = {"offline": False, "latency": 400, "downloadThroughput": 20_000, "uploadThroughput": 10_000}
    wire.send("Network.emulateNetworkConditions", slow)
    page.reload()
    turn = say(page, "what is gravity")
    assert answer_of(turn) == "Gravity pulls things together."
