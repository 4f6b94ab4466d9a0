"""Weights & Biases for real, in a process of its own: offline; without its server; with one that falls silent."""

from __future__ import annotations

import gzip
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2

Record: Any = vars(wandb_internal_pb2)["Record"]  # made when it is imported: types do not know of it

PROGRAM = """
import logging, sys
from pathlib import Path
from openclaw_rl.tracking import Observers
from openclaw_rl.tracking.wandb import WandbObserver
from tests.factories.events import credited, step

logging.basicConfig(format="%(levelname)s %(message)s")
mode, folder = sys.argv[1:]
tracker = WandbObserver(
    mode=mode, folder=Path(folder), project="mine", run_name="openclaw-rl-combine", api_key="k" * 40,
    facts={"batch_size": 4}, init_s=2.0, finish_s=1.0,
)
observers = Observers([tracker])
observers.credited(*credited())
for number in (1, 2):
    observers.stepped(step(number))
    observers.stepped(step(number, line="ann", metrics={"loss/opd": 0.7}))
observers.close(60.0)
"""


def run(mode: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    command = [sys.executable, "-W", "error", "-c", PROGRAM, mode, str(folder)]
    return subprocess.run(
        command, env={**clean, "HOME": str(folder), **env}, capture_output=True, text=True, check=False, timeout=100
    )


class Service(ThreadingHTTPServer):
    """As much of a W&B server as a run needs. It answers until it has seen a step, and nothing from then on."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ServiceHandler)
        self.got: list[str] = []
        self.is_deaf = threading.Event()
        self.ends = threading.Event()


class ServiceHandler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body).decode())
        if "loss/total" in self.server.got[-1]:
            self.server.is_deaf.set()
        if self.server.is_deaf.is_set():
            self.server.ends.wait(60)
            return
        project = {"id": "p", "name": "mine", "entity": {"id": "e", "name": "me"}}
        bucket = {"id": "r", "name": "r", "displayName": "r", "config": "{}", "project": project}
        answer = json.dumps({"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def service() -> Iterator[Service]:
    with Service() as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            yield serving
        finally:
            serving.ends.set()
            serving.shutdown()
            thread.join()


def records(path: Path) -> Iterator[Any]:
    """What a run's file holds: LevelDB's log format, which a short file needs only one block of."""
    data, at = path.read_bytes(), 7
    while at < len(data):
        _, size, kind = struct.unpack_from("<IHB", data, at)
        assert kind == 1, "a record in one piece"
        yield Record.FromString(data[at + 7 : at + 7 + size])
        at += 7 + size


def names(data: bytes, name: str) -> bool:
    """Whether a field, or a quoted string, is this name. Ids are random, and hold short ones by chance."""
    raw = name.encode()
    return bytes([len(raw)]) + raw in data or b'"%b"' % raw in data


def test_offline_keeps_a_run_for_each_line_and_says_nothing(tmp_path: Path) -> None:
    result = run("offline", tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    runs: dict[str, list[dict[str, Any]]] = {}
    for path in tmp_path.glob("wandb/offline-run-*/*.wandb"):
        found = list(records(path))
        (about,) = (record.run for record in found if record.WhichOneof("record_type") == "run")
        assert about.project == "mine"
        assert {item.key: json.loads(item.value_json) for item in about.config.update}["batch_size"] == 4
        rows = [record.history.item for record in found if record.WhichOneof("record_type") == "history"]
        runs[about.display_name] = [{item.nested_key[0]: json.loads(item.value_json) for item in row} for row in rows]
        assert names(path.read_bytes(), "openclaw-rl"), "the host that it is told"
        assert not names(path.read_bytes(), socket.gethostname())
        assert not names(path.read_bytes(), "ann")
    local, ann = runs["openclaw-rl-combine"], runs["openclaw-rl-combine-49915e0d"]
    assert [row["step"] for row in local] == [row["step"] for row in ann] == [1, 2]
    for name, value in {
        "loss/total": 0.41,
        "loss/binary": 0.12,
        "loss/opd": 0.29,
        "reward/mean": -0.5,
        "reward/std": 0.866,
        "gradient/norm": 1.5,
        "learning_rate": 0.0003,
    }.items():
        assert [row[name] for row in local] == [value, value]
    assert (ann[0]["loss/opd"], ann[0]["credit/sample"]) == (0.7, 1)
    assert {path.name for path in tmp_path.iterdir()} == {"wandb"}, "nothing is left anywhere else"


def test_a_server_out_of_reach_is_one_warning(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and deaf: every connection is refused
        result = run("online", tmp_path, WANDB_BASE_URL=f"http://127.0.0.1:{closed.getsockname()[1]}")
    assert (result.returncode, result.stdout) == (0, "")
    warnings = [line for line in result.stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == 1, result.stderr
    assert warnings[0].startswith("WARNING Weights & Biases is off until the next start")
    assert "k" * 40 not in result.stderr


def test_a_server_that_falls_silent_does_not_keep_the_program_from_ending(tmp_path: Path) -> None:
    with service() as serving:
        result = run("online", tmp_path, WANDB_BASE_URL=f"http://127.0.0.1:{serving.server_port}")
        # Under load W&B's own helper program may crash before a step arrives: to us that is a server that fell silent.
        assert serving.is_deaf.is_set() or "Weights & Biases is off until the next start" in result.stderr
    assert (result.returncode, result.stdout) == (0, "")
    sent = "".join(serving.got)
    assert "openclaw-rl-combine" in sent
    assert not names(sent.encode(), socket.gethostname())
