"""A command -> the running server, the only writer: through its admin socket, which only its owner can open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from openclaw_rl.cli.address import START_IT, read_address
from openclaw_rl.config import StoreConfig
from openclaw_rl.errors import ConfigError, OpenClawError
from openclaw_rl.types import LINE_NAME, USER_NAME, Json

_ADMIN_SOCKET = Path("run", "admin.sock")


class AdminRefused(OpenClawError):
    """The running server did not do what was asked."""


class NoServer(OpenClawError):
    """What only a running server can do."""


def check_user_name(name: str) -> None:
    """`ConfigError` for what the server would not take."""
    if not USER_NAME.fullmatch(name):
        raise ConfigError(f"a user name has 1 to 64 of A-Z a-z 0-9 _ . -; got {name!r}")


def check_line_name(name: str) -> None:
    """`ConfigError` for what cannot be the name of a line of versions."""
    if not LINE_NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is neither a user name (1 to 64 of A-Z a-z 0-9 _ . -) nor an environment's line such as "
            "env:terminal"
        )


def _socket(store: StoreConfig) -> Path:
    address = read_address(store.data_dir)
    return address.admin if address is not None and address.admin is not None else store.data_dir / _ADMIN_SOCKET


async def follow_server(
    store: StoreConfig, path: str, body: Json, *, on_told: Callable[[Any], None] = lambda _: None
) -> Any:
    """What a long piece of work of the running server came to; `on_told` hears what it tells meanwhile. Leaving ends
    the work."""
    socket = _socket(store)
    try:
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(str(socket)),
                timeout=aiohttp.ClientTimeout(total=None, sock_read=60.0),
                read_bufsize=1 << 22,  # the last line has all answers
            ) as session,
            session.post(f"http://admin{path}", data=orjson.dumps(body)) as reply,
        ):
            if reply.status != 200:
                raise AdminRefused(str(orjson.loads(await reply.read())["error"]))
            async for raw in reply.content:
                line = orjson.loads(raw)
                if "error" in line:
                    raise AdminRefused(str(line["error"]))
                if "result" in line:
                    return line["result"]
                if line:
                    on_told(line)
    except aiohttp.ClientConnectorError:
        raise NoServer(f"no server is running on {store.data_dir}; {START_IT}") from None
    except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError) as error:
        raise AdminRefused(f"the server did not answer as expected on {socket}: {error!r}") from error
    raise AdminRefused("the server stopped before it was done")


async def ask_server(
    store: StoreConfig, method: str, path: str, body: Json = None, *, timeout_s: float | None = 300.0
) -> Any:
    """The running server's answer; None when no server listens. `timeout_s` None waits as long as it takes."""
    socket = _socket(store)
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
