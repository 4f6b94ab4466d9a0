"""Lessons on the page: the list with its filters, what a person decides, and that commands do the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server import Server
from tests.wire.asking import Admin, assert_error, eventually, reader
from tests.wire.browsing import Browser, quoted

SHORTER = "Answer in one short sentence."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("page") / "data", "evaluation.judge=rules") as running:
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


def taught(browser: Browser, *, score: int | None = None, text: str = "") -> str:
    """A turn that something was said about, once it is judged and credited."""
    turn, _ = browser.answer(text=f"What is {text or score}?")
    browser.post(f"/ui/api/turns/{quoted(turn)}/feedback", {"score": score, "text": text})
    settled(browser, turn)
    return turn


def settled(browser: Browser, turn: str, *hints: str) -> dict[str, Any]:
    """The lesson of a turn once all that was said is judged and credited."""

    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = browser.get(f"/ui/api/lessons/{quoted(turn)}")
        is_settled = found["correction"]["state"] not in ("heard", "judged") or found["row"]["words"].endswith(
            "its step"
        )
        return found if is_settled and (not hints or found["hints"] == list(hints)) else None

    return eventually(look)


def test_the_list_can_be_filtered(owner: Browser) -> None:
    bad = taught(owner, score=-1, text=SHORTER)
    good = taught(owner, score=1)
    chinese = taught(owner, score=-1, text="请用一句话简短地回答我的问题。")

    def listed(**query: str) -> list[str]:
        return [one["turn"] for one in owner.get("/ui/api/lessons", **query)["items"]]

    assert listed()[:3] == [chinese, good, bad]
    assert chinese in listed(language="zh")
    assert bad not in listed(language="zh")
    assert good in listed(verdict="good")
    assert bad not in listed(verdict="good")
    state = owner.get(f"/ui/api/turns/{quoted(bad)}/correction")["state"]
    assert bad in listed(state=state)
    assert listed(session=good.rpartition(".")[0]) == [good]
    parts: list[str] = []
    after: dict[str, str] = {}
    while True:
        part = owner.get("/ui/api/lessons", limit=1, **after)
        parts += [one["turn"] for one in part["items"]]
        if part["next"] is None:
            break
        after = {"after": part["next"]}
    assert parts == listed()
    for query in ("verdict=fine", "state=gone", "after=x", "limit=0"):
        assert_error(owner.client.get(f"/ui/api/lessons?{query}"), 400)


def test_a_hint_in_the_persons_own_words_takes_the_place_of_the_judges(server: Server, owner: Browser) -> None:
    turn = taught(owner, score=-1, text="Please be more brief next time.")
    before = settled(owner, turn)["hints"]
    wish = "Answer with one short sentence, and with nothing else."
    owner.post(f"/ui/api/lessons/{quoted(turn)}/hint", {"hint": wish})
    after = settled(owner, turn, wish)
    assert after["hints"] == [wish] != before
    assert after["row"]["sentence"] == wish
    for bad in ("short", "x" * 2000, "a\x00" * 9):
        assert_error(owner.client.post(f"/ui/api/lessons/{quoted(turn)}/hint", json={"hint": bad}), 409)


def test_what_the_judge_was_not_sure_of_can_be_accepted(owner: Browser) -> None:
    turn, _ = owner.answer(text="Tell me about rivers")
    owner.answer(text="And what about the long mountains of Asia?", after=turn)
    unsure = settled(owner, turn)
    assert unsure["row"]["kind"] in ("neutral", "abstained"), unsure["row"]
    owner.post(f"/ui/api/lessons/{quoted(turn)}/accept")
    accepted = settled(owner, turn, "And what about the long mountains of Asia?")
    assert accepted["row"]["kind"] == "bad"


def test_a_rejected_lesson_is_left_out_and_stays_so(owner: Browser) -> None:
    turn = taught(owner, score=-1, text=SHORTER)
    assert owner.post(f"/ui/api/lessons/{quoted(turn)}/reject")["answers"] == "v0"
    told = owner.get(f"/ui/api/turns/{quoted(turn)}/correction")
    assert (told["state"], told["left_out"]["reason"]) == ("left_out", "rejected")
    owner.post(f"/ui/api/turns/{quoted(turn)}/feedback", {"score": -1, "text": "Please answer in two words."})
    eventually(lambda: len(owner.get(f"/ui/api/turns/{quoted(turn)}")["feedback"]) == 2)
    assert owner.get(f"/ui/api/turns/{quoted(turn)}/correction")["left_out"]["reason"] == "rejected"
    assert_error(owner.client.post(f"/ui/api/lessons/{quoted(turn)}/accept", json={}), 409)
    counts = {one["reason"]: one for one in owner.get("/ui/api/left-out")["items"]}
    assert counts["rejected"]["num_turns"] == 1
    assert counts["rejected"]["remedy"]


def test_commands_decide_the_same(server: Server, owner: Browser) -> None:
    def run(*words: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "openclaw_rl", *words, "--json", "--data-dir", str(server.data_dir)]
        told: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        return told

    turn = taught(owner, score=-1, text="Please be more brief next time.")
    assert run("hint", turn, SHORTER) == {"turn": turn}
    settled(owner, turn, SHORTER)
    assert run("accept", turn) == {"turn": turn}
    eventually(lambda: len(owner.get(f"/ui/api/turns/{quoted(turn)}")["feedback"]) == 3)
    assert run("reject", turn)["answers"] == "v0"
    session, _, index = turn.rpartition(".")
    assert reader(server).traces([(session, int(index))])[session, int(index)].turn.skip == "rejected"


def test_nobody_decides_for_others(owner: Browser, ann: Browser) -> None:
    mine, hers = taught(owner, score=1), taught(ann, score=-1, text=SHORTER)
    for path in (
        f"/ui/api/lessons/{quoted(mine)}",
        f"/ui/api/lessons/{quoted(mine)}/tokens",
        "/ui/api/lessons?user=local",
    ):
        assert_error(ann.client.get(path), 404)
    for action in ("accept", "reject", "undo", "hint"):
        body = {"hint": SHORTER} if action == "hint" else {}
        assert_error(ann.client.post(f"/ui/api/lessons/{quoted(mine)}/{action}", json=body), 404)
    for path in (
        "versions?user=local",
        "trends?user=local",
        "data?user=local",
        "data/export?user=local",
        "left-out?user=*",
    ):
        assert_error(ann.client.get(f"/ui/api/{path}"), 404)
    forget = {"session": mine.rpartition(".")[0], "confirm": mine.rpartition(".")[0]}
    assert_error(ann.client.post("/ui/api/data/forget", json=forget), 404)
    everything = {"everything": True, "confirm": "local"}
    assert_error(ann.client.post("/ui/api/data/forget?user=local", json=everything), 404)
    assert_error(ann.client.get("/ui/api/settings"), 403)
    assert [one["turn"] for one in ann.get("/ui/api/lessons")["items"]] == [hers]
    assert hers in [one["turn"] for one in owner.get("/ui/api/lessons", user="ann")["items"]]
    assert {mine, hers} <= {one["turn"] for one in owner.get("/ui/api/lessons", user="*")["items"]}
    told = ann.get("/ui/api/machine")
    assert (told["engines"], told["disk"], told["judge"], told["remarks"]) == ([], None, None, [])
    kept = [json.loads(line) for line in ann.client.get("/ui/api/data/export").text.splitlines()]
    assert {one["user"] for one in kept if "user" in one} == {"ann"}
    assert mine not in json.dumps(kept)


def test_the_machine_and_the_settings(owner: Browser) -> None:
    taught(owner, score=1)
    told = owner.get("/ui/api/machine")
    assert [one["name"] for one in told["stages"]] == ["captured", "judged", "credited", "trained", "checked", "live"]
    assert told["stages"][0]["num_last_hour"] >= 1
    assert told["stages"][1]["num_last_hour"] >= 1
    assert told["judge"]["judge"] == "rules"
    assert told["judge"]["judges"]["the person"] >= 1
    assert told["judge"]["spent"] is None, "rules cost nothing"
    assert (told["engines"][0]["light"], told["engines"][0]["num_running"]) == ("ok", 0)
    assert {one["name"] for one in told["remarks"]} >= {"disk", "judge", "learning", "store"}
    rows = {one["key"]: one for one in owner.get("/ui/api/settings")["items"]}
    assert (rows["evaluation.judge"]["value"], rows["evaluation.judge"]["origin"]) == ('["rules"]', "command line")
    assert rows["gateway.api_key"]["value"] in ("null", "")
    kept = owner.get("/ui/api/data")
    assert kept["num_sessions"] >= 1
    assert kept["num_turns"] >= 1
