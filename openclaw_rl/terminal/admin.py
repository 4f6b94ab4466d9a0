"""A command -> the running server, the only writer: through its admin socket, which only its owner can open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import orjson

from openclaw_rl.config import StoreConfig
from openclaw_rl.errors import OpenClawError
from openclaw_rl.terminal.address import read_address
from openclaw_rl.types import Json

_ADMIN_SOCKET = Path("run", "admin.sock")


class AdminRefused(OpenClawError):
    """The running server did not do what was asked."""


async def ask_server(
    store: StoreConfig, method: str, path: str, body: Json = None, *, timeout_s: float | None = 300.0
) -> Any:
    """The running server's answer; None when no server listens. `timeout_s` None waits as long as it takes."""
    address = read_address(store.data_dir)
    socket = address.admin if address is not None and address.admin is not None else store.data_dir / _ADMIN_SOCKET
    if not socket.exists():
        return None
    try:
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(str(socket)), timeout=aiohttp.ClientTimeout(total=timeout_s)
            ) as session,
            session.request(method, f"http://admin{path}", data=None if body is None else orjson.dumps(body)) as reply,
        ):
            answer = orjson.loads(await reply.read())
            if reply.status != 200:
                raise AdminRefused(str(answer["error"]))
            return answer
    except aiohttp.ClientConnectorError:
        return None  # a server that was killed leaves its socket behind
    except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError) as error:
        raise AdminRefused(f"the server did not answer as expected on {socket}: {error!r}") from error
