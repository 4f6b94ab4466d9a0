"""What a client may keep to itself, over HTTP: opting out of one message, secrets that are never stored, retention."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from openclaw_rl.types import Skip, Turn
from tests.server import Server
from tests.wire.asking import assert_error, bot, eventually, log_lines, reader, replies, text_of, turn_of, user

KEY = "sk-proj-" + "Ab12Cd34" * 5
MAIL = "ann.lee@example.com"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(
        tmp_path_factory.mktemp("privacy") / "data", "store.redact=true", replies(("^tell", f"It is {KEY}."))
    ) as up:
        yield up
        assert [line for line in log_lines(up) if line["event"] == "unexpected error"] == []


def ask(server: Server, messages: list[dict[str, Any]], **body: Any) -> tuple[str, Turn]:
    response = server.chat(messages, **body)
    return text_of(response), turn_of(server, response.headers)


@pytest.mark.parametrize("wish", [{"headers": {"X-No-Train": "message"}}, {"no_train": "turn"}])
def test_one_message_is_kept_out_and_the_next_ones_are_not(server: Server, wish: dict[str, Any]) -> None:
    name = f"one-message-{'headers' in wish}"
    said = [user("hi")]
    for number in range(4):
        text, _ = ask(server, said, session_id=name, **(wish if number == 1 else {}))
        said += [bot(text), user(f"reaction {number}")]
    turns = reader(server).turns(name)
    assert [turn.skip for turn in turns] == [Skip.OPTED_OUT, Skip.OPTED_OUT, None, None]
    assert [state.index for state in reader(server).next_states(name)] == [1, 2]
    session = reader(server).session(name)
    assert session is not None
    assert not session.opted_out


@pytest.mark.parametrize("wish", [{"headers": {"X-No-Train": "perhaps"}}, {"no_train": 7}])
def test_a_wish_that_is_not_understood_is_refused(server: Server, wish: dict[str, Any]) -> None:
    error = assert_error(server.chat("hi", **wish), 400)
    assert "true, false, session or message" in error["message"]


def test_secrets_are_answered_and_never_stored(server: Server) -> None:
    said = [user(f"my mail is {MAIL}")]
    text, first = ask(server, said)
    assert text == f"You said: my mail is {MAIL}"
    said += [bot(text), user("tell me the key")]
    text, second = ask(server, said)
    assert text == f"It is {KEY}."
    _, third = ask(server, [*said, bot(text), user("thanks")])
    assert [turn.session for turn in (second, third)] == [first.session] * 2
    assert [turn.parent for turn in (first, second, third)] == [None, 0, 1]
    for turn in (first, second, third):
        assert (turn.skip, turn.prompt_ids, turn.completion.token_ids) == (Skip.REDACTED, (), ())
    assert second.message.content == "It is [redacted openai-key]."
    assert_nowhere(server, MAIL, KEY)


@pytest.mark.parametrize(
    ("path", "rest"), [("/v1/responses", {}), ("/v1/messages", {"max_tokens": 64})], ids=["responses", "messages"]
)
def test_the_switches_hold_in_every_dialect(server: Server, path: str, rest: dict[str, Any]) -> None:
    def send(words: str, **headers: str) -> httpx.Response:
        said = {"input" if path.endswith("responses") else "messages": [user(words)]}
        answer = httpx.post(server.url + path, json={**said, **rest}, headers={**server.headers, **headers}, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer

    answer = send(f"tell me, {MAIL} asks")
    assert KEY in answer.text, "who asks is answered"
    turn = turn_of(server, answer.headers)
    assert (turn.dialect, turn.skip, turn.prompt_ids) == (path.rpartition("/")[2], Skip.REDACTED, ())
    assert_nowhere(server, MAIL, KEY)
    left_out = turn_of(server, send("keep this to yourself", **{"X-No-Train": "1"}).headers)
    assert left_out.skip is Skip.OPTED_OUT


def test_the_session_survives_a_restart_and_a_retry(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "store.redact=true") as server:
        said = [user(f"my mail is {MAIL}")]
        text, first = ask(server, said, headers={"Idempotency-Key": "one"})
        server.kill()
        server.start()
        again, retried = ask(server, said, headers={"Idempotency-Key": "one"})
        assert again == text
        assert (retried.session, retried.index) == (first.session, 1)
        answer, later = ask(server, [*said, bot(text), user("and on")])
        assert answer == "You said: and on"
        assert later.session == first.session
        assert_nowhere(server, MAIL)


def test_who_comes_back_to_a_private_conversation_is_still_private(tmp_path: Path) -> None:
    """The client names no session, and says its wish once; then the session is over, and the server starts anew."""
    with Server(tmp_path / "data") as server:
        said = [user("my private matter is nobody's business")]
        text, first = ask(server, said, headers={"X-No-Train": "session", "X-Session-Done": "1"})
        said += [bot(text), user("and on")]
        text, second = ask(server, said, headers={"X-Session-Done": "1"})
        assert server.stop() == 0
        server.start()
        _, third = ask(server, [*said, bot(text), user("more")])
        assert len({turn.session for turn in (first, second, third)}) == 3
        assert [turn.skip for turn in (first, second, third)] == [Skip.OPTED_OUT] * 3


def test_old_sessions_are_gone_after_a_start(tmp_path: Path) -> None:
    words = "nobody shall read this"
    with Server(tmp_path / "data", "rollout.session_timeout_s=1") as server:
        _, turn = ask(server, [user(words)])
        assert server.stop() == 0
        server.settings = (*server.settings, "store.retention_days=0.00001")
        eventually(lambda: _is_old(server, turn.session))
        server.start()
        eventually(lambda: reader(server).session(turn.session) is None)
        eventually(lambda: words.encode() not in _files(server))
        assert text_of(server.chat("still there?"))


def _is_old(server: Server, name: str) -> bool:
    session = reader(server).session(name)
    assert session is not None
    return time.time() - session.last_seen_at > 2.0


def assert_nowhere(server: Server, *words: str) -> None:
    data = _files(server)
    assert [word for word in words if word.encode() in data] == []


def _files(server: Server) -> bytes:
    """The store, the log and what was printed; the settings hold the engine's script."""
    files = [path for path in server.data_dir.rglob("*") if path.is_file() and path.name != "config.yaml"]
    return b"".join(path.read_bytes() for path in files)
