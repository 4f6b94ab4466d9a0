"""A source's name -> where an OpenEnv server is, and what it says of itself over HTTP. Knows no episodes.

http://127.0.0.1:8000              ws:// and wss:// mean the same server
https://host/space#tasks=200       at most so many tasks of each split, or so many seeds
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

import aiohttp
import orjson
from pydantic import TypeAdapter, ValidationError

from openclaw_rl.envs.tasks.openenv.shapes import Metadata, NumTasks, Schemas, SplitOffer
from openclaw_rl.errors import EnvError, EnvGone, TaskError
from openclaw_rl.types import Json

_MAX_BODY_BYTES = 16 * 2**20
_TIMEOUT = aiohttp.ClientTimeout(total=30.0, connect=10.0)
_FORM = "http://HOST:PORT, https://HOST/PATH, ws:// or wss://; #tasks=N takes the first N tasks"
_NOT_OFFERED = frozenset({404, 405, 501})

_Told = TypeVar("_Told")
_NAMES = TypeAdapter(list[str])
_SPLITS = TypeAdapter(list[SplitOffer])


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """`http` and `ws` are the base URLs without a slash at the end, `host` the name that messages show."""

    http: str
    ws: str
    host: str
    num_tasks: int | None = None

    @classmethod
    def parse(cls, source: str) -> Self:
        """TaskError for what is no such address."""
        try:
            parts = urlsplit(source)
            encrypted = {"http": "", "ws": "", "https": "s", "wss": "s"}[parts.scheme]
            host = _host(parts)
            options = dict(parse_qsl(parts.fragment, strict_parsing=True)) if parts.fragment else {}
            limit = options.pop("tasks", None)
            num_tasks = None if limit is None else int(limit)
        except (ValueError, KeyError) as error:
            raise TaskError(f"{_named(source)} is not the address of an OpenEnv server; expected {_FORM}") from error
        if parts.query or options or (num_tasks is not None and num_tasks < 1):
            raise TaskError(f"{_named(source)} asks for more than an address and a number of tasks; expected {_FORM}")
        rest = f"://{parts.netloc}{parts.path.rstrip('/')}"
        return cls(http=f"http{encrypted}{rest}", ws=f"ws{encrypted}{rest}", host=host, num_tasks=num_tasks)


class ServerDesk:
    """What a server answers over HTTP. `EnvGone` where it does not answer, `TaskError` where it is no OpenEnv server.

    Used within `async with aiohttp.ClientSession(...)`, which the caller has.
    """

    def __init__(self, address: ServerAddress, session: aiohttp.ClientSession) -> None:
        self._address = address
        self._session = session

    async def schemas(self) -> Schemas:
        found = await self._ask("GET", "/schema", Schemas)
        if found is None:
            raise TaskError(f"{self._address.host} has no /schema: it is no OpenEnv server")
        return found

    async def metadata(self) -> Metadata:
        return await self._ask("GET", "/metadata", Metadata) or Metadata(name=self._address.host)

    async def splits(self) -> tuple[str, list[SplitOffer]]:
        """The name of the environment, and the splits of its tasks; none where it has seeds alone."""
        names = await self._fetch("GET", "/list_environments")
        if not names:
            return "", []
        name = self._read(_NAMES, names)[0]
        splits = await self._fetch("GET", f"/{name}/splits")
        return name, [] if splits is None else self._read(_SPLITS, splits)

    async def num_tasks(self, name: str, split: str) -> int:
        found = await self._ask("POST", f"/{name}/num_tasks", NumTasks, {"split": split})
        if found is None:
            raise TaskError(f"{self._address.host} does not say how many tasks its split {split} has")
        return found.num_tasks

    async def _ask(self, method: str, path: str, shape: type[_Told], body: Json = None) -> _Told | None:
        told = await self._fetch(method, path, body)
        return None if told is None else self._read(TypeAdapter(shape), told)

    def _read(self, shape: TypeAdapter[_Told], told: Json) -> _Told:
        try:
            return shape.validate_python(told)
        except ValidationError as error:
            raise TaskError(f"{self._address.host} does not answer as an OpenEnv server does: {error}") from error

    async def _fetch(self, method: str, path: str, body: Json = None) -> Json:
        """The JSON of an answer; None where the server does not offer this."""
        url, host = f"{self._address.http}{path}", self._address.host
        try:
            async with self._session.request(
                method, url, json=body, timeout=_TIMEOUT, allow_redirects=False
            ) as response:
                if response.status in _NOT_OFFERED:
                    return None
                if response.status != 200:
                    raise EnvError(f"{host} answered {response.status} to {method} {path}")
                raw = bytearray()
                async for part in response.content.iter_any():
                    raw += part
                    if len(raw) > _MAX_BODY_BYTES:
                        raise EnvError(f"{host} answered {method} {path} with more than {_MAX_BODY_BYTES} bytes")
            return orjson.loads(raw)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise EnvGone(f"{host} does not answer ({type(error).__name__}); is the OpenEnv server running?") from error
        except orjson.JSONDecodeError as error:
            raise TaskError(f"{host} answers {path} with something that is no JSON: it is no OpenEnv server") from error


def _host(parts: SplitResult) -> str:
    if not parts.hostname:
        raise ValueError("no host")
    return parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"


def _named(source: str) -> str:
    """The source as messages may show it: an address may hold a password."""
    return repr(source.rpartition("@")[2])
