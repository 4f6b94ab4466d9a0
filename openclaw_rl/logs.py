"""Log records to JSON lines in a file that only its owner reads, and to short warnings on the terminal.

What a record says beside its message stands in `extra`: counts, names and times. Conversation text never does.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import sys
from pathlib import Path

_MAX_BYTES = 20 << 20
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _PLAIN},
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Rotating(logging.handlers.RotatingFileHandler):
    """Starts a new file once the old one is full. The original formats every record twice to know it in advance."""

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802 - the name is the library's
        return self.stream is not None and self.stream.tell() >= self.maxBytes


def start_logging(path: Path, level: str) -> None:
    """Sends everything from `level` on to `path`, and warnings to the terminal as well."""
    os.close(os.open(path, os.O_CREAT | os.O_APPEND, 0o600))
    to_file = _Rotating(path, maxBytes=_MAX_BYTES, backupCount=1)
    to_file.setFormatter(JsonLines())
    to_terminal = logging.StreamHandler(sys.stderr)
    to_terminal.setLevel(logging.WARNING)
    to_terminal.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [to_file, to_terminal]
    root.setLevel(logging.WARNING)
    logging.getLogger("openclaw_rl").setLevel(level.upper())
    # Quotes the bytes of requests that it cannot parse, and so whatever a client sent.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL + 1)
