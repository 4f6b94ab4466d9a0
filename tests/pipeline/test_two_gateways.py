"""Two control processes on one PostgreSQL: what is said to one is learned once, and answered by both."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.store import open_reader
from tests.postgres import Postgres
from tests.server import OPEN_GATE, Server
from tests.tiny import build_tiny_model

pytestmark = pytest.mark.timeout(240)


def test_a_correction_given_to_one_gateway_is_answered_by_the_engine_of_the_other(
    tmp_path: Path, postgres: Postgres
) -> None:
    url = postgres.url()
    settings = (
        "engine.type=embedded",
        f"model.name={build_tiny_model(tmp_path / 'model')}",
        "training.batch_size=1",
        "training.max_wait_s=0.1",
        "training.truncated=score",  # a random model never comes to an end
        f"store.url={url}",
        *OPEN_GATE,
    )
    with Server(tmp_path / "a", *settings) as a, Server(tmp_path / "b", *settings) as b:
        asked = [{"role": "user", "content": "what is rain"}]
        first = a.chat(asked, max_tokens=12)
        assert first.headers["X-OpenClaw-RL-Version"] == "v0"
        assert b.chat("what is hail", max_tokens=12).headers["X-OpenClaw-RL-Version"] == "v0"
        said = first.json()["choices"][0]["message"]["content"]
        corrected = [*asked, {"role": "assistant", "content": said}, {"role": "user", "content": "no, shorter please"}]
        goes_on = b.chat(corrected, max_tokens=12)
        turn, before = goes_on.headers["X-OpenClaw-RL-Turn"], first.headers["X-OpenClaw-RL-Turn"]
        assert turn.rpartition(".")[0] == before.rpartition(".")[0], "the other gateway goes on with the session"
        reader = open_reader(tmp_path, url)
        a.wait_until(lambda: any(one.state == "live" for one in reader.versions()), timeout_s=120.0)

        def answers(server: Server) -> str:
            return str(server.chat("and what is snow", max_tokens=4).headers["X-OpenClaw-RL-Version"])

        for server in (a, b):
            server.wait_until(lambda server=server: answers(server) != "v0", timeout_s=60.0)
        trained = [sample for step in reader.steps("local") for sample in step.sample_ids]
        assert sorted(set(trained)) == sorted(trained), "nothing was learned twice"
