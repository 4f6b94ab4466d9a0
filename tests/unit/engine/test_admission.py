from __future__ import annotations

import pytest

from openclaw_rl.engine.admission import admit
from openclaw_rl.errors import EngineRefused
from openclaw_rl.types import EngineState
from tests.unit.engine.prompts import ask

STATE = EngineState(model="m", versions=("v0", "v1"), live_version="v1", context_window=10, device="none", dtype="none")


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "version", "expected"),
    [
        (4, 3, None, ("v1", 3)),
        (4, 3, "v0", ("v0", 3)),
        (4, 6, None, ("v1", 6)),
        (4, 7, None, ("v1", 6)),
        (9, 100, None, ("v1", 1)),
    ],
)
def test_an_answer_gets_the_room_that_is_left(
    num_prompt: int, max_tokens: int, version: str | None, expected: tuple[str, int]
) -> None:
    assert admit(ask(range(num_prompt), version=version, max_tokens=max_tokens), STATE) == expected


@pytest.mark.parametrize(
    ("num_prompt", "version", "status", "code"),
    [
        (4, "v7", 404, "version_not_found"),
        (0, None, 400, "empty_prompt"),
        (10, None, 400, "context_length_exceeded"),
        (11, "v0", 400, "context_length_exceeded"),
    ],
)
def test_what_cannot_be_served_is_refused(num_prompt: int, version: str | None, status: int, code: str) -> None:
    with pytest.raises(EngineRefused) as refusal:
        admit(ask(range(num_prompt), version=version), STATE)
    assert (refusal.value.status, refusal.value.code) == (status, code)
