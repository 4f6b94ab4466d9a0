"""`openclaw-rl backup` and `restore`: copies of everything that must survive, told in a line."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from openclaw_rl.cli.screen import make_console
from openclaw_rl.config import StoreConfig
from openclaw_rl.errors import StoreError
from openclaw_rl.store.backup import Manifest, back_up, restore
from openclaw_rl.views.words import size


def make_backup(store: StoreConfig, target: Path) -> None:
    _refuse_shared(store, "`pg_dump -Fc` copies it while servers write")
    manifest = back_up(store.data_dir, target)
    console = make_console("stderr")
    console.print(Text(f"{target} holds {_told(manifest)}, and was read again."))
    if manifest.missing:
        missing = f"Without files, here as there: {', '.join(manifest.missing)}."
        console.print(missing, style="bold yellow", markup=False)


def restore_backup(store: StoreConfig, source: Path) -> None:
    _refuse_shared(store, "`pg_restore` fills an empty database")
    manifest = restore(source, store.data_dir)
    console = make_console("stderr")
    console.print(Text(f"{store.data_dir} is as it was backed up: {_told(manifest)}. `openclaw-rl up` starts it."))


def _refuse_shared(store: StoreConfig, instead: str) -> None:
    if store.url is not None:
        beside = ", ".join(str(store.data_dir / name) for name in ("versions", "key"))
        raise StoreError(f"the store is on PostgreSQL: {instead}; copy {beside} beside it")


def _told(manifest: Manifest) -> str:
    num = len(manifest.versions)
    return f"the store and {num} version{'' if num == 1 else 's'}, {size(manifest.num_bytes)}"
