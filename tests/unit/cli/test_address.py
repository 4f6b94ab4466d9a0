"""Where the server is, and who gets to see the key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.cli.address import Address, ServerGone, find_server, read_address
from openclaw_rl.config import Config, load_config
from openclaw_rl.errors import ConfigError


def settings(data_dir: Path, *overrides: str) -> Config:
    return load_config(env={}, overrides=[f"store.data_dir={data_dir}", *overrides]).config


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "key").write_text("ocrl-local\n")
    return tmp_path


def leave_address(data_dir: Path, url: str) -> None:
    (data_dir / "run" / "address.json").write_text(json.dumps({"url": url, "admin": "/x/admin.sock"}))


def test_a_running_server_is_found_with_its_key(data_dir: Path) -> None:
    leave_address(data_dir, "http://0.0.0.0:31000")
    assert find_server(settings(data_dir), url=None, key=None) == ("http://0.0.0.0:31000", "ocrl-local")
    assert read_address(data_dir) == Address(url="http://0.0.0.0:31000", admin=Path("/x/admin.sock"))


def test_no_server_says_how_to_start_one(data_dir: Path) -> None:
    assert read_address(data_dir) is None
    with pytest.raises(ServerGone, match="openclaw-rl up"):
        find_server(settings(data_dir), url=None, key=None)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://localhost:9/v1/", "http://[::1]:9", "localhost:9"])
def test_the_local_key_is_shown_to_this_machine(data_dir: Path, url: str) -> None:
    found, key = find_server(settings(data_dir), url=url, key=None)
    assert key == "ocrl-local"
    assert found.endswith(":9")
    assert found.startswith("http://")


def test_the_local_key_never_leaves_this_machine(data_dir: Path) -> None:
    elsewhere = "https://models.example:9"
    assert find_server(settings(data_dir), url=elsewhere, key=None) == (elsewhere, None)
    assert find_server(settings(data_dir, "gateway.api_key=theirs"), url=elsewhere, key=None)[1] == "theirs"
    assert find_server(settings(data_dir, "gateway.api_key=theirs"), url=elsewhere, key="given")[1] == "given"


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:99999", "http://[::1"])
def test_what_is_no_address_is_refused(data_dir: Path, url: str) -> None:
    with pytest.raises(ConfigError, match="http://HOST:PORT"):
        find_server(settings(data_dir), url=url, key=None)


@pytest.mark.parametrize("written", ["", "[]", '{"address": 1}', "not json"])
def test_a_damaged_address_is_an_error_and_no_crash(data_dir: Path, written: str) -> None:
    (data_dir / "run" / "address.json").write_text(written)
    with pytest.raises(ServerGone, match=r"address\.json"):
        read_address(data_dir)
