"""`openclaw-rl env run`: an order for the running server, or one of its own, and what is told of it meanwhile."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from openclaw_rl.cli.admin import AdminRefused, ask_server, follow_server
from openclaw_rl.cli.env.showing import Collected
from openclaw_rl.cli.own_server import own_server, refuse_settings
from openclaw_rl.cli.screen import make_console, print_json, progress
from openclaw_rl.config import LoadedConfig, StoreConfig
from openclaw_rl.config.sources import DEFAULT
from openclaw_rl.envs.orders import CollectOrder, Tried
from openclaw_rl.views.rows import open_rows
from openclaw_rl.wiring.envs import Environments, make_means


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What was asked for. `is_demo`: a server of its own, in a directory that is removed at the end unless it was
    named."""

    track: str
    source: str
    names: tuple[str, ...]
    num_episodes: int
    group_size: int
    harness: str
    name: str | None
    seed: int
    is_demo: bool
    show_steps: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedServer:
    """Where a server is. `is_own`: it ends with the command."""

    store: StoreConfig
    is_own: bool


@asynccontextmanager
async def a_server(
    loaded: LoadedConfig, *, files: Sequence[Path], overrides: Sequence[str], is_demo: bool, console: Console
) -> AsyncIterator[AskedServer]:
    """The one that runs on the data directory, or one of the command's own, until the end."""
    store = loaded.config.store
    is_passing = is_demo and loaded.sources["store.data_dir"] == DEFAULT
    if not is_passing and await ask_server(store, "GET", "/train") is not None:
        refuse_settings(loaded)
        yield AskedServer(store=store, is_own=False)
        return
    if is_passing:
        store = store.model_copy(update={"data_dir": Path(await asyncio.to_thread(tempfile.mkdtemp))})
    console.print(f"starting a server in {store.data_dir} …", style="dim", markup=False)
    try:
        async with own_server(store, files, overrides):
            yield AskedServer(store=store, is_own=True)
    finally:
        if is_passing:
            await asyncio.to_thread(shutil.rmtree, store.data_dir, ignore_errors=True)


def run_tasks(
    loaded: LoadedConfig, plan: RunPlan, *, files: Sequence[Path], overrides: Sequence[str], as_json: bool
) -> int:
    """0 if attempts were graded; 130 after Ctrl-C."""
    order = CollectOrder(
        tried=Tried(environment=plan.track, source=_source(loaded, plan), harness=plan.harness, names=plan.names),
        run=plan.name or f"{plan.track}-{time.strftime('%Y%m%d-%H%M%S')}",
        num_episodes=plan.num_episodes,
        group_size=plan.group_size,
        parallel=loaded.config.rollout.parallel_envs,
        workers=loaded.config.rollout.num_workers,
        seed=plan.seed,
        tell_steps=plan.show_steps,
    )
    console = make_console("stderr" if as_json else "stdout")
    try:
        told = asyncio.run(_collect(loaded, plan, order, files=files, overrides=overrides, console=console))
    except KeyboardInterrupt:
        console.print(f"stopped; go on with: openclaw-rl env run {plan.track} --run {order.run}", markup=False)
        return 130
    if as_json:
        print_json(told.to_json())
    else:
        told.show(goes_on=not plan.is_demo)
    return 0 if told.made else 1


def _source(loaded: LoadedConfig, plan: RunPlan) -> str:
    """A demo shows the set that its environment lists first."""
    if plan.source or plan.names or not plan.is_demo:
        return plan.source
    listed = Environments(make_means(loaded.config))[plan.track].sources()
    return listed[0].name if listed else ""


async def _collect(
    loaded: LoadedConfig,
    plan: RunPlan,
    order: CollectOrder,
    *,
    files: Sequence[Path],
    overrides: Sequence[str],
    console: Console,
) -> Collected:
    server = a_server(loaded, files=files, overrides=overrides, is_demo=plan.is_demo, console=console)
    async with server as asked:
        store = asked.store
        with progress(show=True, beside=console) as bars:
            told = Collected(console, bars, order)
            told.counts = await follow_server(store, "/collect", order.to_json(), on_told=told.hear)
            if asked.is_own and not plan.is_demo:
                bars.add_task("learning from the last of them", total=None)
                if trouble := await learn_rest(store, f"env:{plan.track}"):
                    console.print(f"the last samples wait for the next start: {trouble}", markup=False)
        versions = await asyncio.to_thread(lambda: open_rows(store).versions(f"env:{plan.track}"))
        told.versions = [version.label for version in versions]
    return told


async def learn_rest(store: StoreConfig, line: str) -> str:
    """Returns when what was collected is learned, and answers or is rejected; why not, where that went wrong. A server
    that ends with its command would else wait for more samples until then."""
    trains = await ask_server(store, "GET", "/train")
    if not trains or not trains["trains"]:
        return ""
    rows = await asyncio.to_thread(open_rows, store)
    for _ in range(_NUM_LOOKS):
        if not await asyncio.to_thread(lambda: rows.num_open("judge", line) + rows.num_open("credit", line)):
            break
        await asyncio.sleep(_LOOK_AGAIN_S)
    try:
        await ask_server(store, "POST", "/train", timeout_s=None)
    except AdminRefused as refused:
        return str(refused)
    return ""


_LOOK_AGAIN_S, _NUM_LOOKS = 0.2, 300
"""A minute: what cannot be judged or credited by then is tried again when a server runs here again."""
