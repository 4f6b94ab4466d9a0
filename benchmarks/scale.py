"""What it takes to serve and teach many people: one part for each question, all figures in one table.

    python benchmarks/scale.py [--part NAME]... [--json] [--quick] [--dir DIRECTORY]

A part is a module with `FIGURES` and `measure(chosen)`, named in `PARTS`. Without `--part` all are run, one after the
other. It knows no part's question; docs/benchmarks.md says what was measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.load import LoadError

PARTS: dict[str, str] = {
    "users": "benchmarks.scale_users",
    "gateway": "benchmarks.scale_gateway",
    "fsdp": "benchmarks.scale_fsdp",
}
"""By the name that `--part` takes: the module, which is imported only when its part is run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """How thoroughly to measure, and where files may lie."""

    quick: bool
    directory: Path


class Part(Protocol):
    """A module of `PARTS`. `FIGURES`: what each figure is called in the table, and its bar where it has one."""

    FIGURES: Mapping[str, tuple[str, str]]

    def measure(self, chosen: Chosen) -> Mapping[str, float]:
        """The figures of this part; `LoadError` if one is worth nothing."""
        ...


def part(name: str) -> Part:
    return cast(Part, import_module(PARTS[name]))


def run(names: Sequence[str], chosen: Chosen) -> tuple[dict[str, tuple[str, str]], dict[str, float]]:
    """The labels and the figures of these parts."""
    labels, found = dict[str, tuple[str, str]](), dict[str, float]()
    for name in names:
        began_at = time.monotonic()
        one = part(name)
        found |= one.measure(chosen)
        found[f"seconds_{name}"] = time.monotonic() - began_at
        labels |= {**one.FIGURES, f"seconds_{name}": (f"length of the part {name}, s", "")}
    return labels, found


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure many people on one system.")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only this part; may be given again")
    parser.add_argument("--json", action="store_true", help="also print all figures as one JSON object, last")
    parser.add_argument("--quick", action="store_true", help="fewer users and repetitions; rougher figures")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where stores lie: a disk")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="scale-", dir=arguments.dir) as directory:
            labels, found = run(arguments.part or list(PARTS), Chosen(quick=arguments.quick, directory=Path(directory)))
    except LoadError as error:
        print(f"the benchmark failed: {error}", file=sys.stderr)
        return 1
    print(f"on {platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    for name, (label, bar) in labels.items():
        if name in found:
            print(f"{name:28} {found[name]:>12,.3f}  {label}{f'  ({bar})' if bar else ''}")
    if arguments.json:
        print(json.dumps({name: round(value, 4) for name, value in found.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
