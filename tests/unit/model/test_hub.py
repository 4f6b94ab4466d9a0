"""The hub's client in a process of its own against a small hub on loopback: it reads its environment when imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

COMMIT = "c" * 40
CONFIG = {"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 64, "vocab_size": 8, "eos_token_id": 7}
FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors": save({"x": np.zeros(4, dtype=np.float32)}),
    "pytorch_model.bin": b"pickle",
    "modeling_evil.py": b"raise SystemExit",
    "consolidated.safetensors": b"twice",
    "original/params.json": b"{}",
}


class Hub(ThreadingHTTPServer):
    """Serves `files` as the model org/tiny and remembers what was downloaded."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubRequest)
        self.files = dict(FILES)
        self.served: set[str] = set()


class HubRequest(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        prefix = f"/org/tiny/resolve/{COMMIT}/"
        if self.path.startswith("/api/models/org/tiny/revision/main"):
            self.answer(json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": []}).encode())
        elif self.path.startswith(f"/api/models/org/tiny/tree/{COMMIT}"):
            entries = [
                {"type": "file", "path": path, "size": len(data), "oid": sha1(data).hexdigest()}
                for path, data in self.server.files.items()
            ]
            self.answer(json.dumps(entries).encode())
        elif self.path.startswith(prefix):
            name = self.path.removeprefix(prefix)
            if self.command == "GET":
                self.server.served.add(name)
            self.answer(self.server.files[name])
        else:
            self.send_error(404)

    do_HEAD = do_GET  # noqa: N815 (the name is http.server's)

    def answer(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever)
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()


@pytest.fixture
def resolve(hub: Hub, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(name: str = "org/tiny", **environment: str) -> subprocess.CompletedProcess[str]:
        own = {
            "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
            "HF_HOME": str(tmp_path),
            "HF_HUB_DISABLE_XET": "1",
        }
        return subprocess.run(
            [sys.executable, "-m", "openclaw_rl.model", f"model.name={name}"],
            env={**os.environ, **own, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


Resolve = Callable[..., subprocess.CompletedProcess[str]]


def test_only_data_is_fetched_and_later_starts_stay_at_home(hub: Hub, resolve: Resolve) -> None:
    done = resolve()
    assert done.returncode == 0, done.stderr
    assert "org/tiny: Qwen3ForCausalLM" in done.stderr
    assert hub.served == {"config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"}
    hub.served.clear()
    hub.files["config.json"] = b"{}"
    assert resolve().returncode == resolve(HF_HUB_OFFLINE="1").returncode == 0
    assert hub.served == set()


def test_an_unknown_architecture_is_refused_before_the_weights(hub: Hub, resolve: Resolve) -> None:
    hub.files["config.json"] = json.dumps(CONFIG | {"architectures": ["MambaForCausalLM"]}).encode()
    done = resolve()
    assert done.returncode == 1
    assert "MambaForCausalLM" in done.stderr
    assert hub.served == {"config.json"}


@pytest.mark.parametrize(("name", "environment"), [("org/none", {}), ("org/tiny", {"HF_HUB_OFFLINE": "1"})])
def test_a_model_that_cannot_be_got_names_the_remedy(resolve: Resolve, name: str, environment: dict[str, str]) -> None:
    done = resolve(name, **environment)
    assert done.returncode == 1
    assert f"error: cannot get {name} from the hub" in done.stderr
    assert "or set model.name to a local folder or to smollm2-135m-instruct." in done.stderr
    assert "Traceback" not in done.stderr
