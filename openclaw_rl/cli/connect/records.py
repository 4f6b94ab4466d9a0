"""What `connect` changed for each client, kept in the data directory so that `connect --remove` can undo it.

A record holds the client's key and what its files held before, so it is as private as the key file beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from openclaw_rl.cli.connect.files import Edit, write_text
from openclaw_rl.cli.connect.openclaw import Change
from openclaw_rl.errors import ConfigError

FOLDER = Path("connections")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One client, connected. `edits` are its files, `changes` what its own program was told."""

    client: str
    key_id: str
    key: str
    edits: Sequence[Edit] = ()
    changes: Sequence[Change] = ()


_FORM = TypeAdapter(Connection)


def read_connection(data_dir: Path, client: str) -> Connection | None:
    path = data_dir / FOLDER / f"{client}.json"
    try:
        return _FORM.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path} cannot be read ({type(error).__name__}); move it away to connect anew") from error


def write_connection(data_dir: Path, connection: Connection) -> None:
    folder = data_dir / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written ({error.strerror})") from error
    write_text(folder / f"{connection.client}.json", _FORM.dump_json(connection, indent=2).decode(), 0o600)


def drop_connection(data_dir: Path, client: str) -> None:
    write_text(data_dir / FOLDER / f"{client}.json", None, 0o600)


def connected(data_dir: Path) -> list[str]:
    """The clients that are connected, by name."""
    return sorted(path.stem for path in (data_dir / FOLDER).glob("*.json"))
