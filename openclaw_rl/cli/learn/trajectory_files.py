"""Sessions of the store -> files in the formats of others; and such files -> recordings. Writes to no store.

    atif              a .json for each line of turns of a session: SESSION.json, SESSION+2.json, …
    training-trace    a .json for each session, with the turns that have ids

What is read says itself which of them it is. The files hold conversations: they are made for their owner alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from openclaw_rl.cli.learn.rollout_files import RolloutError, file_name, write_whole
from openclaw_rl.envs.trajectories.atif import atif_trajectories, read_atif
from openclaw_rl.envs.trajectories.parsing import TrajectoryError
from openclaw_rl.envs.trajectories.recording import Recording
from openclaw_rl.envs.trajectories.training_trace import is_traceable, read_training_trace, training_trace
from openclaw_rl.errors import ConfigError
from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import Json, Session, Skip


def _traces(recording: Recording) -> list[dict[str, Json]]:
    return [training_trace(recording)] if any(is_traceable(record.turn) for record in recording.records) else []


FORMATS: Mapping[str, Callable[[Recording], Sequence[dict[str, Json]]]] = {
    "atif": atif_trajectories,
    "training-trace": _traces,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """`without_ids`: turns that a training trace has no place for; `private`: turns that were opted out."""

    sessions: int
    turns: int
    files: int
    without_ids: int
    private: int

    def to_json(self) -> dict[str, Json]:
        return asdict(self)


def write_trajectories(rows: ReadStore, sessions: Sequence[Session], folder: Path, *, form: str) -> Exported:
    """Writes sessions into a new folder; RolloutError where that cannot be, ConfigError for an unknown format."""
    if form not in FORMATS:
        raise ConfigError(f"there is no format {form!r}; expected {', '.join(FORMATS)}")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RolloutError(f"{folder} is not empty; choose a new folder")
        return _write(rows, sessions, folder, form)
    except OSError as error:
        raise RolloutError(f"{folder} cannot be written ({error.strerror}); choose another folder") from error


def _write(rows: ReadStore, sessions: Sequence[Session], folder: Path, form: str) -> Exported:
    told = turns = files = traceable = private = 0
    for session in sessions:
        recording, left_out = _recorded(rows, session)
        private += left_out
        documents = FORMATS[form](recording) if recording.records else ()
        for number, document in enumerate(documents, start=1):
            stem = file_name(session.id).removesuffix(".jsonl")
            # No other session's file has this name: a plus sign in a session's own is written otherwise.
            name = f"{stem}.json" if number == 1 else f"{stem}+{number}.json"
            write_whole(folder / name, orjson.dumps(document) + b"\n")
        told += bool(documents)
        files += len(documents)
        turns += len(recording.records)
        traceable += sum(is_traceable(record.turn) for record in recording.records)
    left = turns - traceable if form == "training-trace" else 0
    return Exported(sessions=told, turns=turns - left, files=files, without_ids=left, private=private)


def _recorded(rows: ReadStore, session: Session) -> tuple[Recording, int]:
    """A session without what was opted out, and how many turns that is."""
    stored = rows.records(session.id)
    kept = [each for each in stored if not session.opted_out and each.turn.skip is not Skip.OPTED_OUT]
    indices = {record.turn.index for record in kept}
    attempt = rows.episode(session.episode.id) if session.episode is not None else None
    recording = Recording(
        session=session,
        records=tuple(kept),
        judgements={each.index: each for each in rows.judgements(session.id) if each.index in indices},
        outcome=attempt[1] if attempt is not None else None,
    )
    return recording, len(stored) - len(kept)


def read_trajectories(path: Path) -> list[Recording]:
    """The sessions that the .json files of a folder tell of, or one file. Other JSON in a folder is left alone.

    TrajectoryError for a trajectory that is broken; it names the file and the place.
    """
    atif: dict[str, bytes] = {}
    found: list[Recording] = []
    for file, raw, version in _files(path):
        if version == 1:
            found.append(read_training_trace(raw, file=file))
        else:
            atif[file] = raw
    found += read_atif(atif)
    names = [recording.session.id for recording in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise TrajectoryError(f"{path} tells of session {min(twice)} in two files; keep one of them")
    return found


def _files(path: Path) -> Iterator[tuple[str, bytes, Json]]:
    """Name, content and schema version of each file that says it has one."""
    if path.is_file():
        files = [] if path.suffix == ".jsonl" else [path]
    else:
        files = sorted(file for file in path.glob("*.json") if not file.name.startswith("."))
    for file in files:
        try:
            raw = file.read_bytes()
            told = orjson.loads(raw)
        except OSError as error:
            raise TrajectoryError(f"{file} cannot be read ({error.strerror})") from error
        except orjson.JSONDecodeError as error:
            raise TrajectoryError(f"{file} is no JSON: {error}") from error
        if isinstance(told, dict) and "schema_version" in told:
            yield file.name, raw, told["schema_version"]
        elif file == path:
            raise TrajectoryError(
                f"{file} is neither an ATIF trajectory nor a training trace: it has no schema_version"
            )
