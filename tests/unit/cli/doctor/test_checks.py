"""The doctor's judgement on given facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.connect.clients import CLIENTS
from openclaw_rl.cli.doctor import checks
from openclaw_rl.cli.doctor.checks import GB, ModelFacts, OpenFile, TorchFacts
from openclaw_rl.config import EngineConfig
from openclaw_rl.model.files import ModelFiles
from openclaw_rl.views.health import CheckResult, Unscored

HERE = Path("/data")
TORCH = TorchFacts(version="2.13")
FILES = ModelFiles(
    name="tiny",
    path=HERE,
    tokenizer_path=HERE,
    architecture="LlamaForCausalLM",
    context_window=8192,
    vocab_size=512,
    stop_ids=(2,),
    weights=(),
)
OPEN = OpenFile(path=HERE / "key", mode=0o644, wanted=0o600)


def engine(**settings: Any) -> EngineConfig:
    return EngineConfig(**settings)


def gpu(seen: list[str], torch: TorchFacts = TORCH, **settings: Any) -> CheckResult:
    return checks.check_gpu(seen, torch, engine(**settings))


def disk(free: int) -> CheckResult:
    return checks.check_disk("disk", HERE, free=free, needed=GB, setting="--data-dir")


def memory(total: float, available: float, weights: float | None = 0.5) -> CheckResult:
    weight_bytes = None if weights is None else int(weights * GB)
    return checks.check_memory(total=int(total * GB), available=int(available * GB), weight_bytes=weight_bytes)


def port(problem: str | None, *, ours: bool = False) -> CheckResult:
    return checks.check_port("127.0.0.1", 30000, problem=problem, ours=ours)


def server(url: str | None, *, answers: bool, waiting_for: str | None = None) -> CheckResult:
    return checks.check_server(url, answers=answers, waiting_for=waiting_for)


FINDINGS = [
    (checks.check_engines([("engine 1", "answers", ""), ("engine 2", "answers", "")]), "ok", "all 2 answer"),
    (checks.check_engines([("engine 1", "answers", ""), ("engine 2", "down", "SIGKILL")]), "remark", "down (SIGKILL)"),
    (checks.check_engines([("engine 1", "answers", ""), ("engine 2", "answers", "no v3")]), "remark", "no v3"),
    (checks.check_python((3, 11, 0)), "ok", "3.11.0"),
    (checks.check_python((3, 10, 9)), "broken", "3.11"),
    (checks.check_cpu(2, {"fpu", "avx2", "amx_bf16"}), "ok", "2 cores, AVX2, AMX"),
    (checks.check_cpu(1, set()), "ok", "1 core"),
    (checks.check_bfloat16(None, engine()), "ok", "work"),
    (checks.check_bfloat16("died of SIGILL", engine()), "remark", "SIGILL"),
    (checks.check_bfloat16("died of SIGILL", engine(dtype="bfloat16")), "broken", "engine.dtype=float32"),
    (checks.check_bfloat16("died of SIGILL", engine(dtype="bfloat16", device="cuda")), "remark", "SIGILL"),
    (gpu([]), "ok", "runs on the CPU"),
    (gpu([], device="cuda"), "broken", "engine.device=auto"),
    (gpu(["A100"]), "remark", "CUDA build"),
    (gpu(["A100"], device="cuda"), "broken", "CUDA build"),
    (gpu(["A100"], TorchFacts(version="2.13", devices=("A100",)), device="cuda"), "ok", "A100"),
    (gpu([], TorchFacts(error="no module named torch")), "broken", "make setup"),
    (memory(8, 4), "ok", "4.0 GB of 8.0 GB"),
    (memory(8, 1), "remark", "1.5 GB"),
    (memory(1, 1), "broken", "smaller model.name"),
    (memory(1, 0.1, None), "ok", "100 MB of 1.0 GB"),
    (disk(5 * GB), "ok", "/data"),
    (disk(GB), "remark", "--data-dir"),
    (disk(GB - 1), "broken", "--data-dir"),
    (port(None), "ok", "free"),
    (port("Address already in use"), "broken", "--port"),
    (port("Address already in use", ours=True), "ok", "our own"),
    (checks.check_modes(HERE, None), "ok", "first start"),
    (checks.check_modes(HERE, []), "ok", "private"),
    (checks.check_modes(HERE, [OPEN, OPEN]), "broken", "chmod 0600 /data/key; chmod"),
    (checks.check_modes(HERE, [OpenFile(path=HERE, mode=0o700, wanted=0o700, foreign=True)]), "broken", "owner"),
    (checks.check_sqlite((3, 31, 9)), "broken", "newer Python"),
    (checks.check_sqlite((3, 40, 1)), "ok", "WAL-reset bug"),
    (checks.check_sqlite((3, 51, 3)), "ok", "3.51.3"),
    (checks.check_model(ModelFacts(name="tiny")), "remark", "first start"),
    (checks.check_model(ModelFacts(name="tiny", problem="a wrong checksum")), "broken", "openclaw_rl.model"),
    (checks.check_model(ModelFacts(name="tiny", files=FILES)), "ok", "LlamaForCausalLM"),
    (checks.check_window(8192), "remark", "model.name=Qwen/Qwen3-4B"),
    (checks.check_window(32768), "ok", "32768"),
    (checks.check_window(8192, [CLIENTS["aider"]]), "ok", "enough for aider"),
    (checks.check_window(8192, [CLIENTS["aider"], CLIENTS["codex"]]), "remark", "short for codex (needs 32768)"),
    (checks.check_window(8192, [CLIENTS["openclaw"]]), "remark", "model.name=Qwen/Qwen3-4B-Instruct-2507"),
    (checks.check_engine(engine()), "ok", "embedded"),
    (checks.check_judge(["rules"], None), "ok", "rules"),
    (checks.check_judge(["rules"], Unscored(num_judged=9, reasons={"the votes tie": 4})), "ok", "rules"),
    (
        checks.check_judge(["rules", "self"], Unscored(num_judged=9, reasons={"unknown language: set it": 3})),
        "remark",
        "rules, self; of the last 9 judged turns 3: unknown language\nset it",
    ),
    (
        checks.check_judge(["auto"], Unscored(num_judged=9, reasons={}, judges={"heads": 7, "rules": 2})),
        "ok",
        "auto; of the last 9 judged turns 7 by heads, 2 by rules",
    ),
    (
        checks.check_judge(
            ["auto"],
            Unscored(num_judged=9, reasons={}, judges={"heads": 9}, sureness=0.857, missing="endpoint: 30% right"),
        ),
        "ok",
        "9 by heads; heads are sure by 0.86 on average; not by endpoint: 30% right",
    ),
    (
        checks.check_judge(
            ["auto"], Unscored(num_judged=2, reasons={"heads: +1 at 0.5 only; rules: unknown language: x": 1})
        ),
        "remark",
        "auto; of the last 2 judged turns 1: unknown language\nx",
    ),
    (server(None, answers=False), "ok", "openclaw-rl up"),
    (server("http://x", answers=False), "remark", "killed"),
    (server("http://x", answers=True, waiting_for="the engine is starting"), "remark", "the engine is starting"),
    (server("http://x", answers=True), "ok", "ready at http://x"),
]


@pytest.mark.parametrize(("finding", "state", "words"), FINDINGS)
def test_findings(finding: CheckResult, state: str, words: str) -> None:
    assert finding.state == state
    assert words in f"{finding.text}\n{finding.remedy}"
    assert finding.remedy or state == "ok"


def test_a_sound_sqlite_is_not_called_buggy() -> None:
    assert "bug" not in checks.check_sqlite((3, 51, 3)).text
