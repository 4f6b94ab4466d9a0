"""`openclaw-rl env run`: an order for the running server, or one of its own, and what is told of it meanwhile."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
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
from openclaw_rl.envs.orders import Attempted, CollectOrder, Tried
from openclaw_rl.envs.registry import make_environment
from openclaw_rl.errors import ConfigError
from openclaw_rl.views.rows import open_rows
from openclaw_rl.wiring.envs import line_of_track, make_means

_ORDERED = frozenset(
    f"rollout.{name}"
    for name in ("parallel_envs", "num_workers", "collection_mode", "benchmark", "harness", "function_path")
)
"""Settings that an order tells the server."""


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
        refuse_settings(loaded, used=_ORDERED)
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
    """0 if attempts were graded, or none were left to make; 130 after Ctrl-C."""
    order = _order(loaded, plan)
    console = make_console("stderr" if as_json else "stdout")
    try:
        told = asyncio.run(_collect(loaded, plan, order, files=files, overrides=overrides, console=console))
    except KeyboardInterrupt:
        from openclaw_rl.cli.startup import our_command

        more = () if plan.name else ("--run", order.run)
        again = shlex.join((*sys.argv[1:], *more))
        goes_on = "" if plan.is_demo else f"; go on with: {our_command()} {again}"
        console.print(f"stopped{goes_on}", markup=False, soft_wrap=True)
        return 130
    if as_json:
        print_json(told.to_json())
    else:
        told.show(goes_on=not plan.is_demo)
    return 0 if told.graded or not (told.made or told.broken) else 1


def _order(loaded: LoadedConfig, plan: RunPlan) -> CollectOrder:
    named = plan.track.rpartition(":")[2]
    try:
        return CollectOrder(
            tried=Tried(environment=plan.track, source=_source(loaded, plan), harness=plan.harness, names=plan.names),
            run=plan.name or f"{named}-{time.strftime('%Y%m%d-%H%M%S')}",
            num_episodes=plan.num_episodes,
            group_size=plan.group_size,
            parallel=loaded.config.rollout.parallel_envs,
            workers=loaded.config.rollout.num_workers,
            seed=plan.seed,
            tell_steps=plan.show_steps,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _source(loaded: LoadedConfig, plan: RunPlan) -> str:
    """A demo shows the set that its environment lists first."""
    if plan.source or plan.names or not plan.is_demo:
        return plan.source
    listed = make_environment(plan.track, make_means(loaded.config)).sources()
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
            told = Collected(console, bars, order, last_words=_words(store) if plan.show_steps else lambda _: "")
            told.counts = await follow_server(store, "/collect", order.to_json(), on_told=told.hear)
            line = line_of_track(plan.track, make_means(loaded.config))
            if asked.is_own and not plan.is_demo:
                bars.add_task("learning from the last of them", total=None)
                if trouble := await learn_rest(store, line):
                    console.print(f"the last samples wait for the next start: {trouble}", markup=False)
        versions = await asyncio.to_thread(lambda: open_rows(store).versions(line))
        told.versions = [version.label for version in versions]
    return told


def _words(store: StoreConfig) -> Callable[[Attempted], str]:
    """The last answer in an attempt; empty where there is none."""

    def last(made: Attempted) -> str:
        rows = open_rows(store)
        sessions = [name for one, _, found in rows.group(made.group) if one.attempt == made.attempt for name in found]
        turns = [turn for name in sessions for turn in rows.turns(name) if turn.kind == "main"]
        return max(turns, key=lambda turn: turn.finished_at).message.content if turns else ""

    return last


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
