"""Harbor task directories for tests: written from texts, so that a test shows all that matters of one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PLAIN: Mapping[str, str] = {
    "task.toml": """
[metadata.openclaw_rl]
runs_on = "machine"

[environment]
network_mode = "no-network"
memory_mb = 256
storage_mb = 32
""",
    "instruction.md": "Write done into state.txt.\n",
    "environment/state.txt": "todo\n",
    "solution/solve.sh": "#!/bin/bash\necho done > state.txt\n",
    "tests/test.sh": '#!/bin/bash\n[ "$(cat state.txt)" = done ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n',
}
"""One step, on the programs of this machine: state.txt is to say done."""


def write_task(folder: Path, files: Mapping[str, str | None]) -> Path:
    """`PLAIN` with these files over it; None takes one away."""
    for name, text in {**PLAIN, **files}.items():
        if text is None:
            continue
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder
