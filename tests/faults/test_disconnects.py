"""Clients that go away at any byte, with a FIN or a RST: sampling stops, what there was is kept, nothing leaks."""

from __future__ import annotations

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openclaw_rl.store import StoreReader
from openclaw_rl.types import Skip, Turn, split_turn_id
from tests.faults.audit import check_sound
from tests.faults.crowd import echo
from tests.faults.processes import gateway, wait_for, worker
from tests.faults.streams import BareClient, request_bytes
from tests.server import Server

TEXT = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
NUM_AT_ONCE = 20
NUM_DISCONNECTS = 200


def aborted(server: Server) -> list[Turn]:
    reader = StoreReader.open(server.data_dir)
    turns = (turn for summary in reader.sessions() for turn in reader.turns(summary.session.id))
    return [turn for turn in turns if turn.completion.finish_reason == "abort"]


@pytest.mark.parametrize("rudely", [False, True])
@pytest.mark.parametrize("stream", [True, False])
def test_sampling_stops_when_the_client_leaves(tmp_path: Path, stream: bool, rudely: bool) -> None:
    with Server(tmp_path / "data", "engine.scripted.tokens_per_s=20") as server:
        request = request_bytes(server, TEXT, stream=stream)
        with BareClient(server) as client:
            client.send(request)
            if stream:
                client.read_until(b'"content":', times=4)
            else:
                time.sleep(0.6)  # nothing tells from outside how far it is
            sampling = worker(server).num_fds()
            client.leave(rudely=rudely)
        wait_for(lambda: len(aborted(server)) == 1, "the cut turn was stored")
        wait_for(lambda: worker(server).num_fds() < sampling, "the engine's connection was closed")
        (turn,) = aborted(server)
        assert (turn.skip, turn.completion.finish_reason) == (Skip.ABORTED, "abort")
        assert turn.completion.token_ids
        assert turn.message.content == echo(TEXT)[: len(turn.message.content)]
        if stream:
            assert turn.id == client.turn_id
            assert turn.message.content.startswith(client.text)

        with BareClient(server) as again:
            again.send(request)
            again.read_until(b"[DONE]" if stream else b'"usage":')
        assert again.turn_id == turn.id
        whole = StoreReader.open(server.data_dir).turn(*split_turn_id(turn.id))
        assert whole is not None
        assert (whole.message.content, whole.skip) == (echo(TEXT), None)
        assert len(turn.completion.token_ids) < len(whole.completion.token_ids)
        assert aborted(server) == []


def test_clients_that_leave_at_any_byte_leave_nothing_behind(tmp_path: Path) -> None:
    with (
        Server(tmp_path / "data", "engine.scripted.tokens_per_s=100") as server,
        ThreadPoolExecutor(NUM_AT_ONCE) as pool,
    ):

        def ask(number: int, *, stream: bool) -> bytes:
            return request_bytes(server, f"{number} {TEXT}", stream=stream)

        def leave(number: int) -> None:
            dice = random.Random(number)
            stream, rudely = dice.random() < 0.7, dice.random() < 0.5
            request = ask(number, stream=stream)
            with BareClient(server) as client:
                if number % 2:  # inside the request; the first and the last byte for certain
                    client.send(request[: {1: 0, 3: 1, 5: len(request) - 1}.get(number, dice.randrange(len(request)))])
                else:  # inside the response, or before it, the request being whole
                    client.send(request)
                    client.read_bytes(dice.choice([0, 1, dice.randrange(1, 1500), dice.randrange(1, 8000)]))
                client.leave(rudely=rudely)

        def whole(number: int) -> None:
            with BareClient(server) as client:
                client.send(ask(-number, stream=True))
                client.read_until(b"[DONE]")

        list(pool.map(whole, range(NUM_AT_ONCE)))
        sides = gateway(server), worker(server)
        before = [(side.num_fds(), side.num_threads()) for side in sides]
        list(pool.map(leave, range(NUM_DISCONNECTS)))

        def settled() -> bool:
            pairs = zip(sides, before, strict=True)
            return all(s.num_fds() <= fds + 4 and s.num_threads() <= threads + 2 for s, (fds, threads) in pairs)

        wait_for(settled, "descriptors and threads were back where they had been")
        assert server.chat("still here").status_code == 200
        for turn in aborted(server):
            assert turn.skip is Skip.ABORTED
            expected = echo(turn.messages[-1].content)
            assert turn.message.content == expected[: len(turn.message.content)]
        assert len(aborted(server)) > NUM_DISCONNECTS // 8
        check_sound(server.data_dir)
        log = (server.data_dir / "run" / "log.jsonl").read_text().splitlines()
        errors = [record for record in map(json.loads, log) if record["level"] in ("error", "critical")]
        assert errors == []
        assert "Traceback" not in (server.data_dir / "output.txt").read_text()
        assert server.stop() == 0
