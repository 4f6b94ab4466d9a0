"""A backup is the store of one moment, whole, private and checked; what was restored is that store, wherever it is."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from openclaw_rl.errors import StoreBusy, StoreError
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.store.audit import Audited, audit
from openclaw_rl.store.backup import MANIFEST, back_up, restore, verify
from openclaw_rl.types import ApiKey, Version, WeightsRef
from tests.factories.planned import made, planned, take
from tests.factories.stored import put_samples
from tests.factories.turns import make_conversation, make_session


def make_weights(folder: Path) -> str:
    (folder / "weights").mkdir(parents=True)
    (folder / "optimiser").mkdir()
    (folder / "optimiser" / "state.bin").write_bytes(os.urandom(1000))
    (folder / "weights" / "adapter_config.json").write_text("{}")
    (folder / "weights" / "adapter_model.safetensors").write_bytes(os.urandom(5000))
    return folder_sha256(folder / "weights")


async def fill(data_dir: Path) -> None:
    """A store with a conversation, a lesson that became a version with files, a key, and what lies beside it."""
    async with await SqliteStore.open(data_dir) as store:
        await store.put_session(make_session("talk"))
        for turn in make_conversation(6, session="talk"):
            await store.put_turn(turn)
        await store.put_key(ApiKey(id="k-1", user="ann", digest=b"d" * 32, created_at=1.0, label=""))
        await put_samples(store, [made("lesson")])
        sha256 = make_weights(data_dir / "versions" / "v1")
        await take(store, planned(1, 0, "lesson.0"))
        weights = WeightsRef.of_folder(data_dir / "versions" / "v1" / "weights", sha256)
        await store.lessons._transact(
            lambda c: c.exec_driver_sql("UPDATE version SET weights = ?, sha256 = ?", (weights.uri, sha256))
        )
    (data_dir / "key").write_text("ocrl-secret\n")
    (data_dir / "connections").mkdir()
    (data_dir / "connections" / "codex.json").write_text("{}")


def content(data_dir: Path) -> tuple[object, ...]:
    reader = StoreReader.open(data_dir)
    versions = [replace(one, weights=None) for one in reader.versions()]
    return reader.turns("talk"), reader.sessions(), reader.keys(), reader.samples_named(["lesson.0"]), versions


def live(data_dir: Path) -> Version:
    (version,) = StoreReader.open(data_dir).versions()
    return version


async def test_what_is_restored_elsewhere_is_what_was_backed_up(tmp_path: Path) -> None:
    data, copy, other = tmp_path / "data", tmp_path / "backups" / "today", tmp_path / "other"
    await fill(data)
    before = content(data)
    manifest = back_up(data, copy)
    assert (len(manifest.versions), manifest.missing) == (1, [])
    assert {"store.sqlite3", "key", "connections/codex.json", "versions/v1/optimiser/state.bin"} <= set(manifest.files)
    assert not list(copy.parent.glob(".*")), "nothing unfinished is left"
    for path in (copy, *copy.rglob("*")):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    (data / "versions" / "v1" / "weights" / "adapter_model.safetensors").write_bytes(b"gone")
    restore(copy, other)
    assert content(other) == before
    version = live(other)
    assert version.folder == other / "versions" / "v1" / "weights"
    assert folder_sha256(version.folder) == version.sha256
    assert (other / "key").read_text() == "ocrl-secret\n"
    assert list(audit(StoreReader.open(other), Audited())) == []
    async with await SqliteStore.open(other) as store:
        assert store.recovery.wal_bytes == 0


async def test_a_server_goes_on_while_it_is_backed_up(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await fill(data)
    async with await SqliteStore.open(data) as store:
        await store.put_session(make_session("newest"))
        back_up(data, tmp_path / "copy")
        await store.put_session(make_session("later"))
        with pytest.raises(StoreBusy, match="already writes"):
            restore(tmp_path / "copy", data)
    reader = StoreReader(tmp_path / "copy" / "store.sqlite3")
    assert (reader.session("newest") is not None, reader.session("later")) == (True, None)


async def test_what_was_deleted_is_not_in_a_backup(tmp_path: Path) -> None:
    """Not even before its bytes are erased from the files of the server."""
    async with await SqliteStore.open(tmp_path / "data") as store:
        for name in ("kept", "gone"):
            await store.put_session(make_session(name))
            for turn in make_conversation(4, session=name):
                said = replace(turn.message, content=f"{name}-marker")
                await store.put_turn(replace(turn, message=said, messages=turn.messages[-1:], parent=None))
        await store.lessons.delete_session("gone")
        back_up(tmp_path / "data", tmp_path / "copy")
        assert b"gone-marker" in (tmp_path / "data" / "store.sqlite3-wal").read_bytes()
    copied = (tmp_path / "copy" / "store.sqlite3").read_bytes()
    assert (b"kept-marker" in copied, b"gone-marker" in copied) == (True, False)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def link_key(copy: Path) -> None:
    (copy / "key").unlink()
    (copy / "key").symlink_to("/dev/null")


def edit_manifest(copy: Path, **changes: object) -> None:
    told = json.loads((copy / MANIFEST).read_text())
    (copy / MANIFEST).write_text(json.dumps(told | changes))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped bit in the store": (lambda copy: flip(copy / "store.sqlite3"), "store.sqlite3 is not what was written"),
    "a flipped bit in weights": (
        lambda copy: flip(copy / "versions" / "v1" / "weights" / "adapter_model.safetensors"),
        "adapter_model.safetensors is not what was written",
    ),
    "a file that is gone": (lambda copy: (copy / "key").unlink(), "key is not there"),
    "a link in its place": (link_key, "key is not there"),
    "no manifest": (lambda copy: (copy / MANIFEST).unlink(), "is no backup: it has no manifest.json"),
    "half a manifest": (lambda copy: (copy / MANIFEST).write_text('{"format": 1'), "ValidationError in its manifest"),
    "a newer format": (lambda copy: edit_manifest(copy, format=2), "has format 2, this release knows 1"),
    "a newer store": (lambda copy: edit_manifest(copy, schema_version=999), "schema version 999"),
    "a path that leads out": (
        lambda copy: edit_manifest(copy, files={"../../etc/passwd": {"bytes": 1, "sha256": ""}}),
        "passwd is not there",
    ),
    "no store": (lambda copy: edit_manifest(copy, files={}), "it has no store.sqlite3"),
}


@pytest.mark.parametrize("name", DAMAGES)
async def test_a_damaged_backup_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    damage, told = DAMAGES[name]
    await fill(tmp_path / "data")
    back_up(tmp_path / "data", tmp_path / "copy")
    verify(tmp_path / "copy")
    damage(tmp_path / "copy")
    with pytest.raises(StoreError, match=told):
        restore(tmp_path / "copy", tmp_path / "new")
    assert not (tmp_path / "new").exists()


async def test_a_store_with_anything_in_it_is_never_written_over(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    await fill(data)
    back_up(data, copy)
    with pytest.raises(StoreError, match=r"holds 2 conversations and 1 versions: move that directory away"):
        restore(copy, data)
    with pytest.raises(StoreError, match="is there and not empty"):
        back_up(data, copy)
    empty = tmp_path / "empty"
    async with await SqliteStore.open(empty):
        pass
    restore(copy, empty)
    assert content(empty) == content(data)


async def test_after_a_loss_it_takes_the_place_of_what_was_lost(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    await fill(data)
    before = content(data)
    back_up(data, copy)
    (data / "store.sqlite3").write_bytes(b"")
    flip(data / "versions" / "v1" / "weights" / "adapter_model.safetensors")
    with pytest.raises(StoreError, match="openclaw-rl restore"):
        await SqliteStore.open(data)
    restore(copy, data)
    assert content(data) == before
    version = live(data)
    assert version.folder is not None
    assert folder_sha256(version.folder) == version.sha256


async def test_a_damaged_store_makes_no_backup(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await fill(data)
    with (data / "store.sqlite3").open("r+b") as file:
        for page in range(4, 40, 2):
            file.seek(4096 * page)
            file.write(b"\x55" * 64)
    with pytest.raises(StoreError, match="damaged"):
        back_up(data, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
