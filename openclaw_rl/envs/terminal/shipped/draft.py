"""A task before it is written -> a Harbor task directory.

Draft(kind="rename", instruction="Rename a to b.", before={"a": "x\n"}, after={"a": GONE, "b": "x\n"}, command="mv a b")

The verifier compares the working directory with what is expected: the reward is the share of the paths of `after` that
are as asked, and 0 where anything else was made, changed or deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Final

from openclaw_rl.types import Split

FOLDER: Final = None
"""The content of what is a folder."""


class Gone(Enum):
    """The content of what is not there."""

    GONE = "gone"


GONE: Final = Gone.GONE

Content = str | None | Gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Paths are relative to the working directory. `after` names what changes; `command` is one way to do it."""

    kind: str
    instruction: str
    before: Mapping[str, str | None]
    after: Mapping[str, Content]
    command: str

    @property
    def expected(self) -> dict[str, str | None]:
        """All that is there when it is done."""
        there = {**self.before, **self.after}
        return {path: content for path, content in there.items() if not isinstance(content, Gone)}


_TASK_TOML = """\
schema_version = "1.4"

[metadata]
category = "bash_commands"
tags = ["{kind}"]
split = "{split}"

[metadata.openclaw_rl]
runs_on = "machine"
opening = "{opening}"

[agent]
timeout_sec = {agent_s}.0

[verifier]
timeout_sec = 30.0

[environment]
docker_image = "debian:bookworm-slim"
workdir = "/app"
network_mode = "no-network"
memory_mb = 256
storage_mb = 64
"""


def write_task(draft: Draft, folder: Path, *, split: Split, opening: str, agent_s: int) -> None:
    """Blocking."""
    verifier = files("openclaw_rl.envs.terminal.shipped").joinpath("verifier.sh").read_text("utf-8")
    texts = {
        "task.toml": _TASK_TOML.format(kind=draft.kind, split=split, opening=opening, agent_s=agent_s),
        "instruction.md": f"{draft.instruction}\n",
        "solution/solve.sh": f"#!/bin/bash\nset -e\n{draft.command}\n",
        "tests/test.sh": verifier,
        "tests/goals": "".join(f"{path}\n" for path in draft.after),
    }
    for name in ("environment", "tests/expected"):
        (folder / name).mkdir(parents=True)
    for path, content in (
        *texts.items(),
        *_below("environment", draft.before),
        *_below("tests/expected", draft.expected),
    ):
        place = folder / path
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)
    for name in ("solution/solve.sh", "tests/test.sh"):
        (folder / name).chmod(0o755)


def _below(folder: str, contents: Mapping[str, str | None]) -> list[tuple[str, str | None]]:
    return [(f"{folder}/{path}", content) for path, content in contents.items()]
