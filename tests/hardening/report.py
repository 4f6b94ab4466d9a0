"""One row of figures for each suite: printed, and appended to the file that `HARDENING_REPORT` names."""

from __future__ import annotations

import json
import os
from pathlib import Path


def report(name: str, **figures: float | str) -> None:
    """One row."""
    line = json.dumps({"suite": name, **figures})
    print(line)
    if path := os.environ.get("HARDENING_REPORT"):
        with Path(path).open("a") as file:
            file.write(line + "\n")
