"""Steps -> event files that TensorBoard reads: a folder, and so a "run", for each line. No TensorFlow, no torch."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

from openclaw_rl.tracking.observers import SeriesObserver
from openclaw_rl.types import Step


class TensorBoardObserver(SeriesObserver):
    """Each step is in the file when `stepped` returns, or the error is raised: the package's own `EventFileWriter`
    writes in a thread whose failure is a traceback on the terminal."""

    name = "TensorBoard"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._writers: dict[str, RecordWriter] = {}

    def put(self, step: Step, metrics: Mapping[str, float]) -> None:
        if step.line not in self._writers:
            self._writers[step.line] = self._open(step.line)
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        event = Event(wall_time=step.finished_at or time.time(), step=step.number, summary=Summary(value=values))
        _write(self._writers[step.line], event)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _open(self, line: str) -> RecordWriter:
        folder = self._folder / (f"_{line}" if line.startswith(".") else line)  # a user may be called ".."
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = time.time()
        path = folder / f"events.out.tfevents.{int(now):010d}.{os.getpid()}.{time.monotonic_ns()}"
        writer = RecordWriter(os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb"))
        _write(writer, Event(wall_time=now, file_version="brain.Event:2"))
        return writer


def _write(writer: RecordWriter, event: Event) -> None:
    writer.write(event.SerializeToString())
    writer.flush()
