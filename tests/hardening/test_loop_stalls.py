"""No request keeps the event loop, and so everybody else, for longer than a moment."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path

import httpx
import pytest

from openclaw_rl.gateway.api.openapi import OPERATIONS, Operation
from tests.hardening.measured import MeasuredServer
from tests.hardening.report import report
from tests.hardening.shapes import RESPONSES_PATH, TEXTS, bodies, filled, raw
from tests.wire.asking import CHAT, assert_healthy, eventually, log_lines

MAX_STALL_S = 0.1
MAX_BYTES = 16 << 20
ANSWERING = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens")
SETTINGS = ("store.redact=true", "gateway.request_timeout_s=300")


class Watch:
    """Sends requests and keeps what each cost the loop."""

    def __init__(self, server: MeasuredServer) -> None:
        self.server = server
        self.num_requests = 0
        self.longest = (0.0, "")
        self.wrong: list[str] = []
        self._client = httpx.Client(base_url=server.url, headers=server.headers, timeout=300)
        server.longest_stall()  # of the start

    def send(self, name: str, verb: str, path: str, **request: object) -> httpx.Response:
        answer = self._client.request(verb, path, **request)  # type: ignore[arg-type]
        self.num_requests += 1
        seconds, what = self.server.longest_stall()
        if answer.status_code >= 500 and not (answer.status_code == 503 and "Retry-After" in answer.headers):
            self.wrong.append(f"{answer.status_code} for {path}: {name}")
        if seconds > MAX_STALL_S:
            self.wrong.append(f"{seconds:.3f} s for {path}: {name}: {what}")
        self.longest = max(self.longest, (seconds, f"{path}: {name}"))
        return answer

    def close(self) -> None:
        self._client.close()


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("scales", [(16,), pytest.param((1, 4, 16), marks=pytest.mark.hardening)])
def test_the_loop_is_never_kept_for_long(tmp_path: Path, scales: tuple[int, ...]) -> None:
    """The short form sends every shape to one of the dialects; the long one all of them to all, also at full size."""
    with MeasuredServer(tmp_path / "data", *SETTINGS) as server:
        watch = Watch(server)
        for scale in scales:
            for operation in OPERATIONS:
                attack(watch, operation, scale)
            for number, path in enumerate(ANSWERING):
                made = bodies(path, scale=scale)
                for name, body in made if len(scales) > 1 else islice(made, number, None, len(ANSWERING)):
                    watch.send(name, "POST", path, content=body)
            long_answers(watch, 40_000 // scale)
        feedback(watch, scales[0])
        eventually(lambda: all("seconds" in line for line in log_lines(server) if line["event"] == "request"))
        assert_healthy(server)
        report(
            "loop stall",
            requests=watch.num_requests,
            longest_ms=round(watch.longest[0] * 1000, 1),
            by=watch.longest[1][:80],
            scales=scales,
        )
        assert watch.wrong == []
        watch.close()


def attack(watch: Watch, operation: Operation, scale: int) -> None:
    """What any route may get."""
    path = re.sub(r"\{\w+\}", "x" * (16_000 // scale), operation.path)
    if operation.verb == "post":
        for name, body in raw(MAX_BYTES // scale).items():
            watch.send(name, "POST", path, content=body)
        return
    for query in ("a=b&" * 6_000, "after=" + "%2C" * 8_000, "limit=" + "9" * 24_000):
        watch.send("a long query", "GET", f"{path}?{query[: 24_000 // scale]}")
    headers = {f"x-{i}": "" for i in range(2_000 // scale)} | {"x-openai-subagent": "," * (9_000 // scale)}
    watch.send("many headers", "GET", path, headers=headers)


def long_answers(watch: Watch, num_chars: int) -> None:
    """Answers with all that can be told about them, whole and streamed, again when they are asked for once more, kept,
    and gone on with."""
    messages = [{"role": "user", "content": filled(TEXTS["words"], num_chars)}]
    told = {"logprobs": True, "top_logprobs": 20, "max_tokens": 100_000, "session_id": f"long-{num_chars}"}
    for stream in (False, True):
        body = json.dumps({"messages": messages, "stream": stream, **told})
        for time in ("first", "second"):
            sent = watch.send(f"{time} time, {stream=}", "POST", CHAT, content=body, headers={"Idempotency-Key": "k"})
            assert sent.status_code == 200
    include = {"include": ["message.output_text.logprobs"], "top_logprobs": 20}
    made = watch.send("kept", "POST", RESPONSES_PATH, content=json.dumps({"input": messages, **include}))
    name = made.json()["id"]
    assert watch.send("kept", "GET", f"{RESPONSES_PATH}/{name}").status_code == 200
    more = {"input": "go on", "previous_response_id": name, **include}
    assert watch.send("gone on with", "POST", RESPONSES_PATH, content=json.dumps(more)).status_code == 200
    assert watch.send("rollouts", "GET", "/v1/rollouts?state=open&limit=100").status_code == 200


def feedback(watch: Watch, scale: int) -> None:
    """On one turn, of every kind of text, more often than is taken."""
    body = {"messages": [{"role": "user", "content": "hi"}], "session_id": "talk"}
    assert watch.send("a turn", "POST", "/v1/chat/completions", content=json.dumps(body)).status_code == 200
    statuses = []
    for round_ in range(4):
        for name, text in TEXTS.items():
            given = {"turn_id": "talk.0", "score": 1, "text": filled(text, 65_000 // scale) + str(round_)}
            answer = watch.send(f"feedback: {name}", "POST", "/v1/feedback", content=json.dumps(given))
            statuses.append(answer.status_code)
    assert set(statuses) == {200, 409}
    assert statuses.count(200) == 64
