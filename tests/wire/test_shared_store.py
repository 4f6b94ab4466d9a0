"""Two gateways over one PostgreSQL: a conversation goes on at either, and what one is told the other knows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from openclaw_rl.store import open_reader
from openclaw_rl.store.postgres.reader import PostgresReader
from tests.postgres import Postgres
from tests.server import Server

Message = dict[str, Any]


class Pair:
    def __init__(self, a: Server, b: Server, url: str) -> None:
        self.a, self.b, self.url = a, b, url

    @property
    def rows(self) -> PostgresReader:
        reader = open_reader(Path(), self.url)
        assert isinstance(reader, PostgresReader)
        return reader


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[Pair]:
    url, home = postgres.url(), tmp_path_factory.mktemp("pair")
    with Server(home / "a", f"store.url={url}") as a, Server(home / "b", f"store.url={url}") as b:
        yield Pair(a, b, url)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def said(answer: httpx.Response) -> Message:
    assert answer.status_code == 200, answer.text
    return {"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]}


def turn_of(answer: httpx.Response) -> tuple[str, int]:
    session, _, index = answer.headers["X-OpenClaw-RL-Turn"].rpartition(".")
    return session, int(index)


def command(server: Server, *words: str) -> str:
    program = [sys.executable, "-m", "openclaw_rl", *words, "--data-dir", str(server.data_dir), *server.settings[1:]]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_conversation_goes_on_at_whichever_gateway_is_asked(pair: Pair) -> None:
    history: list[Message] = []
    seen = []
    for number, server in enumerate((pair.a, pair.b, pair.a, pair.b)):
        history.append(user(f"part {number} of a story about rivers"))
        answer = server.chat(history)
        history.append(said(answer))
        seen.append(turn_of(answer))
    session = seen[0][0]
    assert seen == [(session, number) for number in range(4)]
    turns = pair.rows.turns(session)
    assert [turn.parent for turn in turns] == [None, 0, 1, 2]
    for before, after in pairwise(turns):
        ids = (*before.prompt_ids, *before.completion.token_ids)
        assert after.prompt_ids[: len(ids)] == ids, "the exact ids are in the next prompt, wherever they were sampled"
    assert [state.index for state in pair.rows.next_states(session)] == [0, 1, 2]


def test_a_retry_at_the_other_gateway_is_the_same_turn(pair: Pair) -> None:
    headers = {"X-Stainless-Retry-Count": "1"}
    first = pair.a.chat("tell me of the moon")
    again = pair.b.chat("tell me of the moon", headers=headers)
    assert (said(again), turn_of(again)) == (said(first), turn_of(first))


def test_requests_of_one_session_at_both_gateways_at_once_are_turns_of_their_own(pair: Pair) -> None:
    def ask(number: int) -> tuple[str, int]:
        server = (pair.a, pair.b)[number % 2]
        return turn_of(server.chat(f"question {number}", headers={"X-Session-Id": "crowd"}))

    with ThreadPoolExecutor(8) as threads:
        turns = list(threads.map(ask, range(16)))
    assert len(set(turns)) == 16
    assert {session for session, _ in turns} == {"crowd"}
    assert len(pair.rows.turns("crowd")) == 16


def test_keys_open_and_close_both(pair: Pair) -> None:
    told = json.loads(command(pair.a, "keys", "add", "ann", "--json"))
    headers = {"Authorization": f"Bearer {told['key']}"}

    def status() -> int:
        return httpx.get(f"{pair.b.url}/v1/models", headers=headers).status_code

    pair.b.wait_until(lambda: status() == 200)
    command(pair.a, "keys", "revoke", told["id"])
    pair.b.wait_until(lambda: status() == 401)


def test_what_one_forgets_is_gone_from_both(pair: Pair) -> None:
    history = [user("my secret is a very long one about a lighthouse")]
    answer = pair.a.chat(history)
    history += [said(answer), user("and on")]
    session, _ = turn_of(pair.b.chat(history))
    assert session == turn_of(answer)[0]
    command(pair.a, "forget", session, "--yes")
    assert pair.rows.session(session) is None
    for server in (pair.b, pair.a):
        assert turn_of(server.chat(history))[0] != session, "nobody goes on with it"
