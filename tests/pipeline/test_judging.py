"""The whole system over the scripted engine: what people say next becomes judgements, and samples or skips."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from benchmarks.judge_server import JudgeServer
from openclaw_rl.store import StoreReader
from openclaw_rl.types import Credit, Judgement, Skip
from tests.server import Server

pytestmark = pytest.mark.timeout(180)

SESSION = {"X-Session-Id": "lesson"}
CALL = '<tool_call>\n{"name": "read_file", "arguments": {"path": "note.txt"}}\n</tool_call>'
SCRIPT = "engine.scripted.replies=" + json.dumps(
    [
        {"match": "read the file", "reply": CALL},
        {"match": "shorter", "reply": "Mass attracts mass."},
        {"match": "^", "reply": "Gravity is a force by which all things with mass are drawn towards one another."},
    ]
)
TOOLS = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]
LINES: list[dict[str, Any]] = [
    {"role": "user", "content": "Explain gravity."},
    {"role": "user", "content": "No, shorter please."},
    {"role": "user", "content": "Perfect, thank you!"},
    {"role": "user", "content": "Great, thanks. Now read the file note.txt."},
    {"role": "tool", "content": "Error: ENOENT: no such file or directory, open 'note.txt'"},
]
"""What the client says, one request each; each of them but the first reacts to the answer before it."""


class Client:
    """An agent that resends the whole conversation with each request."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.history: list[dict[str, Any]] = []

    def say(self, line: dict[str, Any]) -> str:
        """One request of the conversation; the id of its turn."""
        if line["role"] == "tool":
            line = {**line, "tool_call_id": self.history[-1]["tool_calls"][0]["id"]}
        self.history.append(line)
        response = self.server.chat(self.history, headers=SESSION, tools=TOOLS, seed=1)
        assert response.status_code == 200, response.text
        message = response.json()["choices"][0]["message"]
        self.history.append({name: value for name, value in message.items() if value is not None})
        return response.headers["X-OpenClaw-RL-Turn"]

    def rate(self, turn: str, **body: Any) -> None:
        url, headers = f"{self.server.url}/v1/feedback", self.server.headers
        assert httpx.post(url, json={"turn_id": turn, **body}, headers=headers).status_code == 200


class Outcome:
    """What the store says became of a session."""

    def __init__(self, data_dir: Path, session: str) -> None:
        reader = StoreReader.open(data_dir)
        # A credit comes last: what it was made of is there when it is.
        self.credits: dict[int, Credit] = {one.index: one for one in reader.credits(session)}
        self.judgements: dict[int, Judgement] = {one.index: one for one in reader.judgements(session)}
        self.turns = reader.turns(session)

    def summary(self) -> list[tuple[Any, ...]]:
        """All that must not depend on when things happened."""
        return [
            (
                index,
                *(judgement.num_evidence, judgement.verdict, judgement.judge, judgement.prompt_version),
                *(self.credits[index].reward, self.credits[index].skip),
                [
                    (one.kind, one.prompt_index, one.response_ids, one.advantages, one.w_rl, one.w_opd, one.candidates)
                    for one in self.credits[index].samples
                ],
            )
            for index, judgement in self.judgements.items()
        ]


def _wait(server: Server, session: str, num_credits: int) -> Outcome:
    """What became of the session, once that many turns were credited."""
    found: list[Outcome] = []

    def enough() -> bool:
        found[:] = [Outcome(server.data_dir, session)]
        return len(found[0].credits) >= num_credits

    server.wait_until(enough)
    return found[0]


def _converse(server: Server, *, restart: bool) -> Outcome:
    client = Client(server)
    turn = ""
    for number, line in enumerate(LINES):
        turn = client.say(line)
        if restart:
            if number % 2:
                _wait(server, turn.partition(".")[0], number)
            server.kill()
            server.start()
    session = turn.partition(".")[0]
    _wait(server, session, 4)
    client.rate(turn, rating="down", text="Please answer in one short sentence.")
    return _wait(server, session, 5)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    with Server(tmp_path_factory.mktemp("judging") / "data", SCRIPT) as server:
        yield _converse(server, restart=False)
        assert server.stop() == 0


def test_every_reaction_is_judged(outcome: Outcome) -> None:
    verdicts = {index: one.verdict for index, one in outcome.judgements.items()}
    assert {index: one.score for index, one in verdicts.items()} == {0: -1, 1: 1, 2: 1, 3: -1, 4: -1}
    assert len(verdicts[0].hints) == 1
    assert verdicts[4].hints, "what a person wrote with a thumb is read for hints"
    assert all(one.judge == "rules" and one.verdict.votes for one in outcome.judgements.values())


def test_every_judgement_becomes_a_sample_of_the_exact_tokens_or_says_why_not(outcome: Outcome) -> None:
    assert list(outcome.credits) == [0, 1, 2, 3, 4]
    for index, credit in outcome.credits.items():
        turn = outcome.turns[index]
        sample = next(one for one in credit.samples if one.kind == "turn")
        assert credit.skip is None
        assert sample.prompt_ids == turn.prompt_ids
        assert sample.response_ids == turn.completion.token_ids
        assert sample.logprobs == turn.completion.logprobs
        assert sample.reward == outcome.judgements[index].verdict.score
    corrected = outcome.credits[0].samples[0]
    assert tuple(one.hint for one in corrected.candidates) == outcome.judgements[0].verdict.hints
    assert corrected.w_opd > 0
    (shared,) = {one.num_shared for one in corrected.candidates}
    assert shared > len(corrected.prompt_ids) // 2
    rewrite = outcome.credits[1].samples[1]
    assert (rewrite.kind, rewrite.prompt_index, rewrite.prompt_ids) == ("rewrite", 0, outcome.turns[0].prompt_ids)


def test_restarts_in_the_middle_change_nothing(tmp_path: Path, outcome: Outcome) -> None:
    """Killed after every turn: sometimes when it was judged, sometimes before."""
    with Server(tmp_path / "data", SCRIPT) as server:
        disturbed = _converse(server, restart=True)
    assert [turn.prompt_ids for turn in disturbed.turns] == [turn.prompt_ids for turn in outcome.turns]
    assert disturbed.summary() == outcome.summary()


def test_turns_that_nobody_may_learn_from_are_left_alone(tmp_path: Path) -> None:
    with Server(tmp_path / "data", SCRIPT, 'rollout.message_classification.main_line=["user","assistant"]') as server:
        client = Client(server)
        turns = [client.say(line) for line in LINES]
        session = turns[0].partition(".")[0]
        found = _wait(server, session, 4)
        assert found.credits[3].skip is Skip.SIDE_TURN, "only a tool result followed it"
        private = server.chat("This is private.", headers={"X-Session-Id": "p", "X-No-Train": "true"})
        client.rate(private.headers["X-OpenClaw-RL-Turn"], rating="up")
        title = server.chat("Title?", headers={"X-Session-Id": "t", "X-Turn-Type": "side"})
        client.rate(title.headers["X-OpenClaw-RL-Turn"], rating="up")
        server.wait_until(lambda: StoreReader.open(server.data_dir).num_open("judge") == 0)
        for response in (private, title):
            name = response.headers["X-OpenClaw-RL-Turn"].partition(".")[0]
            assert Outcome(server.data_dir, name).judgements == {}


def test_serving_without_learning_records_and_a_later_start_learns(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", SCRIPT)
    try:
        server.start(command="serve")
        client = Client(server)
        turns = [client.say(line) for line in LINES[:2]]
        server.stop()
        assert StoreReader.open(server.data_dir).num_open("judge") == 1
        server.start()
        assert _wait(server, turns[0].partition(".")[0], 1).judgements[0].verdict.score == -1
    finally:
        server.close()


async def test_a_dead_judge_leaves_chat_alone_and_learning_goes_on_when_it_is_back(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = (
        *("evaluation.judge=endpoint", f"evaluation.judge_url=http://127.0.0.1:{port}/v1", "evaluation.judge_model=m"),
        *("evaluation.judge_timeout_s=2", "evaluation.judge_retries=0"),
    )
    with Server(tmp_path / "data", SCRIPT, *settings) as server:
        client = Client(server)
        turns = [await asyncio.to_thread(client.say, line) for line in LINES[:3]]
        session = turns[0].partition(".")[0]

        def metrics() -> str:
            return httpx.get(f"{server.url}/metrics").text

        def flag() -> str | None:
            return StoreReader.open(server.data_dir).flag("judge.paused")

        await asyncio.to_thread(server.wait_until, lambda: flag() is not None)
        assert "the judge endpoint gave no verdict on a known case" in str(flag())
        assert "openclaw_rl_judge_paused 1.0" in await asyncio.to_thread(metrics)
        assert await asyncio.to_thread(client.say, LINES[3]), "chat goes on"
        assert Outcome(server.data_dir, session).judgements == {}
        judge = JudgeServer()
        async with judge.listening(port):
            found = await asyncio.to_thread(_wait, server, session, 3)
            assert flag() is None
        assert {index: one.verdict.score for index, one in found.judgements.items()} == {0: -1, 1: 1, 2: 1}
        assert found.judgements[0].verdict.hints == ("Answer more briefly.",)
        assert "openclaw_rl_judge_paused 0.0" in await asyncio.to_thread(metrics)
        assert judge.num_votes > 0


def test_a_judge_without_its_settings_is_refused_at_the_start(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", "evaluation.judge=endpoint")
    server.start(wait=False)
    assert server.process is not None
    assert server.process.wait(60) == 2
    assert "evaluation.judge_url and evaluation.judge_model" in (server.data_dir / "output.txt").read_text()


@pytest.mark.parametrize("judge", ["self", "model"])
def test_a_model_can_judge(tmp_path: Path, model: Path, judge: str) -> None:
    """The served base, or a second engine beside it: asked in their own format, with canaries, and ended with us."""
    verdicts = [
        {"match": "the hint in its marks", "reply": "No wish.\n\\boxed{-1}"},
        {"match": "BEGIN next state(.|\n)*(rong|redo|again|incorrect|not what|correct it)", "reply": "\\boxed{-1}"},
        {"match": "BEGIN next state", "reply": "The person accepts it.\n\\boxed{1}"},
        {"match": "^", "reply": "Gravity pulls."},
    ]
    weights = [f"evaluation.judge_path={model}"] if judge == "model" else []
    settings = (f"evaluation.judge={judge}", *weights, "evaluation.num_judges=1")
    with Server(tmp_path / "data", f"engine.scripted.replies={json.dumps(verdicts)}", *settings) as server:
        client = Client(server)
        turns = [client.say({"role": "user", "content": text}) for text in ("Why?", "That is wrong.", "Thank you.")]
        found = _wait(server, turns[0].partition(".")[0], 2)
        assert [one.verdict.score for one in found.judgements.values()] == [-1, 1]
        assert {one.judge for one in found.judgements.values()} == {judge}
        engines = psutil.Process(server.process.pid if server.process else 0).children()
        assert len(engines) == (2 if judge == "model" else 1)
        assert server.stop() == 0
        assert not any(engine.is_running() for engine in engines)


def test_debug_tells_what_became_of_a_turn_and_quotes_nobody(tmp_path: Path) -> None:
    with Server(tmp_path / "data", SCRIPT, "tracking.log_level=debug") as server:
        client = Client(server)
        turns = [client.say(line) for line in LINES[:2]]
        _wait(server, turns[0].partition(".")[0], 1)
        text = (server.data_dir / "run" / "log.jsonl").read_text()
    told = [json.loads(line) for line in text.splitlines() if '"debug"' in line]
    assert {line["logger"] for line in told} >= {
        "openclaw_rl.gateway",
        "openclaw_rl.judge.loop",
        "openclaw_rl.credit.loop",
    }
    assert all(any(turn in line["event"] for line in told) for turn in turns)
    assert not [line for line in LINES[:2] if line["content"] in text]
