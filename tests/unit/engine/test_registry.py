"""Settings to hosts: what they start, and what they can do."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, fields
from pathlib import Path

import psutil
import pytest

import openclaw_rl
from openclaw_rl.config import EngineConfig
from openclaw_rl.config.tree import AVAILABLE_ENGINES, FOREIGN_ENGINES
from openclaw_rl.engine.embedded import __main__ as worker
from openclaw_rl.engine.embedded.options import EmbeddedOptions
from openclaw_rl.engine.pool.hosts import replicas
from openclaw_rl.engine.pool.pool import Pool
from openclaw_rl.engine.registry import ENGINES, capabilities_of, check_engine, make_host, second_engine
from openclaw_rl.engine.scripted import ScriptedOptions
from openclaw_rl.engine.worker.life import ProcessLaunch
from openclaw_rl.engine.worker.supervisor import Supervisor
from openclaw_rl.errors import ConfigError
from openclaw_rl.model.files import ModelFiles

SHOW_THE_ENGINE = {
    *("cli/startup.py", "cli/doctor/checks.py", "cli/learn/training.py", "cli/options.py"),
    *("judge/registry.py", "wiring/learning.py"),
}
"""Who may name `engine.type` to a person; what an engine can do is in its `Capabilities`."""

SOCKET = Path("/run/e.sock")
MODEL = ModelFiles(
    name="m",
    path=Path("/models/m"),
    tokenizer_path=Path("/models/t"),
    architecture="LlamaForCausalLM",
    context_window=64,
    vocab_size=8,
    stop_ids=(0,),
    weights=(),
)


def command(config: EngineConfig) -> tuple[list[str], object]:
    """What comes before the options, and the options."""
    host = make_host(config, MODEL, SOCKET)
    assert isinstance(host, Supervisor)
    assert isinstance(host.launch, ProcessLaunch)
    *start, name, options = host.launch.command
    assert name == "--options"
    return start, json.loads(options)


async def test_the_embedded_worker_gets_all_its_options() -> None:
    start, options = command(EngineConfig())
    module = ["-m", "openclaw_rl.engine.embedded"]
    assert start == [sys.executable, *module, "--socket", "/run/e.sock", "--model", "/models/m"]
    assert EmbeddedOptions.from_json(options) == EmbeddedOptions(), "settings and worker have the same defaults"
    assert isinstance(options, dict)
    assert set(options) == {field.name for field in fields(EmbeddedOptions)}


async def test_every_setting_reaches_the_embedded_worker() -> None:
    settings = {
        "device": "cpu",
        "dtype": "bfloat16",
        "weights": "quantised",
        "threads": 3,
        "context_window": 4096,
        "kv_bytes": 1 << 30,
        "kv_after_update": "exact",
        "max_active": 5,
        "max_adapters": 32,
        "max_queued": 6,
        "prefill_chunk": 7,
        "gpu_ids": (3,),
    }
    options = EmbeddedOptions.from_json(command(EngineConfig(**settings))[1])  # type: ignore[arg-type]
    assert asdict(options) == settings


async def test_the_scripted_worker_gets_its_script(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text('[{"match": "a", "reply": "from the file"}]')
    raw = {"script": script, "replies": [{"match": "b", "reply": "from the settings"}], "tokens_per_s": 5}
    config = EngineConfig.model_validate({"type": "scripted", "scripted": raw, "context_window": 99})
    start, options = command(config)
    module = ["-m", "openclaw_rl.engine.scripted"]
    assert start == [sys.executable, *module, "--socket", "/run/e.sock", "--tokenizer", "/models/t"]
    got = ScriptedOptions.from_json(options)
    assert [reply.match for reply in got.replies] == ["a", "b"]
    assert (got.tokens_per_s, got.context_window) == (5, 99)
    script.write_text('{"match": "a"}')
    with pytest.raises(ConfigError, match="list of"):
        command(config)


def test_the_embedded_worker_sees_the_gpu_that_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def note(*_: object) -> int:
        seen.append(os.environ.get("CUDA_VISIBLE_DEVICES"))
        return 0

    monkeypatch.setattr(worker, "run_worker", note)
    monkeypatch.setattr(worker, "_keep_freed_memory", lambda: None)
    monkeypatch.setattr(os, "environ", {})
    for gpu_ids in ([3], []):
        arguments = ["--socket", "/s", "--model", "/m", "--options", json.dumps({"gpu_ids": gpu_ids})]
        os.environ.clear()
        assert worker.main(arguments) == 0
    assert seen == ["3", None]


async def test_a_host_says_what_it_can_do_before_it_runs() -> None:
    for name in ENGINES:
        config = EngineConfig(type=name, url="http://127.0.0.1:1" if name in FOREIGN_ENGINES else None)
        if not capabilities_of(config).computes_here:
            with pytest.raises(ConfigError, match=rf"engine.type={name} serves what training.backend={name} trains"):
                make_host(config, MODEL, SOCKET)
            continue
        host = make_host(config, MODEL, SOCKET, name="judge engine")
        assert host.capabilities == capabilities_of(config)
        assert (host.is_ready, host.state, host.last_error, host.num_restarts) == (False, None, None, 0)
    assert [capabilities_of(EngineConfig(type=name)).has_weights for name in ("embedded", "scripted")] == [True, False]


async def test_several_engines_share_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    host = make_host(EngineConfig(replicas=3, device="cpu"), MODEL, SOCKET)
    assert isinstance(host, Pool)
    made = {}
    for member in host.members:
        assert isinstance(member.host, Supervisor)
        assert isinstance(member.host.launch, ProcessLaunch)
        command = member.host.launch.command
        made[member.name] = dict(zip(command[3::2], command[4::2], strict=True))
    assert list(made) == ["engine 1", "engine 2", "engine 3"]
    assert [one["--socket"] for one in made.values()] == [f"/run/e-{number}.sock" for number in (1, 2, 3)]
    options = [json.loads(one["--options"]) for one in made.values()]
    assert [one["threads"] for one in options] == [3, 3, 2]
    assert len({one["kv_bytes"] for one in options}) == 1
    assert 0 < options[0]["kv_bytes"] < psutil.virtual_memory().total / 12
    assert host.capabilities == capabilities_of(EngineConfig())


def test_each_of_several_engines_gets_a_gpu() -> None:
    config = EngineConfig(replicas=2, gpu_ids=(4, 6), threads=1)
    each = replicas(config, num_cores=64, free_bytes=1 << 40)
    assert [(one.gpu_ids, one.kv_bytes, one.threads) for one in each] == [((4,), None, 1), ((6,), None, 1)]
    spread = {"type": "vllm", "replicas": 2, "gpu_ids": (4, 5, 6, 7), "vllm": {"tensor_parallel": 2}}
    config = EngineConfig.model_validate(spread)
    check_engine(config)
    assert [one.gpu_ids for one in replicas(config, num_cores=8, free_bytes=1 << 30)] == [(4, 5), (6, 7)]
    assert [one.kv_bytes for one in replicas(EngineConfig(replicas=2, kv_bytes=7), num_cores=1, free_bytes=1)] == [7, 7]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"replicas": 2, "gpu_ids": (0, 1, 2)}, "need a GPU each, and engine.gpu_ids names 3; name 2 GPUs"),
        (
            {"type": "vllm", "replicas": 2, "gpu_ids": (0, 1), "vllm": {"tensor_parallel": 2}},
            "need 2 GPUs each, and engine.gpu_ids names 2; name 4 GPUs",
        ),
        (
            {"type": "sglang", "gpu_ids": (0,), "sglang": {"tensor_parallel": 2}},
            "engine.sglang.tensor_parallel=2 spreads layers over 2 GPUs, and engine.gpu_ids names 1",
        ),
        ({"replicas": 2, "urls": ("http://a", "http://b")}, "give one of both"),
        ({"urls": ("http://me:secret@a:1/x", "http://me:secret@a:1/x")}, r"names a:1/x twice"),
        ({"type": "vllm", "url": "http://a:1", "urls": ("http://b:1",)}, "give one of both"),
        ({"type": "scripted", "urls": ("http://a",)}, "engine.replicas starts several"),
    ],
)
def test_engines_that_cannot_be_had(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        check_engine(EngineConfig.model_validate(settings))
    assert "secret" not in str(refused.value)


def test_nobody_else_asks_which_engine_it_is() -> None:
    package = Path(openclaw_rl.__file__).parent
    asks = re.compile(r'type\W*[!=]= ?"(embedded|scripted|vllm|sglang)"')
    others = [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in ("engine", "config")]
    assert len(others) > 200
    assert not [str(path) for path in others if asks.search(path.read_text(encoding="utf-8"))]
    names = {str(path.relative_to(package)) for path in others if "engine.type" in path.read_text(encoding="utf-8")}
    assert names <= SHOW_THE_ENGINE
    compares = re.compile(r"engine\.type\s*(==|!=|(not )?in\b)|(if|match) [\w.]*engine\.type\b")
    shown = [path for path in others if compares.search(path.read_text(encoding="utf-8"))]
    assert not shown


def test_every_engine_that_settings_offer_is_registered() -> None:
    assert set(ENGINES) == set(AVAILABLE_ENGINES)


@pytest.mark.parametrize(
    "first",
    [
        EngineConfig(type="vllm", url="http://a:1"),
        EngineConfig(type="vllm", urls=("http://a:1", "http://b:1")),
        EngineConfig(type="tinker"),
    ],
    ids=["attached", "several", "service"],
)
def test_beside_what_runs_elsewhere_the_second_engine_is_the_embedded_one(first: EngineConfig) -> None:
    assert second_engine(first, ()).type == "embedded"
    assert second_engine(EngineConfig(type="vllm"), ()).type == "vllm"
