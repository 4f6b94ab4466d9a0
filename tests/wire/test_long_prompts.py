"""Agents begin with tens of thousands of tokens: what fits the window is answered, what does not is refused at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import APIError

from openclaw_rl.protocols import Renderer
from tests.server import Server
from tests.wire.asking import bot, openai_client, text_of, turn_of, user

WINDOW = 32_768


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("long") / "data", f"engine.context_window={WINDOW}") as running:
        yield running


@pytest.fixture(scope="module")
def words(renderer: Renderer) -> str:
    """A system prompt of 30,000 tokens and a little."""
    line = "Read the file before you change it, and run the tests afterwards.\n"
    return line * (30_000 // (len(renderer.encode(line * 100)) // 100))


def tools(count: int) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": "Where it is."}}}
    return [
        {"type": "function", "function": {"name": f"tool_{i}", "description": "Does it.", "parameters": schema}}
        for i in range(count)
    ]


def test_a_prompt_that_nearly_fills_the_window_is_answered_and_continued(server: Server, words: str) -> None:
    system = {"role": "system", "content": words}
    first = server.chat([system, user("Begin.")], tools=tools(8), max_tokens=32_000)
    assert "Begin." in text_of(first)
    kept = turn_of(server, first.headers)
    assert 30_000 < len(kept.prompt_ids) < WINDOW
    assert first.json()["usage"]["prompt_tokens"] == len(kept.prompt_ids)

    second = server.chat([system, user("Begin."), bot(text_of(first)), user("Go on.")], tools=tools(8))
    continued = turn_of(server, second.headers)
    assert continued.parent == kept.index
    before = kept.prompt_ids + kept.completion.token_ids
    assert continued.prompt_ids[: len(before)] == before


def test_a_prompt_beyond_the_window_is_refused_in_words(server: Server, words: str) -> None:
    answer = server.chat([{"role": "system", "content": words + words[:30_000]}, user("Begin.")])
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert str(WINDOW) in error["message"]
    assert text_of(server.chat("still there?"))


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_other_dialects_refuse_in_their_own_shape(server: Server, words: str, path: str) -> None:
    messages = [user(words + words[:30_000])]
    body: dict[str, Any] = {"model": "any", "input": messages, "messages": messages, "max_tokens": 8}
    answer = httpx.post(server.url + path, json=body, headers=server.headers, timeout=60)
    told = answer.json()
    assert answer.status_code == 400
    assert str(WINDOW) in told["error"]["message"]
    if path == "/v1/responses":
        assert told["error"]["code"] == "context_length_exceeded"
    else:
        assert (told["type"], told["error"]["type"]) == ("error", "invalid_request_error")


def test_a_streamed_response_says_so_in_its_stream(server: Server, words: str) -> None:
    """Where Codex looks for it; OpenAI's own client raises it as well."""
    body: dict[str, Any] = {"input": [user(words + words[:30_000])], "stream": True}
    answer = httpx.post(f"{server.url}/v1/responses", json=body, headers=server.headers, timeout=60)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/event-stream")
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert [event["type"] for event in events] == ["response.created", "response.failed"]
    failed = events[-1]["response"]
    assert (failed["status"], failed["error"]["code"]) == ("failed", "context_length_exceeded")
    assert str(WINDOW) in failed["error"]["message"]
    with pytest.raises(APIError, match=str(WINDOW)):
        list(openai_client(server).responses.create(model="any", **body))
    wrong = httpx.post(f"{server.url}/v1/responses", json={**body, "input": []}, headers=server.headers)
    assert wrong.status_code == 400, "what is wrong with the request itself is an HTTP error"
