"""Beyond a key's limits every dialect's clients hear a 429 of their own kind, and when to come again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import anthropic
import httpx
import openai
import pytest

from openclaw_rl.cli.connect.keys import limit_key
from openclaw_rl.config import StoreConfig
from openclaw_rl.store import StoreReader
from openclaw_rl.types import KeyTerms
from tests.server import Server
from tests.wire.asking import Admin, replies, user


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("limits") / "data", replies(("", "It pulls."))) as running:
        yield running


def key_with(server: Server, name: str, **terms: float) -> tuple[str, str]:
    with Admin(server) as admin:
        key_id, secret = admin.add_key(name)
    limit_key(StoreConfig(data_dir=server.data_dir), key_id, terms)
    return key_id, secret


def test_the_openai_client_hears_a_rate_limit_in_both_of_its_dialects(server: Server) -> None:
    _, secret = key_with(server, "ada", requests_per_minute=1)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=secret, max_retries=0)
    client.chat.completions.create(model="any", messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(openai.RateLimitError) as chat:
        client.chat.completions.create(model="any", messages=[{"role": "user", "content": "again"}], stream=True)
    with pytest.raises(openai.RateLimitError) as responses:
        client.responses.create(model="any", input="hi")
    for refusal in (chat.value, responses.value):
        assert refusal.code == "rate_limit_exceeded"
        assert 1 <= int(refusal.response.headers["retry-after"]) <= 60
    assert list(client.models.list()), "what costs nothing is not counted"


def test_the_anthropic_client_hears_a_rate_limit(server: Server) -> None:
    _, secret = key_with(server, "bea", tokens_per_minute=1)
    client = anthropic.Anthropic(base_url=server.url, api_key=secret, max_retries=0)
    client.messages.create(model="any", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(anthropic.RateLimitError) as refusal:
        client.messages.create(model="any", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    assert int(refusal.value.response.headers["retry-after"]) > 60, "it owes more tokens than a minute has"
    body = refusal.value.body
    assert isinstance(body, dict)
    assert body["error"]["type"] == "rate_limit_error"


def test_limits_are_seen_in_the_metrics_and_outlive_the_server(server: Server) -> None:
    key_id, secret = key_with(server, "cleo", requests_per_minute=1, weight=2.0)
    for expected in (200, 429):
        body = {"messages": [user("hi")]}
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, headers={"x-api-key": secret})
        assert answer.status_code == expected
    metrics = httpx.get(f"{server.url}/metrics").text
    assert f'openclaw_rl_refused_total{{key="{key_id}",limit="requests_per_minute"}} 1.0' in metrics
    (spent,) = (
        line for line in metrics.splitlines() if line.startswith(f'openclaw_rl_key_tokens_total{{key="{key_id}"')
    )
    assert float(spent.split()[-1]) > 2
    (stored,) = (key for key in StoreReader.open(server.data_dir).keys() if key.id == key_id)  # noqa: SIM118
    assert stored.terms == KeyTerms(requests_per_minute=1, weight=2.0)


def test_a_limit_that_is_lifted_lets_in_at_once(server: Server) -> None:
    key_id, secret = key_with(server, "dora", requests_per_minute=1)
    ask = {"url": f"{server.url}/v1/chat/completions", "content": json.dumps({"messages": [user("hi")]})}
    assert [httpx.post(**ask, headers={"x-api-key": secret}).status_code for _ in range(2)] == [200, 429]  # type: ignore[arg-type]
    limit_key(StoreConfig(data_dir=server.data_dir), key_id, {"requests_per_minute": 0})
    assert httpx.post(**ask, headers={"x-api-key": secret}).status_code == 200  # type: ignore[arg-type]


def test_too_many_sessions_are_told_when_to_come_again(tmp_path: Path) -> None:
    limits = ("rollout.max_concurrent_sessions=1", "rollout.session_timeout_s=30")
    with Server(tmp_path / "data", *limits) as server:
        assert server.chat("first", headers={"X-Session-Id": "one"}).status_code == 200
        refused = server.chat("second", headers={"X-Session-Id": "two"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_sessions")
        assert 1 <= int(refused.headers["Retry-After"]) <= 30
