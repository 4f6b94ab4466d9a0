"""The prefix cache as an oracle: what a user learns from `cached_tokens` depends on that user's own words alone.

A server over a tiny real model. The victim says a secret; attackers with valid keys of their own try its beginnings,
right and wrong ones, and must see the same numbers for all of them. After the words are forgotten even the victim's
own requests find nothing of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.server import Server
from tests.tiny import build_tiny_model
from tests.wire.asking import Admin, closed, eventually, user

pytestmark = pytest.mark.timeout(180)

SECRET = "482913"
BEFORE = "Dear diary, nobody else shall ever read this page. My code is "
SYSTEM = {"role": "system", "content": "You are the assistant of Ann Lee, who lives in Bern and owns a brown dog."}

_names = count(1)


class Person:
    """A user with a key of their own. `cached` is the number of tokens that a request says it found."""

    def __init__(self, server: Server, name: str = "") -> None:
        self.name = name or f"eve{next(_names)}"
        self._server = server
        with Admin(server) as admin:
            self._key = admin.add_key(self.name)[1]

    def ask(self, text: str, *before: dict[str, Any], headers: dict[str, str] | None = None, **body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self._key}", **(headers or {})}
        response = self._server.chat([*before, user(text)], headers=headers, max_tokens=2, **body)
        assert response.status_code == 200, response.text
        return response

    def cached(self, text: str, *before: dict[str, Any], **options: Any) -> int:
        usage = self.ask(text, *before, **options).json()["usage"]
        found = usage["prompt_tokens_details"]["cached_tokens"]
        assert isinstance(found, int)
        return found


def forget(server: Server, **what: str) -> None:
    with Admin(server) as admin:
        assert admin.forget(**what)["sessions"] > 0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module", params=[False, True], ids=["apart", "share_heads"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Server]:
    settings = (f"model.name={model}", "engine.type=embedded", "release.capability_items=0")
    share = ("engine.share_heads=true",) if request.param else ()
    with Server(tmp_path_factory.mktemp("oracle") / "data", *settings, *share) as running:
        yield running


def test_a_guess_of_anothers_words_looks_like_any_other(server: Server) -> None:
    victim = Person(server, "ann")
    said = f"{BEFORE}{SECRET}, and so it stays."
    victim.ask(said, SYSTEM)
    assert victim.cached(f"{said} Yes.", SYSTEM) > 100, "the victim's own words are found again"
    for position in (0, 3, 5):
        known = BEFORE + SECRET[:position]
        digits = (SECRET[position], *(digit for digit in "07" if digit != SECRET[position]))
        seen = {digit: Person(server).cached(known + digit, SYSTEM) for digit in digits}
        assert set(seen.values()) == {0}, f"digit {position + 1} stands out: {seen}"
    assert Person(server).cached(said, SYSTEM) == 0


def test_what_an_attacker_said_before_is_all_that_counts(server: Server) -> None:
    """An attacker's own second request finds the first one, and no more where the victim said more."""
    bob = Person(server, "bob")
    for said in ("the word is tulip", "the word is tulip, which nobody else knows"):
        bob.ask(said, SYSTEM)
    right, wrong = Person(server), Person(server)
    ladders = [
        [who.cached(text, SYSTEM) for text in ("the word is", f"the word is {word}", f"the word is {word}, which")]
        for who, word in ((right, "tulip"), (wrong, "daisy"))
    ]
    assert ladders[0] == ladders[1]
    assert ladders[0][0] == 0
    assert ladders[0][1] > 50


def test_a_system_prompt_of_another_is_not_counted(server: Server) -> None:
    carl = Person(server, "carl")
    system = {"role": "system", "content": f"{SYSTEM['content']} The door of carl opens with 7731."}
    carl.ask("hello", system)
    guesses = [
        Person(server).cached("hello", {"role": "system", "content": text})
        for text in (
            f"{SYSTEM['content']} The door of carl opens with 7731.",
            f"{SYSTEM['content']} The door of carl opens with 1377.",
        )
    ]
    assert guesses == [0, 0]
    assert carl.cached("hello again", system) > 80


def test_after_forgetting_a_session_not_even_its_owner_finds_it(server: Server) -> None:
    dora = Person(server, "dora")
    dora.ask(f"{BEFORE}{SECRET}", session_id="diary")
    assert dora.cached(f"{BEFORE}{SECRET}", session_id="again") > 50
    for session in ("diary", "again"):
        forget(server, session=f"dora/{session}")
    assert dora.cached(f"{BEFORE}{SECRET}", session_id="third") == 0


def test_after_forgetting_a_user_nothing_is_found(server: Server) -> None:
    emil = Person(server, "emil")
    emil.ask(f"{BEFORE}{SECRET}")
    assert emil.cached(f"{BEFORE}{SECRET}!") > 50
    forget(server, user="emil")
    assert emil.cached(f"{BEFORE}{SECRET}") == 0


def test_a_session_that_opted_out_keeps_to_itself_and_leaves_nothing(server: Server) -> None:
    fred, private = Person(server, "fred"), {"X-No-Train": "session"}
    fred.ask(f"{BEFORE}{SECRET}", headers=private, session_id="private")
    assert fred.cached(f"{BEFORE}{SECRET}!", headers=private, session_id="private") > 50
    assert fred.cached(f"{BEFORE}{SECRET}") == 0, "not even in another conversation of the same user"
    assert fred.cached(f"{BEFORE}{SECRET}?", headers={**private, "X-Session-Done": "1"}, session_id="private") > 50
    eventually(lambda: closed(server, "fred/private"))
    assert fred.cached(f"{BEFORE}{SECRET}", headers=private, session_id="private") == 0


def test_what_was_said_before_a_session_opted_out_goes_too(server: Server) -> None:
    gwen = Person(server, "gwen")
    gwen.ask(f"{BEFORE}{SECRET}", session_id="late")
    gwen.ask("and keep it to yourself", headers={"X-No-Train": "session"}, session_id="late")
    assert gwen.cached(f"{BEFORE}{SECRET}") == 0
