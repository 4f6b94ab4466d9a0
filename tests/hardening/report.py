"""The figures of a hardening suite, one row each: printed, and kept where `HARDENING_REPORT` names a file."""

from __future__ import annotations

import json
import os
from pathlib import Path


def report(name: str, **figures: object) -> None:
    """One row of the table."""
    row = json.dumps({"name": name, **figures})
    print(row)
    path = os.environ.get("HARDENING_REPORT")
    if path:
        with Path(path).open("a") as file:
            file.write(row + "\n")
