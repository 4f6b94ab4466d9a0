"""Imported by the Python scripts beside it: runs the one that was started, by its name, in the project's own .venv.

Knows the standard library alone, as whoever starts a script may not have activated anything.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run() -> None:
    """As launch.sh: $PYTHON is whoever runs this, else .venv if it is there; a sentence where a module is missing."""
    venv, script = ROOT / ".venv", Path(sys.argv[0]).name
    python = venv / "bin" / "python"
    if not os.environ.get("PYTHON") and Path(sys.prefix).resolve() != venv.resolve() and os.access(python, os.X_OK):
        os.execv(python, [str(python), *sys.argv])  # noqa: S606 (the same script)
    sys.path.insert(0, str(ROOT))
    try:
        import openclaw_rl.cli.app  # noqa: F401 (what every script needs)
        from openclaw_combine.launch import launch
    except ModuleNotFoundError as error:
        sys.exit(f"{script}: this Python has no module {error.name}; run `make setup` in {ROOT} once, and start again")
    launch(script, sys.argv[1:])
