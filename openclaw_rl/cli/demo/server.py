"""The server that a demo talks to: the one that runs on the data directory, or one of its own for as long as it takes.

Either way the demo is a user of its own, with a key of its own: nobody else's adapter learns from it.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import aiohttp
import yaml

from openclaw_rl.cli.address import ServerGone, read_address
from openclaw_rl.cli.admin import ask_server
from openclaw_rl.config import EngineConfig, LoadedConfig, StoreConfig, TrainingConfig
from openclaw_rl.config.sources import COMMAND_LINE
from openclaw_rl.engine.registry import capabilities_of
from openclaw_rl.errors import ConfigError, OpenClawError, StoreError
from openclaw_rl.views.rows import open_rows

_STOP_S, _HURRY_S = 90.0, 20.0
_OUTPUT = "demo-server.txt"


class NoDemo(OpenClawError):
    """There is no server that a demo could talk to."""


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
        _refuse_settings(loaded)
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
            _running(store, files, overrides),
            _as_user(store, name, is_made=is_made, is_kept=is_kept) as server,
        ):
            try:
                yield server
            finally:
                is_kept = server.is_kept
    finally:
        if not is_kept:
            await asyncio.to_thread(shutil.rmtree, store.data_dir, ignore_errors=True)


def _refuse_settings(loaded: LoadedConfig) -> None:
    """Only where the data is may be said: what else a running server does was said when it was started."""
    given = [key for key, source in loaded.sources.items() if source == COMMAND_LINE and not key.startswith("store.")]
    if given:
        raise ConfigError(
            f"a server runs on {loaded.config.store.data_dir}, with settings of its own, and would not hear of "
            f"{', '.join(sorted(given))}: stop it, or leave them out"
        )


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


@asynccontextmanager
async def _running(store: StoreConfig, files: Sequence[Path], overrides: Sequence[str]) -> AsyncIterator[None]:
    """`openclaw-rl up` as a child that Ctrl-C in the terminal does not reach: it is stopped in order."""
    command = [sys.executable, "-m", "openclaw_rl", "up", "--port", "0"]
    for file in files:
        command += ["--config", str(file)]
    output = store.data_dir / _OUTPUT
    with await asyncio.to_thread(_open_output, output) as written:
        child = await asyncio.create_subprocess_exec(
            *command,
            *overrides,
            f"store.data_dir={store.data_dir}",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
    try:
        await _until_ready(child, store, output)
        yield
    finally:
        await _stop(child)


def _open_output(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("wb")


async def _until_ready(child: asyncio.subprocess.Process, store: StoreConfig, output: Path) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5.0)) as http:
        while not await _is_ready(http, store):
            if child.returncode is not None:
                said = (await asyncio.to_thread(output.read_text, errors="replace")).strip()
                raise NoDemo(f"the demo's server did not start:\n{said[-2000:]}")
            await asyncio.sleep(0.2)


async def _is_ready(http: aiohttp.ClientSession, store: StoreConfig) -> bool:
    address = read_address(store.data_dir)
    if address is None:
        return False
    try:
        async with http.get(f"{address.url}/readyz") as reply:
            return reply.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _stop(child: asyncio.subprocess.Process) -> None:
    """In order; another Ctrl-C meanwhile hurries it."""
    for patience_s in (_STOP_S, _HURRY_S):
        if child.returncode is not None:
            return
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(patience_s):
                await child.wait()
        except (TimeoutError, asyncio.CancelledError):
            continue
    if child.returncode is None:
        child.kill()
        await child.wait()
