"""The server that a demo talks to: the one that runs on the data directory, or one of its own for as long as it takes.

Either way the demo is a user of its own, with a key of its own: nobody else's adapter learns from it.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from openclaw_rl.cli.address import ServerGone, read_address
from openclaw_rl.cli.admin import ask_server
from openclaw_rl.cli.own_server import own_server, refuse_settings
from openclaw_rl.config import EngineConfig, LoadedConfig, StoreConfig, TrainingConfig
from openclaw_rl.engine.registry import capabilities_of
from openclaw_rl.errors import OpenClawError, StoreError
from openclaw_rl.views.rows import open_rows


class NoDemo(OpenClawError):
    """The running server cannot show what a demo shows."""


@dataclass(slots=True, kw_only=True)
class DemoServer:
    """A server that answers. `line` is the demo's user."""

    store: StoreConfig
    url: str
    key: str
    line: str
    batch_size: int
    learns: bool
    has_weights: bool
    """False where a script answers: everything is there but weights that could learn."""
    is_made: bool
    """Its directory was made for the demo."""
    is_kept: bool
    """Its directory stays. Whoever ends a demo early sets this, so that what was learned is not lost."""

    def has_learned(self) -> bool:
        """Whether there is a version now; if nobody can tell, there may be one. Blocking."""
        try:
            return bool(open_rows(self.store).versions(self.line, every_model=True))
        except StoreError:
            return True


@asynccontextmanager
async def demo_server(
    loaded: LoadedConfig,
    name: str,
    *,
    files: Sequence[Path],
    overrides: Sequence[str],
    keep: bool,
    say: Callable[[str], None],
) -> AsyncIterator[DemoServer]:
    """`name` is the simulated user's; files and overrides are those of the command line, for a server of its own.

    A directory that was made for the demo is removed at its end, unless it is kept.
    """
    store = loaded.config.store
    found = await ask_server(store, "GET", "/train")
    if found is not None:
        refuse_settings(loaded)
        say(f"using the server on {store.data_dir}")
        async with _as_user(store, name, is_made=False, is_kept=True) as server:
            if not (server.learns or not server.has_weights):
                raise NoDemo(f"the server on {store.data_dir} does not learn; stop it and start `openclaw-rl up`")
            yield server
        return
    is_made = loaded.sources["store.data_dir"].startswith("default")
    if is_made:
        made = await asyncio.to_thread(tempfile.mkdtemp, prefix="openclaw-rl-demo-")
        store = store.model_copy(update={"data_dir": Path(made)})
    is_kept = keep or not is_made
    say(f"starting a server of its own in {store.data_dir}" + ("" if is_kept else " (--keep keeps it)"))
    try:
        async with (
            own_server(store, files, overrides),
            _as_user(store, name, is_made=is_made, is_kept=is_kept) as server,
        ):
            try:
                yield server
            finally:
                is_kept = server.is_kept
    finally:
        if not is_kept:
            await asyncio.to_thread(shutil.rmtree, store.data_dir, ignore_errors=True)


@asynccontextmanager
async def _as_user(store: StoreConfig, name: str, *, is_made: bool, is_kept: bool) -> AsyncIterator[DemoServer]:
    """A new user of the running server, whose key is gone afterwards."""
    address = read_address(store.data_dir)
    if address is None:
        raise ServerGone(f"the server on {store.data_dir} has gone")
    settings = await asyncio.to_thread(_settings, store)
    engine = {"type": settings.get("engine", {}).get("type", "embedded")}
    line = await asyncio.to_thread(_free_name, store, name)
    made = await ask_server(store, "POST", "/keys", {"user": line, "label": "demo"})
    trains = await ask_server(store, "GET", "/train")
    if made is None or trains is None:
        raise ServerGone(f"the server on {store.data_dir} has gone")
    server = DemoServer(
        store=store,
        url=address.url,
        key=made["key"],
        line=line,
        batch_size=settings.get("training", {}).get("batch_size", TrainingConfig().batch_size),
        learns=trains["trains"],
        has_weights=capabilities_of(EngineConfig.model_validate(engine)).has_weights,
        is_made=is_made,
        is_kept=is_kept,
    )
    try:
        yield server
    finally:
        with suppress(OpenClawError):
            await ask_server(store, "DELETE", f"/keys/{quote(made['id'], safe='')}", timeout_s=5.0)


def _settings(store: StoreConfig) -> dict[str, Any]:
    """Those of the server that runs there."""
    try:
        read = yaml.safe_load((store.data_dir / "run" / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return {}
    return read if isinstance(read, dict) else {}


def _free_name(store: StoreConfig, name: str) -> str:
    """A user that has said nothing yet: a demo begins with the base model."""
    wanted = "demo-" + (re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:40] or "user")
    try:
        rows = open_rows(store)
        taken = {summary.session.user for summary in rows.sessions()} | {
            one.line for one in rows.versions(every_model=True)
        }
    except StoreError:
        taken = set()
    number = 1
    while (free := wanted if number == 1 else f"{wanted}-{number}") in taken:
        number += 1
    return free
