"""What a person sees of a gate's report."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from openclaw_rl.cli.inspect.versions import gate_text
from openclaw_rl.release.gate.report import GateMeasure, GateReport
from openclaw_rl.types import Version
from tests.fakes.release import VERSION

REPORT = GateReport(
    parent="v0",
    measures=[
        GateMeasure(name="kl", candidate=0.1234, limit="≤ 1"),
        GateMeasure(name="tokens", candidate=20.0, parent=31.0, base=88.0),
        GateMeasure(name="refusals", candidate=0.5, parent=0.0, base=0.0, limit="≤ 0.25", objection="50% refuse"),
    ],
    seconds=21.5,
)
PROOF = {"num_tokens": 300, "correlation": 0.99991, "change": 0.21, "noise": 3e-6, "reason": ""}


def shown(version: Version) -> list[str]:
    console = Console(file=StringIO(), width=120)
    console.print(gate_text(version))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_measures_limits_and_verdicts() -> None:
    gate = {**REPORT.to_json(), "proof": PROOF}
    lines = shown(replace(VERSION, state="rejected", reason="50% refuse", gate=gate))
    assert lines[:2] == ["v1  rejected", "50% refuse"]
    assert lines[2].split() == ["measure", "base", "parent", "candidate", "limit", "verdict"]
    assert lines[3].split() == ["drift,", "nats", "a", "token", "0.123", "≤", "1", "fine"]
    assert lines[4].split() == ["tokens", "an", "answer", "88.000", "31.000", "20.000"]
    assert lines[5].split() == ["refusals", "0.000", "0.000", "0.500", "≤", "0.25", "objects"]
    assert lines[6] == "Compared with v0 in 21.5 s."
    assert lines[7].startswith("Proved: engine and trainer tell the same of 300 tokens by 0.9999")


def test_a_proof_says_whether_the_engine_reported_a_checksum() -> None:
    for checksum in ("verified", "not reported by this engine"):
        gate = {**REPORT.to_json(), "proof": {**PROOF, "checksum": checksum}}
        told = " ".join(line.strip() for line in shown(replace(VERSION, gate=gate))[7:])
        assert told.endswith(f"checksum {checksum}.")


def test_a_version_without_a_report() -> None:
    assert shown(VERSION) == ["v1  candidate", "Its gate has not measured it."]
    assert shown(replace(VERSION, gate={"live_at": 3.0}))[-1] == "Its gate has not measured it."
