"""Where the gateway of a data directory listens, and which key a command shows it. Does no HTTP.

A running server leaves `run/address.json` behind for others to find it; after a kill the file stays, so an address is
a hint and never a proof.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from openclaw_rl.config import Config
from openclaw_rl.errors import ConfigError, OpenClawError
from openclaw_rl.gateway.access.auth import is_loopback, read_key_file

START_IT = "start it with `openclaw-rl up` (or `make run`)"
ADDRESS_FILE = Path("run", "address.json")
KEY_FILE = Path("key")


class ServerGone(OpenClawError):
    """Nobody answers, or the connection broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a gateway listens, and the socket on which it takes commands that change things."""

    url: str
    admin: Path | None = None


def read_address(data_dir: Path) -> Address | None:
    """The address that a server left in its data directory."""
    path = data_dir / ADDRESS_FILE
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
        admin = written.get("admin")
        return Address(url=written["url"], admin=None if admin is None else Path(admin))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ServerGone(f"{path} cannot be read ({error}); stop the server and {START_IT}") from error


def find_server(config: Config, *, url: str | None, key: str | None, flag: str = "--url") -> tuple[str, str | None]:
    """The base URL and the key to use: what is given by `flag`, else the server that runs on the data directory.

    The key in the data directory is shown to this machine only. Elsewhere it is `key`, or `gateway.api_key`.
    """
    data_dir = config.store.data_dir
    if url is not None:
        url = _base(url)
        is_ours = is_loopback(_host(url, flag))
    elif (running := read_address(data_dir)) is not None:
        url, is_ours = running.url, True
    else:
        raise ServerGone(f"no server is running on {data_dir}; {START_IT}, or name another one with {flag}")
    if key is None and is_ours:
        key = _read_key(data_dir)
    if key is None and config.gateway.api_key is not None:
        key = config.gateway.api_key.get_secret_value()
    return url, key


def _base(url: str) -> str:
    """`url` with a scheme, and without the `/v1` that the base URLs of other clients end in."""
    return (url if "://" in url else f"http://{url}").rstrip("/").removesuffix("/v1")


def _host(url: str, flag: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"{flag} {url} is no address ({error}); write http://HOST:PORT") from error
    if parts.scheme not in ("http", "https") or parts.hostname is None:
        raise ConfigError(f"{flag} {url} is no address; write http://HOST:PORT")
    return parts.hostname


def _read_key(data_dir: Path) -> str | None:
    try:
        return read_key_file(data_dir / KEY_FILE)
    except (OSError, ValueError) as error:
        raise ServerGone(f"the key cannot be read: {error}; run as the owner of {data_dir}, or give --key") from error
