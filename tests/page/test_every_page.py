"""Every page in both themes and widths: nothing serious for axe, nothing sticks out, scrolling never freezes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import page_in_browser as measures
from tests.page.conftest import Open, filled
from tests.page.talking import say
from tests.server import Server

pytestmark = [pytest.mark.page, pytest.mark.timeout(600)]

AXE = "axe-core@4.14.1"
PAGES = ("#/chat", "#/lessons", "#/versions", "#/machine", "#/settings")
NUM_TURNS, NUM_VERSIONS = 10_000, 300
SERIOUS = """async () => (await axe.run(document)).violations
    .filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => one.id + ": " + one.nodes.slice(0, 3).map((it) => it.html).join(" | "))"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("every")
    data_dir = filled(folder / "data", num_turns=NUM_TURNS, num_versions=NUM_VERSIONS)
    with Server(data_dir, "evaluation.judge=rules") as running:
        yield running


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("npm") is None:
        pytest.skip("axe-core comes from the npm registry, and there is no npm")
    folder: Path = tmp_path_factory.mktemp("axe")
    command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", AXE]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip(f"{AXE} could not be fetched from the npm registry")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_axe_finds_nothing_serious(server: Server, open_page: Open, axe: str, theme: str, width: int) -> None:
    page = open_page(server, color_scheme=theme, viewport={"width": width, "height": 800})
    turn = say(page, "what is rain")
    say(page, "no, shorter please")
    turn.get_by_text("Not what was wanted").wait_for()
    for place in PAGES:
        if place != "#/chat":
            page.goto(f"{server.url}/ui/{place}")
            page.locator(".page h1").wait_for()
        if place == "#/lessons":
            page.locator(".lesson-open").first.click()
            page.locator(".steps").wait_for()
        page.wait_for_timeout(600)
        page.evaluate(axe)
        assert page.evaluate(SERIOUS) == [], place
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{place} is wider than the screen"


@pytest.mark.parametrize("place", ["#/chat", "#/lessons"])
def test_ten_thousand_turns_scroll_like_fifty(server: Server, open_page: Open, place: str) -> None:
    page = open_page(server, place)
    page.locator(".lesson, .talk").first.wait_for()
    told = page.evaluate(measures.LONGEST_TASK)
    assert told["rows"] < 1500, "rows far out of sight are given back"


def test_three_hundred_versions_are_a_graph(server: Server, open_page: Open) -> None:
    page = open_page(server, "#/versions")
    measures.show_all(page)
    assert page.locator(".node").count() == NUM_VERSIONS + 1
