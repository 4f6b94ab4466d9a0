"""Rollouts on disk: JSON lines, one for each turn, in one file or in one for each session. And reading them back.

A turn has one line. One that was written before anything had followed it is replaced when something does. What is
known by its id is not written twice, so that a writer that was killed may simply repeat what it is not sure of.
The files hold conversations: they are made for their owner alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import orjson

from openclaw_rl.config import StoreConfig
from openclaw_rl.errors import OpenClawError
from openclaw_rl.gateway.api.rollouts import rollout_json
from openclaw_rl.types import Json
from openclaw_rl.views.rows import has_store, open_rows

ALL_SESSIONS = "rollouts.jsonl"
_STATE = ".collect.json"
_LOCK = ".collect.lock"
_LONGEST_NAME = 150
"""Characters of a session's name in that of its file; file systems take 255 bytes."""

Line = dict[str, Json]


class RolloutError(OpenClawError):
    """Files of rollouts cannot be read or written."""


class RolloutFiles:
    """Writes lines into a folder. One process at a time; made with `with`."""

    def __init__(self, folder: Path, *, session_aware: bool) -> None:
        self._folder = folder
        self._session_aware = session_aware
        self._is_followed: dict[str, bool] = {}
        self.cursor = ""
        """Up to where everything has been written."""

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise RolloutError(f"{self._folder} cannot be written ({error.strerror}); choose another folder") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read_what_is_there()
        except BlockingIOError:
            os.close(self._lock)
            raise RolloutError(f"another collector already writes {self._folder}; choose another folder") from None
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lock)

    @property
    def num_turns(self) -> int:
        return len(self._is_followed)

    def put(self, lines: Sequence[Line], cursor: str | None = None) -> int:
        """Write lines, and where they end; how many were new. On disk when it returns."""
        new: defaultdict[Path, list[Line]] = defaultdict(list)
        better: defaultdict[Path, list[Line]] = defaultdict(list)
        for line in lines:
            is_followed, known = line["next_state"] is not None, self._is_followed.get(line["id"])
            if known is None:
                new[self._path(line["session_id"])].append(line)
            elif is_followed and not known:
                better[self._path(line["session_id"])].append(line)
            self._is_followed[line["id"]] = is_followed or bool(known)
        for path, some in better.items():
            _replace(path, some)
        for path, some in new.items():
            _append(path, some)
        if cursor is not None and cursor != self.cursor:
            self.cursor = cursor
            write_whole(self._folder / _STATE, orjson.dumps({"cursor": cursor}) + b"\n")
        return sum(map(len, new.values()))

    def _path(self, session: str) -> Path:
        return self._folder / (file_name(session) if self._session_aware else ALL_SESSIONS)

    def _read_what_is_there(self) -> None:
        for path in sorted(self._folder.glob("*.jsonl")):
            _drop_half_a_line(path)
            for line in read_lines(path):
                self._is_followed[line["id"]] = line["next_state"] is not None
        try:
            self.cursor = str(orjson.loads((self._folder / _STATE).read_bytes())["cursor"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RolloutError(f"{self._folder / _STATE} cannot be read ({error}); delete it to start again") from error


def file_name(session: str) -> str:
    """The file of a session, whatever a client has called it.

    >>> file_name("agent:main/1")
    'agent%3Amain%2F1.jsonl'
    """
    name = quote(session, safe="")
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(session.encode()).hexdigest()[:16]}"
    return f"{name}.jsonl"


def inspect_sessions(path: Path) -> dict[str, list[Line]]:
    """Every turn of every session under its session's id, in order; each has a `type`, main or side."""
    store = StoreConfig(data_dir=path)
    if has_store(store):
        rows = open_rows(store)
        return {
            summary.session.id: [rollout_json(record) for record in rows.records(summary.session.id)]
            for summary in rows.sessions()
        }
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path] if path.is_file() else []
    if not files:
        raise RolloutError(
            f"{path} has neither rollouts (*.jsonl) nor a store; `openclaw-rl rollouts collect` makes some"
        )
    turns: dict[str, dict[int, Line]] = {}
    for file in files:
        for line in read_lines(file):
            turns.setdefault(line["session_id"], {})[line["index"]] = line
    return {session: [of_it[index] for index in sorted(of_it)] for session, of_it in turns.items()}


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of one file; RolloutError with its place for what is no turn."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            try:
                line = orjson.loads(raw)
                _ = line["id"], line["next_state"], line["session_id"] + "", line["index"] + 0
            except (ValueError, KeyError, TypeError) as error:
                raise RolloutError(
                    f"{path}:{number} is no turn of a rollout ({error!r}); move the file away"
                ) from error
            yield line


def _append(path: Path, lines: Sequence[Line]) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab") as file:
        file.write(_text(lines))
        file.flush()
        os.fsync(file.fileno())


def _replace(path: Path, lines: Sequence[Line]) -> None:
    newer = {line["id"]: line for line in lines}
    write_whole(path, _text([newer.get(line["id"], line) for line in read_lines(path)]))


def write_whole(path: Path, text: bytes) -> None:
    """Writes a file that nobody ever reads half."""
    scratch = path.with_name(f".{path.name}.new")
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def _drop_half_a_line(path: Path) -> None:
    """What a killed writer left at the end; its turn is written again."""
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)


def _text(lines: Sequence[Line]) -> bytes:
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)
