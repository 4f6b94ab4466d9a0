"""What boxes need to run Python, and our own programs in `resident/`. It knows nothing of what these do."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from openclaw_rl.envs.sandbox.box import BoxSpec

PYTHON = Path(sys.executable)
"""The interpreter that runs us: what is installed for it is there in boxes, too."""

_RESIDENT = "/opt/openclaw-rl"


def shown_for(program: Path) -> dict[str, Path]:
    """What a box must show for a program of this machine: the folders that its `bin` belongs to, links followed."""
    folders = [path.parent for path in (program, program.resolve()) if path.parent.name == "bin"]
    prefixes = [folder.parent for folder in folders if not folder.is_relative_to("/usr") and folder != Path("/bin")]
    return {str(prefix): prefix for prefix in prefixes if prefix != Path.home()}


def with_python(spec: BoxSpec, python: Path = PYTHON) -> BoxSpec:
    """The spec of a box that also has this Python, what is installed for it, and our own programs."""
    resident = Path(__file__).with_name("resident")
    return replace(spec, read_only={**spec.read_only, **shown_for(python), _RESIDENT: resident})


def own_program(name: str, *arguments: str, python: Path = PYTHON) -> list[str]:
    """The command that runs one of our programs in such a box."""
    return [str(python), "-I", "-B", f"{_RESIDENT}/{name}.py", *arguments]
