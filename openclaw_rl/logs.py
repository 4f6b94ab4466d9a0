"""Log records to JSON lines in a file that only its owner reads, and to short warnings on the terminal.

What a record says beside its message stands in `extra`: counts, names and times. Conversation text never does. Errors
of libraries and paths may still carry a key or an address: everything that is written is redacted.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import re
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from unicodedata import category

from openclaw_rl.redaction import is_secret_name, redact

_MAX_BYTES = 20 << 20
_SHORT = 200
"""Up to this length the same few texts come again and again: event names, routes, models."""
_KEPT = "\n\t\u200c\u200d"
"""Control and format characters that harm nobody: layout, and the joiners that emoji and some scripts need."""
_SUSPECT = re.compile(r"[^\n\t -~]")
"""Most text has none of these, and is not looked at any closer."""
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def printable(text: str) -> str:
    """Foreign text without control and format characters: what a model or a client wrote must not steer the terminal,
    turn the direction of reading, or hide."""
    return _SUSPECT.sub(lambda found: "" if is_hidden(found[0]) else found[0], text)


def is_hidden(char: str) -> bool:
    """Whether a terminal obeys this character instead of showing it."""
    return char not in _KEPT and category(char) in ("Cc", "Cf")


class JsonLines(logging.Formatter):
    """A record as one line of JSON, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _redacted(record.getMessage()),
            **{name: _clean(name, value) for name, value in vars(record).items() if name not in _PLAIN},
        }
        if record.exc_info:
            line["traceback"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, default=lambda value: _redacted(str(value)))


class _Terse(logging.Formatter):
    """A record as a person reads it, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(redact(super().format(record)))


def _clean(name: str, value: object) -> object:
    """A value of `extra`; whatever goes by the name of a secret is one."""
    match value:
        case None | bool() | int() | float():
            return value
        case dict():
            return {str(key): _clean(str(key), inner) for key, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_clean(name, inner) for inner in value]
        case _:
            return "[redacted secret]" if _is_secret_name(name) else _redacted(str(value))


_is_secret_name = lru_cache(maxsize=256)(is_secret_name)
_redacted_short = lru_cache(maxsize=1024)(redact)


def _redacted(text: str) -> str:
    return _redacted_short(text) if len(text) <= _SHORT else redact(text)


class _Rotating(logging.handlers.RotatingFileHandler):
    """Starts a new file once the old one is full. The original formats every record twice to know it in advance."""

    _has_failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is the library's
        """A disk that fails is told once: the original prints a traceback for every record."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._has_failed:
            self._has_failed = True
            why = f"{self.baseFilename} cannot be written ({error.strerror or error})"
            with suppress(OSError):  # the terminal may be a file on the same disk
                sys.stderr.write(f"{why}: it misses what happens from now on\n")
                sys.stderr.flush()

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802 - the name is the library's
        return self.stream is not None and self.stream.tell() >= self.maxBytes


def start_logging(path: Path, level: str) -> None:
    """Sends everything from `level` on to `path`, and warnings to the terminal as well; with `debug`, everything."""
    os.close(os.open(path, os.O_CREAT | os.O_APPEND, 0o600))
    to_file = _Rotating(path, maxBytes=_MAX_BYTES, backupCount=1)
    to_file.setFormatter(JsonLines())
    to_terminal = logging.StreamHandler(sys.stderr)
    to_terminal.setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    to_terminal.setFormatter(_Terse("%(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [to_file, to_terminal]
    root.setLevel(logging.WARNING)
    logging.getLogger("openclaw_rl").setLevel(level.upper())
    # Quotes the bytes of requests that it cannot parse, and so whatever a client sent.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL + 1)
