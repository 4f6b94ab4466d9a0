"""Keys, and the check of Host and Origin."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from multidict import CIMultiDict

from openclaw_rl.errors import ConfigError, RequestError
from openclaw_rl.gateway.access.auth import Doorkeeper, KeyRing, check_binding, new_key, read_key_file, write_key_file


@pytest.mark.parametrize("header", ["Authorization: Bearer {}", "authorization: bearer  {} ", "X-Api-Key: {}"])
def test_a_key_opens_the_door_for_its_user(header: str) -> None:
    key, secret = new_key("ada", 1.0)
    name, _, value = header.format(secret).partition(": ")
    assert KeyRing([key]).user(CIMultiDict({name: value})) == "ada"


@pytest.mark.parametrize(
    "shown", ["", "Bearer", "Bearer ", "Basic {}", "Bearer {}x", "Bearer é", "Bearer ' OR 1=1 --", "Bearer \udce9"]
)
def test_anything_else_is_a_401(shown: str) -> None:
    key, secret = new_key("ada", 1.0)
    with pytest.raises(RequestError) as refusal:
        KeyRing([key]).user(CIMultiDict({"Authorization": shown.format(secret)}))
    assert refusal.value.status == 401


def test_the_secret_is_not_in_the_key() -> None:
    key, secret = new_key("ada", 1.0)
    assert secret not in repr(key)
    assert len(secret) > 40


def test_a_revoked_key_opens_nothing() -> None:
    key, secret = new_key("ada", 1.0)
    ring = KeyRing([key])
    assert ring.remove(key.id)
    assert not ring.remove(key.id)
    with pytest.raises(RequestError):
        ring.user({"x-api-key": secret})


def test_the_key_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert read_key_file(path) is None
    write_key_file(path, "ocrl-secret")
    assert read_key_file(path) == "ocrl-secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_strangers_are_not_served_without_a_key(host: str) -> None:
    check_binding(host, require_key=True)
    with pytest.raises(ConfigError, match="require_key"):
        check_binding(host, require_key=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_loopback_may_do_without(host: str) -> None:
    check_binding(host, require_key=False)


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("127.0.0.1:30000", None, True),
        ("localhost", None, True),
        ("[::1]:30000", None, True),
        ("box.lan:30000", None, True),
        ("evil.com", None, False),
        ("127.0.0.1.evil.com", None, False),
        ("localhost.evil.com:30000", None, False),
        ("", None, False),
        ("127.0.0.1:notaport", None, False),
        ("user@127.0.0.1", None, False),
        ("127.0.0.1:30000", "http://127.0.0.1:30000", True),
        ("127.0.0.1:30000", "https://app.example", True),
        ("127.0.0.1:30000", "http://127.0.0.1:8000", False),
        ("127.0.0.1:30000", "http://localhost.evil.com:30000", False),
        ("127.0.0.1:30000", "null", False),
        ("127.0.0.1:30000", "file://127.0.0.1:30000", False),
        ("127.0.0.1:30000", "http://evil.com", False),
    ],
)
def test_host_and_origin(host: str, origin: str | None, allowed: bool) -> None:
    door = Doorkeeper(host="127.0.0.1", allowed_hosts=["Box.lan"], allowed_origins=["https://app.example/"])
    headers = CIMultiDict({"Host": host, **({"Origin": origin} if origin is not None else {})})
    if allowed:
        door.check(headers)
    else:
        with pytest.raises(RequestError) as refusal:
            door.check(headers)
        assert refusal.value.status == 403


@pytest.mark.parametrize("name", ["", "env:terminal", "shared:all", "a/b", "x" * 65])
def test_no_key_is_made_for_a_name_that_is_no_users(name: str) -> None:
    with pytest.raises(ConfigError, match="a user name has 1 to 64 of"):
        new_key(name, 1.0)
