"""A browser on the page of a running server, as far as its requests go; its answers are compared with the contract."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote

import httpx

from openclaw_rl.dashboard.server.contract import ROUTES, shapes_of
from tests.server import Server


def quoted(name: str) -> str:
    """A name as it stands in a path: those of other users' turns have a slash in them."""
    return quote(name, safe="")


def new_link(server: Server) -> str:
    """What `openclaw-rl page` prints."""
    address = json.loads((server.data_dir / "run" / "address.json").read_text())
    with httpx.Client(transport=httpx.HTTPTransport(uds=address["admin"]), base_url="http://admin") as admin:
        url: str = admin.post("/page", json={}).raise_for_status().json()["url"]
    return url


class Browser:
    """One browser with its cookies. Every answer is compared with the contract."""

    def __init__(self, server: Server) -> None:
        own = {"Origin": server.url, "Sec-Fetch-Site": "same-origin", "User-Agent": "Mozilla/5.0"}
        self.client = httpx.Client(base_url=server.url, headers=own, timeout=60)

    @classmethod
    def of_owner(cls, server: Server) -> Browser:
        browser = cls(server)
        browser.post("/ui/api/link", {"link": new_link(server).partition("#link=")[2]})
        return browser

    @classmethod
    def with_key(cls, server: Server, key: str) -> Browser:
        browser = cls(server)
        browser.post("/ui/api/sign-in", {"key": key})
        return browser

    def get(self, path: str, **query: Any) -> Any:
        return self._checked("GET", path, self.client.get(path, params=query))

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        return self._checked("POST", path, self.client.post(path, json={} if body is None else body, params=query))

    def say(self, **body: Any) -> list[dict[str, Any]]:
        """The events of an answer."""
        with self.client.stream("POST", "/ui/api/chat", json=body) as response:
            assert response.status_code == 200, response.read()
            return list(events_of(response))

    def answer(self, **body: Any) -> tuple[str, str]:
        """The turn and the text of an answer that must come to its end."""
        told = self.say(**body)
        assert told[0]["event"] == "begun", told
        assert told[-1]["event"] == "ended", told
        return told[0]["turn"], "".join(one["text"] for one in told if one["event"] == "text")

    @contextmanager
    def listening(self) -> Iterator[Iterator[dict[str, Any]]]:
        """What an open page hears."""
        with self.client.stream("GET", "/ui/api/events") as response:
            assert response.status_code == 200, response.read()
            yield events_of(response)

    def close(self) -> None:
        self.client.close()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _checked(self, method: str, path: str, response: httpx.Response) -> Any:
        assert response.status_code == 200, f"{method} {path}: {response.status_code} {response.text[:500]}"
        (route,) = (one for one in ROUTES if one.method == method and _matches(one.path, path))
        assert isinstance(route.answer, type)
        told = response.json()
        check_shape(route.answer, told)
        return told


def events_of(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The events of a stream, each one of the contract's."""
    found = {shape for route in ROUTES for shape in _events(route)}
    shapes = {name: shape for shape in found for name in get_args(get_type_hints(shape)["event"])}
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        if line.startswith("data: "):
            told = json.loads(line.removeprefix("data: "))
            assert told["event"] == name
            check_shape(shapes[name], told)
            yield told


def check_shape(shape: Any, value: Any, where: str = "") -> None:
    """Whether a JSON value has exactly the fields of a shape, of their types."""
    if isinstance(shape, type) and is_dataclass(shape):
        assert isinstance(value, dict), f"{where} is {value!r}, and no {shape.__name__}"
        assert set(value) == {field.name for field in fields(shape)}, f"{where} is no {shape.__name__}: {value}"
        for name, hint in get_type_hints(shape).items():
            check_shape(hint, value[name], f"{where}.{name}")
        return
    origin, inner = get_origin(shape), get_args(shape)
    if origin is Literal:
        assert value in inner, f"{where}: {value!r} is none of {inner}"
    elif origin in (Union, UnionType):
        kinds = [one for one in inner if one is not NoneType]
        assert value is not None or len(kinds) < len(inner), f"{where} is null"
        if value is not None:
            check_shape(kinds[0], value, where)
    elif origin is tuple:
        assert isinstance(value, list), f"{where}: {value!r} is no list"
        for one in value:
            check_shape(inner[0], one, f"{where}[]")
    elif origin is dict:
        assert isinstance(value, dict), f"{where}: {value!r} is no object"
        for one in value.values():
            check_shape(inner[1], one, f"{where}{{}}")
    elif shape is float:
        assert isinstance(value, int | float), f"{where}: {value!r} is no number"
        assert not isinstance(value, bool), f"{where}: {value!r} is no number"
    else:
        assert type(value) is shape, f"{where}: {value!r} is no {shape}"


def _matches(pattern: str, path: str) -> bool:
    parts, named = pattern.split("/"), path.split("/")
    return len(parts) == len(named) and all(
        one.startswith("{") or one == two for one, two in zip(parts, named, strict=True)
    )


def _events(route: Any) -> list[Any]:
    return [shape for shape in shapes_of(route) if any(field.name == "event" for field in fields(shape))]
