"""Lessons, versions, the machine, settings and data, as a person uses them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.page.conftest import Open, filled, write_script
from tests.page.talking import say, session_of
from tests.server import Server

REPLIES = [{"match": "gravity", "reply": "Gravity pulls all things together."}]
NUM_TURNS, NUM_VERSIONS = 40, 8


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("lessons")
    filled(folder / "data", num_turns=NUM_TURNS, num_versions=NUM_VERSIONS)
    script = write_script(folder / "script.json", REPLIES)
    with Server(folder / "data", script, "evaluation.judge=rules") as running:
        yield running


def test_a_sentence_is_a_lesson_that_can_be_edited_and_rejected(server: Server, open_page: Open) -> None:
    page = open_page(server)
    turn = say(page, "what is gravity")
    say(page, "no, shorter please")
    turn.get_by_text("waits for its step").wait_for()
    page.goto(f"{server.url}/ui/#/lessons?session={session_of(page)}")
    page.get_by_role("button", name="no, shorter please").click()
    lesson = page.locator(".lesson")
    lesson.locator(".tokens .tok").first.wait_for()
    assert lesson.locator(".tokens").first.inner_text() == "Gravity pulls all things together.◼", (
        "and the sign that ends it"
    )
    assert "what is gravity" in lesson.inner_text()
    lesson.get_by_role("button", name="Edit the wish").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("Answer in one short sentence.")
    page.get_by_role("button", name="Learn this").click()
    lesson.get_by_text("“Answer in one short sentence.”").wait_for()
    lesson.get_by_role("button", name="Do not learn it").click()
    page.get_by_role("dialog").get_by_role("button", name="Do not learn it").click()
    lesson.locator(".head").get_by_text("Left out").wait_for()


def test_tokens_tell_their_way_to_eyes_ears_and_keys(server: Server, open_page: Open) -> None:
    page = open_page(server)
    turn = say(page, "what is gravity")
    say(page, "no, shorter please")
    turn.get_by_text("waits for its step").wait_for()
    turn.get_by_role("link", name="See the whole lesson").click()
    first = page.locator(".tokens .tok").first
    first.focus()
    assert page.locator("#tip").count() == 1
    assert first.get_attribute("aria-label")
    page.keyboard.press("ArrowRight")
    assert page.locator(".tokens .tok").nth(1).evaluate("it => it === document.activeElement")
    page.keyboard.press("Escape")
    assert page.locator("#tip").count() == 0
    assert page.locator(".legend").count() >= 1


def test_lessons_are_filtered_and_what_was_left_out_is_explained(server: Server, open_page: Open) -> None:
    page = open_page(server, "#/lessons")
    page.locator(".lesson").first.wait_for()
    page.get_by_label("Verdict").select_option("good")
    page.get_by_text("No lesson is like that").or_(page.locator(".lesson")).first.wait_for()
    page.get_by_role("link", name="Clear").click()
    page.locator(".lesson").first.wait_for()
    page.get_by_text("not learned from. Why?").click()
    page.get_by_role("columnheader", name="What would change it").wait_for()


def test_versions_are_a_line_with_checks_and_comparisons(server: Server, open_page: Open) -> None:
    page = open_page(server, "#/versions")
    page.get_by_text("answers you now").wait_for()
    page.get_by_role("button", name="v5", exact=False).first.click()
    page.get_by_role("heading", name="v5").wait_for()
    page.get_by_label("Compare with").select_option("v3")
    page.get_by_role("heading", name="v5 beside v3").wait_for()
    page.get_by_role("heading", name="Over the versions").wait_for()
    page.get_by_role("button", name="v0", exact=False).first.click()
    page.get_by_text("as it came, before it learned anything").wait_for()


def test_two_versions_are_asked_the_same(server: Server, open_page: Open) -> None:
    page = open_page(server, "#/versions")
    page.get_by_label("Right", exact=True).select_option("v0")
    page.get_by_label("Ask anything, or choose").fill("what is gravity")
    page.get_by_role("button", name="Ask both").click()
    page.locator(".sides .prose", has_text="Gravity pulls").nth(1).wait_for()


def test_the_machine_has_a_light_for_every_stage(server: Server, open_page: Open) -> None:
    page = open_page(server, "#/machine")
    stages = page.locator(".loop > li")
    stages.nth(5).wait_for()
    assert stages.locator("h3").all_inner_texts() == ["Captured", "Judged", "Credited", "Trained", "Checked", "Live"]
    assert stages.locator(".light .unseen").count() == 6, "a light is a word, too"
    page.get_by_role("heading", name="Disk").wait_for()


def test_settings_are_found_with_the_command_that_changes_them(server: Server, open_page: Open) -> None:
    page = open_page(server, "#/settings")
    page.get_by_label("Search settings").fill("training.batch_size")
    row = page.locator(".setting", has_text="training.batch_size").first
    row.get_by_text("How to change it").click()
    assert "training.batch_size" in row.locator(".command code").inner_text()
    page.get_by_label("Search settings").fill("")
    page.get_by_label("only what was changed").check()
    page.locator(".setting", has_text="engine.type").wait_for()


def test_colours_are_chosen_and_kept(server: Server, open_page: Open) -> None:
    page = open_page(server, "#/settings", color_scheme="light")
    page.get_by_label("Colours", exact=True).select_option("dark")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.reload()
    page.locator("#nav").wait_for()
    assert page.locator("html").get_attribute("data-theme") == "dark"


@pytest.mark.page
def test_what_one_said_is_taken_along_and_forgotten(server: Server, open_page: Open) -> None:
    page = open_page(server)
    say(page, "what is gravity")
    say(page, "no, shorter please")
    page.goto(f"{server.url}/ui/#/lessons?session={session_of(page)}")
    page.get_by_role("button", name="no, shorter please").click()
    page.get_by_role("button", name="Forget the conversation").click()
    page.get_by_role("button", name="Delete for good").click()
    page.locator(".lesson").wait_for(state="detached")
    page.goto(f"{server.url}/ui/#/settings")
    with page.expect_download() as taken:
        page.get_by_role("link", name="Download everything").click()
    assert "what is gravity" not in taken.value.path().read_text()
    page.get_by_role("button", name="Forget me").click()
    yes = page.get_by_role("button", name="Delete for good")
    assert yes.is_disabled(), "first one types who it is"
    page.get_by_label("Type local to confirm").fill("local")
    yes.click()
    page.get_by_text("0 conversations, 0 answers, 0 versions").wait_for()
