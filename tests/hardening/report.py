"""One row for each suite: printed, and added as a line of JSON to the file that HARDENING_REPORT names."""

from __future__ import annotations

import json
import os


def report(name: str, **figures: object) -> None:
    """`name` is the suite's."""
    print(f"{name}: " + ", ".join(f"{figure} {value}" for figure, value in figures.items()))
    if path := os.environ.get("HARDENING_REPORT"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"suite": name, **figures}) + "\n")
