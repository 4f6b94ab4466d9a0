"""Which line a session teaches, and that nobody can take another kind of line's name."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.engine.worker.admission import _LABEL
from openclaw_rl.types import (
    LINE_NAME,
    SHARED_LINE,
    USER_NAME,
    Episode,
    Session,
    line_for,
    line_kind,
    line_of,
    version_label,
    version_number,
)


def episode(environment: str = "terminal", **changes: Any) -> Episode:
    given = {"id": "e-1", "environment": environment, "task": "count", "group": "g-1", "attempt": 0, **changes}
    return Episode(**given)


def session(user: str = "ann", of: Episode | None = None) -> Session:
    return Session(id="s-1", user=user, client="curl", opened_at=0.0, last_seen_at=0.0, episode=of)


def test_a_persons_session_teaches_that_persons_line() -> None:
    assert (line_of(session("ann")), line_kind("ann")) == ("ann", "user")
    assert line_for("local") == "local"


def test_a_session_of_an_episode_teaches_its_environment_whoever_runs_it() -> None:
    assert {line_of(session(user, episode())) for user in ("ann", "local")} == {"env:terminal"}
    assert line_kind("env:terminal") == "environment"
    assert line_kind(SHARED_LINE) == "shared"


def test_no_user_name_is_a_line_of_another_kind() -> None:
    assert not USER_NAME.fullmatch("env:terminal")
    with pytest.raises(ValueError, match="no colon"):
        line_for("env:terminal")


@pytest.mark.parametrize("line", ["", "env:", "other:ann", "a:b:c"])
def test_what_is_no_line_is_refused(line: str) -> None:
    assert not LINE_NAME.fullmatch(line)
    with pytest.raises(ValueError, match="is no line"):
        line_kind(line)


LINES = [
    "local",
    "ann",
    "env-terminal",
    "env.terminal",
    "-env.terminal",
    "env:terminal",
    "env:" + "x" * 64,
    SHARED_LINE,
]


def test_labels_are_valid_for_engines_and_each_lines_own() -> None:
    labels = [version_label(line, 12) for line in LINES]
    assert len(set(labels)) == len(LINES)
    assert all(_LABEL.fullmatch(label) and len(label) <= 64 for label in labels)
    assert {version_number(label) for label in labels} == {12}
    assert version_label("env:terminal", 3) == "v3-env.terminal"
    assert {version_label(line, 0) for line in LINES} == {"v0"}


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a:b", "x" * 65])
def test_an_environments_name_can_stand_in_a_label(name: str) -> None:
    with pytest.raises(ValueError, match="name of an environment"):
        episode(name)
