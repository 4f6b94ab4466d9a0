"""What a person does on the page: say something, and wait for the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


def say(page: Page, text: str) -> Locator:
    """Types and sends; returns the turn once it is answered."""
    before = page.locator(".turn").count()
    page.get_by_role("textbox", name="Say something…").fill(text)
    page.keyboard.press("Enter")
    turn = page.locator(".turn").nth(before)
    turn.wait_for()
    page.locator(".answer.going").wait_for(state="detached")
    return turn


def answer_of(turn: Locator) -> str:
    return turn.locator(".answer .prose").first.inner_text()


def session_of(page: Page) -> str:
    """The conversation that the address names."""
    return page.url.partition("#/chat/")[2]
