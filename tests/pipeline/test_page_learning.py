"""The whole way as a person goes it on the page: said, corrected, judged, learned, checked, live, and taken back."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.server import OPEN_GATE, Server
from tests.tiny import build_tiny_model
from tests.wire.asking import assert_error
from tests.wire.browsing import Browser, quoted

pytestmark = pytest.mark.timeout(240)
HINT = "Answer in one short sentence."


def test_a_correction_on_the_page_goes_live_and_can_be_taken_back(tmp_path: Path) -> None:
    settings = (
        "engine.type=embedded",
        f"model.name={build_tiny_model(tmp_path / 'model')}",
        "evaluation.judge=rules",
        "training.batch_size=1",
        "training.max_wait_s=0.1",
        "training.truncated=score",  # a random model never comes to an end
        *OPEN_GATE,
    )
    with Server(tmp_path / "data", *settings) as server, Browser.of_owner(server) as browser:
        turn, _ = browser.answer(text="what is rain", max_tokens=12)
        with browser.listening() as events:
            assert next(events)["version"] == "v0"
            browser.post(f"/ui/api/turns/{quoted(turn)}/feedback", {"score": -1, "text": HINT})
            heard = live_event(events, turn)
        states = [one["correction"]["state"] for one in heard if one["event"] == "correction"]
        assert states == sorted(states, key=["heard", "judged", "learning", "checking", "live"].index)
        version = heard[-1]["correction"]["version"]
        assert any(one["event"] == "version" and one["version"] == version for one in heard)
        told = browser.get(f"/ui/api/turns/{quoted(turn)}/correction")
        assert told["words"].startswith(f"live in {version}")
        assert all(one["at"] is not None for one in told["stages"])

        lesson = browser.get(f"/ui/api/lessons/{quoted(turn)}")
        assert (lesson["row"]["sentence"], lesson["row"]["kind"], lesson["hints"]) == (HINT, "bad", [HINT])
        assert "undo" in lesson["actions"]
        assert "reject" not in lesson["actions"]
        tokens = browser.get(f"/ui/api/lessons/{quoted(turn)}/tokens")
        assert tokens["probabilities"] == ""
        moved = [one for sample in tokens["samples"] for one in sample["tokens"]]
        assert moved
        assert all(0 <= one["before"] <= 1 and 0 <= one["after"] <= 1 for one in moved)
        assert any(one["before"] != one["after"] for one in moved)
        assert_error(browser.client.post(f"/ui/api/lessons/{quoted(turn)}/hint", json={"hint": HINT}), 409)

        rows = browser.get("/ui/api/versions")
        assert (rows["answering"], rows["items"][0]["version"]) == (version, version)
        detail = browser.get(f"/ui/api/versions/{version}")
        assert [one["turn"] for one in detail["lessons"] if not one["is_replayed"]] == [turn] * len(
            [one for one in detail["lessons"] if not one["is_replayed"]]
        )
        assert detail["proof"]["is_proved"]
        assert {one["name"] for one in detail["measures"]} >= {"kl", "length", "repetition"}
        both = browser.get(f"/ui/api/versions/{version}/compare/v0")
        assert both["right"] is None
        assert {one["turn"] for one in both["only_left"]} == {turn}
        assert browser.get("/ui/api/trends")["trends"]
        question = browser.get("/ui/api/questions")["items"][0]
        asked = browser.post("/ui/api/ask", {"question": question, "left": version, "right": "v0"})
        assert (asked["left_version"], asked["right_version"]) == (version, "v0")
        packed = browser.client.get(f"/ui/api/versions/{version}/export")
        with tarfile.open(fileobj=io.BytesIO(packed.content)) as found:
            assert any(name.endswith("adapter_model.safetensors") for name in found.getnames())
        beside, _ = browser.answer(again=turn, beside=True, version="v0", max_tokens=4)
        assert browser.get(f"/ui/api/turns/{quoted(beside)}")["kind"] == "side"
        machine = browser.get("/ui/api/machine")
        assert machine["trainer"]["steps"] >= 1
        assert {one["name"]: one["num_last_hour"] > 0 for one in machine["stages"]}["trained"]

        assert browser.post("/ui/api/versions/v0/rollback") == {"version": "v0"}
        assert browser.post(f"/ui/api/versions/{version}/rollback") == {"version": version}
        assert browser.post(f"/ui/api/lessons/{quoted(turn)}/undo")["answers"] == "v0"
        assert browser.get(f"/ui/api/turns/{quoted(turn)}/correction")["state"] == "taken_back"
        kept = [json.loads(line) for line in browser.client.get("/ui/api/data/export").text.splitlines()]
        assert {one["kind"] for one in kept} == {"key", "session", "turn", "version"}
        session = turn.rpartition(".")[0]
        body = {"session": session, "confirm": "yes"}
        assert_error(browser.client.post("/ui/api/data/forget", json=body), 400)
        assert browser.post("/ui/api/data/forget", {**body, "confirm": session})["sessions"] == 1
        assert_error(browser.client.get(f"/ui/api/turns/{quoted(turn)}"), 404)


def live_event(events: Any, turn: str) -> list[dict[str, Any]]:
    """Everything that is heard until the turn's correction is live."""
    heard = []
    for event in events:
        heard.append(event)
        if event["event"] == "correction" and event["correction"]["turn"] == turn:
            assert event["correction"]["state"] not in ("left_out", "rejected"), event
            if event["correction"]["state"] == "live":
                break
    return heard
