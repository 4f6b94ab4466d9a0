"""A data directory to a folder of copies, while a server writes it, and such a folder to a data directory again.

    store.sqlite3          all rows as of one moment
    versions/LABEL/        the checkpoint of each version whose weights are in a folder of this machine
    key, connections/      the local user's key, and what `connect` changed
    manifest.json          the size and sha256 of every file above

Both ways whole or not at all: a folder takes its name when everything in it is on the disk and was read again, and a
store takes its name last. Only their owner reads any of it. Blocking.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from openclaw_rl.errors import StoreError
from openclaw_rl.model.folder import file_sha256, sync, unfinished
from openclaw_rl.store.sqlite.damage import told_of
from openclaw_rl.store.sqlite.directory import DATABASE, WriterLock, make_private, wal_path
from openclaw_rl.store.sqlite.migrations import refuse_newer
from openclaw_rl.store.sqlite.reader import StoreReader
from openclaw_rl.types import WeightsRef

MANIFEST = "manifest.json"
_FORMAT = 1
_VERSIONS = Path("versions")
_BESIDE = ("key", "connections")


class File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    bytes: int
    sha256: str


class KeptVersion(BaseModel):
    """`folder` is its checkpoint in the backup, `weights` the folder in it that engines load."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    line: str
    number: int
    folder: str
    weights: str
    sha256: str


class Manifest(BaseModel):
    """`missing`: versions whose files were not there when the backup was made."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    schema_version: int
    made_at: float
    files: dict[str, File]
    versions: list[KeptVersion]
    missing: list[str]

    @property
    def num_bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


def back_up(data_dir: Path, target: Path) -> Manifest:
    """Makes `target`, which must not be there or be empty. StoreError if anything cannot be read or written."""
    store = StoreReader.open(data_dir)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(f"{target} is there and not empty: name a new folder for each backup")
    target = target.absolute()
    work = unfinished(target)
    shutil.rmtree(work, ignore_errors=True)
    try:
        with told_of(target):
            work.mkdir(mode=0o700, parents=True)
            manifest = _fill(work, store, data_dir)
            _write(work / MANIFEST, manifest.model_dump_json(indent=2).encode())
            _sync_folders(work)
            verify(work)
            if target.exists():
                target.rmdir()
            work.rename(target)
            sync(target.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return manifest


def _fill(work: Path, store: StoreReader, data_dir: Path) -> Manifest:
    """The store first: a version that appears later is not in it, and one that goes is told as missing."""
    database = work / DATABASE
    store.copy_to(database)
    sync(database)
    copied = StoreReader.open(work)
    versions, missing = list[KeptVersion](), list[str]()
    for version in copied.versions(every_model=True):
        if (weights := version.folder) is None:
            continue
        folder = _VERSIONS / version.label
        try:
            _copy_tree(weights.parent, work / folder)
        except FileNotFoundError:
            shutil.rmtree(work / folder, ignore_errors=True)
            missing.append(version.label)
            continue
        kept = KeptVersion(
            line=version.line,
            number=version.number,
            folder=str(folder),
            weights=str(folder / weights.name),
            sha256=version.sha256,
        )
        versions.append(kept)
    for name in _BESIDE:
        if (data_dir / name).is_dir():
            _copy_tree(data_dir / name, work / name)
        elif (data_dir / name).exists():
            _copy(data_dir / name, work / name)
    files = {str(path.relative_to(work)): _described(path) for path in sorted(work.rglob("*")) if path.is_file()}
    return Manifest(
        format=_FORMAT,
        schema_version=copied.schema(),
        made_at=time.time(),
        files=files,
        versions=versions,
        missing=missing,
    )


def verify(backup: Path) -> Manifest:
    """Reads every byte of a backup again. StoreError, with the first file that is not as it was made."""
    try:
        manifest = Manifest.model_validate_json((backup / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise StoreError(f"{backup} is no backup: it has no {MANIFEST}; `openclaw-rl backup` makes one") from None
    except (OSError, ValidationError) as error:
        why = f"{type(error).__name__} in its {MANIFEST}"
        raise StoreError(f"the backup {backup} is damaged ({why}): use another one") from error
    if manifest.format != _FORMAT:
        raise StoreError(f"{backup} has format {manifest.format}, this release knows {_FORMAT}: upgrade openclaw-rl")
    refuse_newer(manifest.schema_version)
    for name, told in manifest.files.items():
        path = backup / name
        if path.is_symlink() or not path.resolve().is_relative_to(backup.resolve()) or not path.is_file():
            raise StoreError(f"the backup {backup} is damaged ({name} is not there): use another one")
        if _described(path) != told:
            raise StoreError(f"the backup {backup} is damaged ({name} is not what was written): use another one")
    if DATABASE not in manifest.files:
        raise StoreError(f"the backup {backup} is damaged (it has no {DATABASE}): use another one")
    if found := StoreReader(backup / DATABASE).integrity():
        raise StoreError(f"the store that was backed up to {backup} is damaged ({found[0]}): use another backup")
    return manifest


def restore(backup: Path, data_dir: Path) -> Manifest:
    """Fills a data directory that has no conversation and no version. StoreError otherwise, or while a server runs."""
    manifest = verify(backup)
    with told_of(data_dir):
        make_private(data_dir)
        lock = WriterLock(data_dir)
        try:
            _refuse_used(data_dir)
            _take_in(manifest, backup, data_dir)
        finally:
            lock.release()
    return manifest


def _refuse_used(data_dir: Path) -> None:
    database = data_dir / DATABASE
    log = wal_path(database)
    if database.exists() and database.stat().st_size:
        remedy = "move that directory away, or name another one with --data-dir"
        try:
            store = StoreReader.open(data_dir)
            held = len(store.names()), len(store.versions(every_model=True))
        except StoreError as error:
            raise StoreError(f"there is a store in {data_dir} that cannot be read: {remedy}") from error
        if any(held):
            raise StoreError(f"the store in {data_dir} holds {held[0]} conversations and {held[1]} versions: {remedy}")
    elif log.exists() and log.stat().st_size:
        raise StoreError(f"{log} belongs to a store whose file is lost: move {data_dir} away, then restore")


def _take_in(manifest: Manifest, backup: Path, data_dir: Path) -> None:
    """The store comes last: killed before that, the same command does the rest."""
    for version in manifest.versions:
        target = data_dir / version.folder
        _copy_tree(backup / version.folder, unfinished(target))
        shutil.rmtree(target, ignore_errors=True)
        unfinished(target).rename(target)
    for name in _BESIDE:
        if (backup / name).is_dir():
            shutil.rmtree(data_dir / name, ignore_errors=True)
            _copy_tree(backup / name, data_dir / name)
        elif (backup / name).exists():
            (data_dir / name).unlink(missing_ok=True)
            _copy(backup / name, data_dir / name)
    database = data_dir / DATABASE
    work = unfinished(database)
    work.unlink(missing_ok=True)
    _copy(backup / DATABASE, work)
    _point_to(manifest, work, data_dir)
    _sync_folders(data_dir / _VERSIONS)
    for suffix in ("-wal", "-shm"):
        database.with_name(DATABASE + suffix).unlink(missing_ok=True)
    work.rename(database)
    sync(data_dir)


def _point_to(manifest: Manifest, database: Path, data_dir: Path) -> None:
    """Rows name the folders of versions, which may lie elsewhere now."""
    with closing(sqlite3.connect(database)) as connection, connection:
        for version in manifest.versions:
            weights = WeightsRef.of_folder((data_dir / version.weights).absolute(), version.sha256)
            row = (weights.uri, version.line, version.number)
            connection.execute("UPDATE version SET weights = ? WHERE line = ? AND number = ?", row)
    sync(database)


def _copy_tree(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.mkdir(mode=0o700)
    for path in source.iterdir():
        if path.is_dir():
            _copy_tree(path, target / path.name)
        else:
            _copy(path, target / path.name)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as given, os.fdopen(_new_file(target), "wb") as copy:
        shutil.copyfileobj(given, copy, 1 << 20)
        copy.flush()
        os.fsync(copy.fileno())


def _write(path: Path, data: bytes) -> None:
    with os.fdopen(_new_file(path), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _new_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _described(path: Path) -> File:
    return File(bytes=path.stat().st_size, sha256=file_sha256(path))


def _folders(root: Path) -> Iterator[Path]:
    if root.is_dir():
        yield root
        yield from (path for path in root.rglob("*") if path.is_dir())


def _sync_folders(root: Path) -> None:
    for folder in _folders(root):
        sync(folder)
