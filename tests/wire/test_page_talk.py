"""Talking on the page: chat, branches, privacy, feedback, what became of it, and who sees what."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server import Server
from tests.wire.asking import Admin, assert_error, eventually, replies, stored
from tests.wire.browsing import Browser, quoted

XSS = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    rules = replies(("slow", "word " * 400), ("", "A short answer."))
    settings = (rules, "evaluation.judge=rules", "engine.scripted.tokens_per_s=400")
    with Server(tmp_path_factory.mktemp("page") / "data", *settings) as running:
        yield running


@pytest.fixture(scope="module")
def owner(server: Server) -> Iterator[Browser]:
    with Browser.of_owner(server) as browser:
        yield browser


@pytest.fixture(scope="module")
def ann(server: Server) -> Iterator[Browser]:
    with Admin(server) as admin:
        _, secret = admin.add_key("ann")
    with Browser.with_key(server, secret) as browser:
        yield browser


def test_a_conversation_goes_on_and_is_listed(server: Server, owner: Browser) -> None:
    first, text = owner.answer(text=f"Hello {XSS}\nand more")
    assert text == "A short answer."
    second, _ = owner.answer(text="And now?", after=first)
    session = first.rpartition(".")[0]
    turns = owner.get(f"/ui/api/sessions/{session}")["turns"]
    assert [one["id"] for one in turns] == [first, second]
    assert [one["parent"] for one in turns] == [None, 0]
    assert turns[0]["asked"] == [{"role": "user", "text": f"Hello {XSS}\nand more", "thinking": "", "calls": []}]
    assert turns[1]["asked"][0]["text"] == "And now?"
    assert turns[1]["answer"]["text"] == "A short answer."
    row = next(one for one in owner.get("/ui/api/sessions")["items"] if one["id"] == session)
    assert (row["title"], row["num_turns"], row["client"]) == (f"Hello {XSS}", 2, "page")
    kept = stored(server, second)
    assert (kept.dialect, [one.content for one in kept.messages][1]) == ("page", "A short answer.")


def test_another_answer_is_a_sibling_and_an_edit_a_branch(owner: Browser) -> None:
    first, _ = owner.answer(text="One")
    second, _ = owner.answer(text="Two", after=first)
    again, _ = owner.answer(again=second)
    edited, _ = owner.answer(text="Two, edited", after=first)
    session = first.rpartition(".")[0]
    fresh, _ = owner.answer(text="One, edited", session=session)
    turns = {one["id"]: one for one in owner.get(f"/ui/api/sessions/{session}")["turns"]}
    assert set(turns) == {first, second, again, edited, fresh}
    assert [turns[one]["parent"] for one in (second, again, edited, fresh)] == [0, 0, 0, None]
    assert turns[again]["asked"][0]["text"] == "Two"


def test_two_conversations_that_begin_alike_stay_two(owner: Browser) -> None:
    first, second = (owner.answer(text="Good morning")[0].rpartition(".")[0] for _ in range(2))
    assert first != second


def test_an_answer_beside_is_no_part_of_the_conversation(server: Server, owner: Browser) -> None:
    first, _ = owner.answer(text="Compare me")
    beside, _ = owner.answer(again=first, beside=True, version="v0")
    assert beside != first
    kept = stored(server, beside)
    assert (kept.kind, kept.skip) == ("side", "opted_out")
    assert kept.messages == stored(server, first).messages
    assert kept.session not in [one["id"] for one in owner.get("/ui/api/sessions", limit=200)["items"]]
    after, _ = owner.answer(text="And on", after=first)
    assert stored(server, after).parent == stored(server, first).index


def test_private_is_not_learned_from(server: Server, owner: Browser) -> None:
    turn, _ = owner.answer(text="Between us", private=True)
    assert owner.get(f"/ui/api/turns/{quoted(turn)}")["is_private"]
    assert owner.get(f"/ui/api/sessions/{quoted(turn.rpartition('.')[0])}")["session"]["is_private"]
    assert stored(server, turn).skip == "opted_out"


def test_stopping_keeps_what_was_said(server: Server, owner: Browser) -> None:
    body = {"text": "slow, please"}
    with owner.client.stream("POST", "/ui/api/chat", json=body) as response:
        turn = response.headers["X-OpenClaw-RL-Turn"]
        next(line for line in response.iter_lines() if line.startswith("event: text"))
    told = eventually(lambda: owner.client.get(f"/ui/api/turns/{quoted(turn)}").json().get("finish_reason"))
    assert told == "abort"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"text": "  "}, 400),
        ({"text": "hi", "unknown": 1}, 400),
        ({"text": 7}, 400),
        ({"text": "a\x00b"}, 400),
        ({"text": "hi", "after": "s-nothing.3"}, 404),
        ({"text": "hi", "after": "no turn"}, 404),
        ({"again": "s-nothing.3"}, 404),
        ({"text": "hi", "again": "s-nothing.3"}, 400),
        ({"text": "hi", "beside": True}, 400),
        ({"text": "hi", "version": "v77"}, 404),
        ({"text": "hi", "max_tokens": 0}, 400),
        ({"text": "hi", "temperature": 9}, 400),
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_refused_by_name(owner: Browser, body: dict[str, object], status: int) -> None:
    assert_error(owner.client.post("/ui/api/chat", json=body), status)


def test_a_thumb_and_a_sentence_are_heard_and_judged(owner: Browser) -> None:
    turn, _ = owner.answer(text="What is gravity?")
    assert_error(owner.client.get(f"/ui/api/turns/{quoted(turn)}/correction"), 404)
    assert owner.get(f"/ui/api/turns/{quoted(turn)}")["correction"] is None
    told = owner.post(f"/ui/api/turns/{quoted(turn)}/feedback", {"score": -1, "text": "Answer in one short sentence."})
    assert told["sentence"] == "Answer in one short sentence."
    assert [one["name"] for one in told["stages"]] == ["heard", "judged", "learning", "checked", "live"]

    def judged() -> dict[str, object] | None:
        now: dict[str, object] = owner.get(f"/ui/api/turns/{quoted(turn)}/correction")
        return now if now["verdict"] is not None and now["state"] != "heard" else None

    now = eventually(judged)
    assert now["verdict"] == "−1"
    assert now["hints"] == ["Answer in one short sentence."]
    assert owner.get(f"/ui/api/turns/{quoted(turn)}")["feedback"][0]["score"] == -1


def test_what_was_left_out_says_why_and_what_would_change_it(owner: Browser) -> None:
    turn, _ = owner.answer(text="Tell me something")
    owner.post(f"/ui/api/turns/{quoted(turn)}/feedback", {"score": 0})

    def left_out() -> dict[str, str] | None:
        found: dict[str, str] | None = owner.get(f"/ui/api/turns/{quoted(turn)}/correction")["left_out"]
        return found

    told = eventually(left_out)
    assert told["words"]
    assert told["remedy"]


@pytest.mark.parametrize("body", [{}, {"score": 2}, {"text": " "}, {"score": "1"}, {"text": "\x00"}], ids=str)
def test_feedback_that_says_nothing_is_refused(owner: Browser, body: dict[str, object]) -> None:
    turn, _ = owner.answer(text="Judge me")
    assert_error(owner.client.post(f"/ui/api/turns/{quoted(turn)}/feedback", json=body), 400)


def test_a_user_sees_their_own_and_the_owner_all(owner: Browser, ann: Browser) -> None:
    mine, _ = owner.answer(text="A secret of the owner")
    hers, _ = ann.answer(text="A secret of Ann")
    ann.post(f"/ui/api/turns/{quoted(hers)}/feedback", {"score": 1})
    assert ann.get("/ui/api/me")["users"] == ["ann"]
    assert {"ann", "local"} <= set(owner.get("/ui/api/me")["users"])
    session = mine.rpartition(".")[0]
    for path in (
        f"/ui/api/sessions/{quoted(session)}",
        f"/ui/api/turns/{quoted(mine)}",
        f"/ui/api/turns/{quoted(mine)}/correction",
        "/ui/api/sessions?user=local",
        "/ui/api/sessions?user=*",
        "/ui/api/turns/none",
    ):
        assert_error(ann.client.get(path), 404)
    assert_error(ann.client.post(f"/ui/api/turns/{quoted(mine)}/feedback", json={"score": 1}), 404)
    assert_error(ann.client.post("/ui/api/chat", json={"text": "more", "after": mine}), 404)
    assert_error(ann.client.post("/ui/api/chat", json={"again": mine}), 404)
    taken, _ = ann.answer(text="mine now?", session=session)
    assert taken.rpartition(".")[0] != session
    assert all(one["user"] == "ann" for one in ann.get("/ui/api/sessions")["items"])
    assert owner.get(f"/ui/api/turns/{quoted(hers)}")["answer"]["text"]
    assert {one["user"] for one in owner.get("/ui/api/sessions", user="*")["items"]} == {"ann", "local"}
    assert {one["user"] for one in owner.get("/ui/api/sessions", user="ann")["items"]} == {"ann"}
    assert_error(owner.client.post(f"/ui/api/turns/{quoted(hers)}/feedback", json={"score": 1}), 403)


def test_lists_come_a_part_at_a_time(owner: Browser) -> None:
    first, _ = owner.answer(text="Number 0")
    for number in range(1, 5):
        owner.answer(text=f"Number {number}")
    whole = [one["id"] for one in owner.get("/ui/api/sessions", limit=200)["items"]]
    parts, after = [], None
    while True:
        part = owner.get("/ui/api/sessions", limit=2, **({"after": after} if after else {}))
        parts += [one["id"] for one in part["items"]]
        if (after := part["next"]) is None:
            break
    assert parts == whole
    for number in range(4):
        owner.answer(text=f"More {number}", session=first.rpartition(".")[0])
    path = f"/ui/api/sessions/{quoted(first.rpartition('.')[0])}"
    newest = owner.get(path, limit=3)
    earlier = owner.get(path, limit=3, before=newest["next"])
    assert [one["index"] for one in (*earlier["turns"], *newest["turns"])] == [0, 1, 2, 3, 4]
    assert earlier["next"] is None
    for query in ("limit=0", "limit=201", "limit=x", "after=nonsense", "after=W10="):
        assert_error(owner.client.get(f"/ui/api/sessions?{query}"), 400)


def test_an_open_page_hears_what_happens(owner: Browser, ann: Browser) -> None:
    with owner.listening() as events, ann.listening() as hers:
        assert next(events)["event"] == "hello"
        assert next(hers)["event"] == "hello"
        turn, _ = owner.answer(text="Who hears this?")
        owner.post(f"/ui/api/turns/{quoted(turn)}/feedback", {"score": -1, "text": "Answer in one short sentence."})
        heard = []
        for event in events:
            heard.append(event)
            if event["event"] == "correction" and event["correction"]["verdict"] == "−1":
                break
        assert {"event": "turn", "user": "local", "session": turn.rpartition(".")[0], "turn": turn} in heard
        own, _ = ann.answer(text="And this?")
        first = next(event for event in hers if event["event"] == "turn")
        assert first["turn"] == own, "what others say is not told"
