"""The first page, as a person uses it, in a real browser before the real server."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.page.conftest import Open, write_script
from tests.page.talking import answer_of, say, session_of
from tests.server import Server
from tests.wire.browsing import new_link

REPLIES = [
    {
        "match": "rainbow",
        "reply": "A rainbow has **seven** colours:\n\n1. red\n2. orange\n\n```python\nprint('rain')\n```",
    },
    {"match": "count slowly", "reply": " ".join(str(number) for number in range(400))},
    {"match": "gravity", "reply": "Gravity pulls things together."},
    {"match": "shorter", "reply": "It pulls."},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("chat")
    script = write_script(folder / "script.json", REPLIES)
    with Server(folder / "data", script, "engine.scripted.tokens_per_s=400") as running:
        yield running


def test_a_person_asks_corrects_and_sees_what_became_of_it(server: Server, open_page: Open) -> None:
    page = open_page(server)
    assert "#link=" not in page.url, "the link is used once and stands nowhere"
    page.get_by_role("heading", name="What would you like to talk about?").wait_for()
    turn = say(page, "what is gravity")
    assert answer_of(turn) == "Gravity pulls things together."
    assert re.fullmatch(r"page-\w+", session_of(page))
    say(page, "no, shorter please")
    journey = turn.get_by_label("What became of your words")
    journey.get_by_text("Not what was wanted").wait_for()
    assert "no, shorter please" in journey.inner_text()
    page.reload()
    page.locator(".turn").nth(1).wait_for()
    assert page.locator(".bubble").all_text_contents() == ["You: what is gravity", "You: no, shorter please"]


def test_an_answer_is_drawn_and_not_pasted(server: Server, open_page: Open) -> None:
    turn = say(open_page(server), "a rainbow please")
    prose = turn.locator(".prose").first
    assert prose.locator("strong").inner_text() == "seven"
    assert prose.locator("ol > li").all_inner_texts() == ["red", "orange"]
    assert prose.locator("pre code").inner_text() == "print('rain')"
    assert turn.get_by_role("button", name="Copy", exact=True).count() == 1


def test_an_answer_can_be_stopped(server: Server, open_page: Open) -> None:
    page = open_page(server)
    page.get_by_role("textbox", name="Say something…").fill("count slowly")
    page.get_by_role("button", name="Send").click()
    page.locator(".answer.going .prose", has_text="1 2 3").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped before the end.").wait_for()
    assert not page.locator(".prose").first.inner_text().endswith("399")
    assert answer_of(say(page, "what is gravity")) == "Gravity pulls things together."


def test_another_answer_and_an_edited_question_are_alternatives(server: Server, open_page: Open) -> None:
    page = open_page(server)
    turn = say(page, "what is gravity")
    turn.get_by_role("button", name="Another answer").click()
    page.get_by_text("2 / 2").wait_for()
    page.locator(".answer.going").wait_for(state="detached")
    page.locator(".turn").get_by_role("button", name="Edit your message").click()
    page.locator(".turn textarea").fill("a rainbow please")
    page.get_by_role("button", name="Ask again").click()
    page.locator(".prose strong").wait_for()
    page.get_by_text("3 / 3").wait_for()
    page.get_by_role("button", name="The one before").click()
    page.get_by_text("2 / 3").wait_for()
    assert page.locator(".bubble").all_text_contents() == ["You: what is gravity"]


def test_a_thumb_and_a_sentence_are_heard(server: Server, open_page: Open) -> None:
    page = open_page(server)
    turn = say(page, "what is gravity")
    turn.get_by_role("button", name="Not what you wanted").click()
    turn.locator(".rate textarea").fill("answer in one short sentence")
    turn.get_by_role("button", name="Send").click()
    turn.get_by_label("What became of your words").get_by_text("Not what was wanted").wait_for()
    assert turn.get_by_role("button", name="Not what you wanted").get_attribute("aria-pressed") == "true"
    other = say(page, "what is gravity, once more")
    other.get_by_role("button", name="Good answer").click()
    page.get_by_role("button", name="That is all").click()
    assert other.get_by_role("button", name="Good answer").get_attribute("aria-pressed") == "true"


def test_a_private_chat_is_marked_and_offers_no_thumbs(server: Server, open_page: Open) -> None:
    page = open_page(server)
    page.get_by_role("button", name="New private chat").click()
    page.get_by_role("heading", name="A private chat").wait_for()
    turn = say(page, "what is gravity")
    assert turn.get_by_role("button", name="Good answer").count() == 0
    assert page.get_by_role("button", name="This conversation is private, and stays so").is_disabled()
    page.locator(".talk[aria-current] svg").wait_for()
    say(page, "no, shorter please")
    assert page.locator(".journey").count() == 0


def test_several_windows_show_the_same_conversation(server: Server, open_page: Open) -> None:
    page = open_page(server)
    say(page, "what is gravity")
    other = open_page(server, f"#/chat/{session_of(page)}", is_new=False)
    other.locator(".turn").wait_for()
    say(page, "no, shorter please")
    other.locator(".bubble", has_text="no, shorter please").wait_for()


def test_a_dead_link_leads_to_the_door_and_a_key_opens_it(server: Server, open_page: Open) -> None:
    link = new_link(server)
    page = open_page(server, calm=False)
    page.context.clear_cookies()
    page.goto("about:blank")
    page.goto(link)
    page.locator("#nav a").first.wait_for()
    page.context.clear_cookies()
    page.goto("about:blank")
    page.goto(link)
    page.get_by_role("heading", name="Sign in", exact=True).wait_for()
    page.get_by_label("Key (it begins with ocrl-)").fill("ocrl-wrong")
    page.get_by_role("button", name="Sign in").click()
    page.locator(".failed", has_text="key").wait_for()
    page.get_by_label("Key (it begins with ocrl-)").fill(server.key)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="What would you like to talk about?").wait_for()
    assert server.key not in page.url
    page.goto(f"{server.url}/ui/#/settings")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in", exact=True).wait_for()


def test_it_is_read_in_chinese(server: Server, open_page: Open) -> None:
    page = open_page(server)
    page.get_by_label("Language").select_option("zh")
    page.get_by_role("heading", name="想聊点什么？").wait_for()
    assert page.locator("html").get_attribute("lang") == "zh"
    page.reload()
    page.get_by_role("link", name="学到的").wait_for()


def test_everything_can_be_done_with_keys_alone(server: Server, open_page: Open) -> None:
    page = open_page(server)
    page.keyboard.type("what is gravity")
    page.keyboard.press("Enter")
    page.locator(".prose", has_text="pulls").wait_for()
    page.get_by_role("button", name="Not what you wanted").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("shorter")
    page.keyboard.press("Escape")
    assert page.locator(".rate textarea").count() == 0
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.locator("#main:focus").count() == 1
