"""A server whose event loop is watched."""

from __future__ import annotations

import json
from pathlib import Path

from tests.server import Server


class MeasuredServer(Server):
    """Tells how long its loop was kept busy by one callback since it was last asked."""

    module = "tests.hardening.measured_child"

    def __init__(self, data_dir: Path, *settings: str) -> None:
        self._file = data_dir.with_name("stalls.jsonl")
        self._num_read = 0
        super().__init__(data_dir, *settings, env={"STALLS_FILE": str(self._file)})

    def longest_stall(self) -> tuple[float, str]:
        """In seconds of processor time, and what it was at; 0 if there was none worth writing down."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        new, self._num_read = lines[self._num_read :], len(lines)
        found = [(float(line["seconds"]), str(line["what"])) for line in map(json.loads, new)]
        return max(found, default=(0.0, ""))
