"""`keys`: looking reads, changing goes to the writer, whoever that is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from openclaw_rl.cli.connect.keys import add_key, revoke_key, show_keys
from openclaw_rl.config import StoreConfig
from openclaw_rl.errors import ConfigError, OpenClawError
from openclaw_rl.gateway.access.auth import KeyRing, key_digest, write_key_file
from openclaw_rl.gateway.api.admin import build_admin
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.types import ApiKey

CAPS = pytest.CaptureFixture[str]


@pytest.fixture
def store(tmp_path: Path) -> StoreConfig:
    return StoreConfig(data_dir=tmp_path)


def stored_keys(store: StoreConfig) -> list[ApiKey]:
    return StoreReader.open(store.data_dir).keys()


@asynccontextmanager
async def running_server(store: StoreConfig, socket: Path) -> AsyncIterator[KeyRing]:
    """The writer and its admin socket, as the pipeline runs them."""
    run = store.data_dir / "run"
    run.mkdir(exist_ok=True)
    (run / "address.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "admin": str(socket)}))
    async with await SqliteStore.open(store.data_dir) as writer:
        ring = KeyRing(await writer.keys())
        runner = web.AppRunner(build_admin(writer, ring))
        await runner.setup()
        await web.UnixSite(runner, str(socket)).start()
        yield ring
        await runner.cleanup()


def test_without_a_server_the_command_writes_itself(store: StoreConfig, capsys: CAPS) -> None:
    add_key(store, "bob", "his laptop", as_json=False)
    secret = capsys.readouterr().out.strip()
    (key,) = stored_keys(store)
    assert (key.user, key.label, key.digest, key.revoked_at) == ("bob", "his laptop", key_digest(secret), None)

    revoke_key(store, key.id)
    (revoked,) = stored_keys(store)
    assert revoked.revoked_at is not None
    assert f"{key.id} of bob is revoked" in capsys.readouterr().err

    revoke_key(store, key.id)
    assert "before" in capsys.readouterr().err
    assert stored_keys(store) == [revoked]


async def test_a_running_server_learns_at_once(store: StoreConfig, capsys: CAPS) -> None:
    async with running_server(store, store.data_dir / "elsewhere.sock") as ring:
        await asyncio.to_thread(add_key, store, "carol", "", as_json=True)
        made = json.loads(capsys.readouterr().out)
        assert ring.user({"x-api-key": made["key"]}) == "carol"
        await asyncio.to_thread(revoke_key, store, made["id"])
        with pytest.raises(OpenClawError, match="not known"):
            ring.user({"x-api-key": made["key"]})
    assert [(key.id, key.revoked_at is None) for key in stored_keys(store)] == [(made["id"], False)]


async def test_a_killed_server_s_socket_does_not_stand_in_the_way(store: StoreConfig) -> None:
    async with running_server(store, store.data_dir / "run" / "admin.sock"):
        pass
    left = await asyncio.start_unix_server(lambda *_: None, store.data_dir / "run" / "admin.sock")
    left.close()
    assert (store.data_dir / "run" / "admin.sock").exists()
    await asyncio.to_thread(add_key, store, "dan", "", as_json=True)
    assert [key.user for key in stored_keys(store)] == ["dan"]


def test_the_list_shows_no_secret(store: StoreConfig, capsys: CAPS) -> None:
    add_key(store, "bob", "[red]x", as_json=True)
    made = json.loads(capsys.readouterr().out)
    show_keys(store, as_json=True)
    text = capsys.readouterr().out
    (listed,) = json.loads(text)
    assert set(listed) == {"id", "user", "label", "created_at", "revoked_at", "terms"}
    assert made["key"] not in text
    show_keys(store, as_json=False)
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == [made["id"], "bob", "[red]x"]


def test_revoking_one_s_own_key_says_what_happens_then(store: StoreConfig, capsys: CAPS) -> None:
    add_key(store, "local", "key file", as_json=True)
    made = json.loads(capsys.readouterr().out)
    write_key_file(store.data_dir / "key", made["key"])
    revoke_key(store, made["id"])
    assert "makes a new one" in capsys.readouterr().err


def test_unknown_keys_and_bad_names_are_refused(store: StoreConfig) -> None:
    add_key(store, "bob", "", as_json=True)
    with pytest.raises(OpenClawError, match="no key 'k-nope'"):
        revoke_key(store, "k-nope")
    for name in ("", "a b", "ä", "x" * 65, "bob\n"):
        with pytest.raises(ConfigError, match="user name"):
            add_key(store, name, "", as_json=True)
    assert len(stored_keys(store)) == 1
