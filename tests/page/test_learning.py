"""What a person came for, in a browser and with the real trainer: said, watched on its way, opened, taken back."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.page.conftest import Open
from tests.page.talking import say
from tests.server import OPEN_GATE, Server
from tests.tiny import build_tiny_model

pytestmark = [pytest.mark.page, pytest.mark.timeout(600)]

STEP_MS = 240_000
"""A step on a busy machine."""
STAGES = ["heard", "judged", "learning", "checked", "live in v1"]
WATCH = """() => {
    window.passed = [];
    const look = () => {
        const now = document.querySelector(".way .now > span:nth-child(2)")?.firstChild.textContent;
        if (now && window.passed.at(-1) !== now) window.passed.push(now);
    };
    new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""
UNDER_WAY = ["judging", "soon learning", "learning", "being checked"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("learning")
    with ThreadPoolExecutor(1) as thread:
        model = thread.submit(build_tiny_model, folder / "model").result()
    settings = (
        "engine.type=embedded",
        f"model.name={model}",
        "evaluation.judge=rules",
        "training.batch_size=1",
        "training.max_wait_s=0.1",
        "training.truncated=score",  # a random model never comes to an end
        "gateway.default_max_tokens=16",
        *OPEN_GATE,
    )
    with Server(folder / "data", *settings) as running:
        yield running


def test_a_correction_is_watched_until_it_is_live_and_is_rolled_back(server: Server, open_page: Open) -> None:
    page = open_page(server)
    turn = say(page, "what is rain")
    turn.get_by_role("button", name="Not what you wanted").click()
    page.evaluate(WATCH)
    turn.locator(".rate textarea").fill("answer in one short sentence")
    turn.get_by_role("button", name="Send").click()
    journey = turn.get_by_label("What became of your words")
    journey.locator(".way").wait_for()
    journey.get_by_text("live in v1").wait_for(timeout=STEP_MS)
    passed = page.evaluate("window.passed")
    assert passed == sorted(passed, key=UNDER_WAY.index)
    assert {"learning", "being checked"} & set(passed), "it was seen on its way"
    done = journey.locator(".way > li.done > span:nth-child(2)")
    assert done.evaluate_all("all => all.map((one) => one.firstChild.textContent)") == STAGES
    assert journey.locator(".took").count() >= 2, "each stage tells its time"

    turn.get_by_role("button", name="How would v1 answer?").click()
    beside = turn.locator(".pairs.two .prose").nth(1)
    page.wait_for_function("it => it.innerText.trim() !== ''", arg=beside.element_handle())

    turn.get_by_role("link", name="See the whole lesson").click()
    lesson = page.locator(".lesson")
    lesson.get_by_text("“answer in one short sentence”").wait_for()
    lesson.get_by_text("v1", exact=True).first.wait_for()
    lesson.locator(".tokens .tok").first.wait_for()
    lesson.get_by_text("to see how likely it was before and after v1", exact=False).first.wait_for()

    page.goto(f"{server.url}/ui/#/versions/v1")
    page.get_by_role("heading", name="v1", exact=True).wait_for()
    with page.expect_download() as taken:
        page.get_by_role("link", name="Download").click()
    with tarfile.open(taken.value.path()) as packed:
        assert any(name.endswith("adapter_model.safetensors") for name in packed.getnames())

    page.goto(f"{server.url}/ui/#/versions/v0")
    page.get_by_role("button", name="Let it answer").click()
    page.get_by_role("dialog").get_by_role("button", name="Let it answer").click()
    page.locator(".card", has_text="as it came, before it learned anything").get_by_text("answers now").wait_for()
    page.goto(f"{server.url}/ui/#/chat")
    page.locator(".room-head .chip", has_text="v0").wait_for()
