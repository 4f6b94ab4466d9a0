"""What is written to the log: one JSON line a record, and no secret in any part of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.logs import start_logging

KEY = "sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12"
MAIL = "ann@example.com"

log = logging.getLogger("openclaw_rl.test")


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Path]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    start_logging(tmp_path / "log.jsonl", "info")
    yield tmp_path / "log.jsonl"
    for handler in root.handlers:
        with suppress(OSError):  # as at the end of a process: what was not written is lost
            handler.close()
    root.handlers[:] = before
    root.setLevel(level)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_secrets_are_taken_out_of_every_part(written: Path, capfd: pytest.CaptureFixture[str]) -> None:
    extra = {
        "reason": f"{MAIL} was refused",
        "nested": {"api_key": "plain", "list": [KEY, 7]},
        "password": "hunter",
        "error": ValueError(KEY),
        "max_tokens": "2048",
        "seconds": 0.25,
    }
    try:
        raise RuntimeError(f"401 for {KEY}")
    except RuntimeError:
        log.exception("asked with %s", KEY, extra=extra)
    (line,) = lines(written)
    assert line["event"] == "asked with [redacted openai-key]"
    assert line["reason"] == "[redacted email] was refused"
    assert line["nested"] == {"api_key": "[redacted secret]", "list": ["[redacted openai-key]", 7]}
    assert (line["password"], line["error"]) == ("[redacted secret]", "[redacted openai-key]")
    assert (line["max_tokens"], line["seconds"]) == ("2048", 0.25)
    assert line["traceback"].endswith("RuntimeError: 401 for [redacted openai-key]")
    seen = written.read_text() + capfd.readouterr().err
    assert KEY not in seen
    assert MAIL not in seen
    assert "hunter" not in seen


def test_what_is_no_secret_stays_as_it_is(written: Path) -> None:
    log.info("request", extra={"method": "POST", "route": "/v1/chat/completions", "status": 200, "turn": "s-18c5.3"})
    (line,) = lines(written)
    assert {name: line[name] for name in ("level", "logger", "event", "method", "route", "status", "turn")} == {
        "level": "info",
        "logger": "openclaw_rl.test",
        "event": "request",
        "method": "POST",
        "route": "/v1/chat/completions",
        "status": 200,
        "turn": "s-18c5.3",
    }


def test_a_log_that_cannot_be_written_is_told_once_and_in_one_line(
    tmp_path: Path, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.jsonl").symlink_to("/dev/full")
    request.getfixturevalue("written")
    for number in range(5):
        log.info("request %d", number)
    log.warning("the store cannot be written")
    seen = capfd.readouterr().err.splitlines()
    assert seen == [
        f"{tmp_path}/log.jsonl cannot be written (No space left on device): it misses what happens from now on",
        "WARNING openclaw_rl.test: the store cannot be written",
    ]


def test_a_record_that_is_wrong_is_still_a_mistake_to_be_seen(written: Path, capfd: pytest.CaptureFixture[str]) -> None:
    record = logging.makeLogRecord({"msg": "%d requests", "args": ("many",)})
    logging.getLogger().handlers[0].handle(record)
    assert "Logging error" in capfd.readouterr().err
    assert written.read_text() == ""


def test_with_debug_the_terminal_shows_everything(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root, ours = logging.getLogger(), logging.getLogger("openclaw_rl")
    before, levels = root.handlers[:], (root.level, ours.level)
    for level, shown in (("info", ""), ("debug", "DEBUG openclaw_rl.test: turn s.0 is main\n")):
        start_logging(tmp_path / "log.jsonl", level)
        log.debug("turn %s is main", "s.0")
        for handler in root.handlers:
            handler.close()
        root.handlers[:] = before
        assert capfd.readouterr().err == shown
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
