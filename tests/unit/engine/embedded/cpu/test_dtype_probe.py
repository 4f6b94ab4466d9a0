from __future__ import annotations

import logging
import sys

import pytest
import torch

from openclaw_rl.engine.embedded.cpu.dtype_probe import why_not_bfloat16
from openclaw_rl.engine.embedded.loading import choose_dtype


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (python("import os, signal; os.kill(os.getpid(), signal.SIGILL)"), "died of SIGILL"),
        (python("raise SystemExit(3)"), "exit status 3"),
        (python("import no_such_module"), "exit status 1: ModuleNotFoundError: No module named 'no_such_module'"),
        (["/nonexistent/python"], "could not be started"),
    ],
)
def test_a_child_that_dies_says_why(command: list[str], reason: str) -> None:
    assert reason in (why_not_bfloat16(command) or "")


def test_a_child_that_hangs_is_given_up() -> None:
    assert "0.2 s" in (why_not_bfloat16(python("import time; time.sleep(3600)"), timeout_s=0.2) or "")


def test_a_child_that_survives_gives_no_reason() -> None:
    assert why_not_bfloat16(python("pass")) is None


def test_the_real_probe_comes_to_a_verdict() -> None:
    reason = why_not_bfloat16()
    assert reason is None or reason.startswith("the bfloat16 probe")


@pytest.mark.parametrize(
    ("wanted", "device", "reason", "expected"),
    [
        ("auto", "cpu", None, torch.float32),
        ("float32", "cpu", None, torch.float32),
        ("bfloat16", "cpu", None, torch.bfloat16),
        ("bfloat16", "cpu", "it died of SIGILL", torch.float32),
        ("auto", "cuda", None, torch.bfloat16),
        ("float32", "cuda", None, torch.float32),
        ("bfloat16", "cuda", "not asked", torch.bfloat16),
    ],
)
def test_the_precision_follows_wish_device_and_probe(
    wanted: str, device: str, reason: str | None, expected: torch.dtype, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert choose_dtype(wanted, device, lambda: reason) == expected
    assert [str(reason) in record.getMessage() for record in caplog.records] == (
        [True] if reason and device == "cpu" else []
    )
