"""READ FIRST: the whole system on one page, its loops, how it starts, recovers and stops.

    agent ──HTTP──▶ gateway ──tokens──▶ engine        a request becomes a turn, and the turn is on disk before its end
                       │
                       ▼
                     store                            everything that must survive, and the only thing loops share
                       │
                       ├──▶ judge ──▶ a judgement     what followed a turn, read as feedback
                       ├──▶ credit ──▶ a sample       or the reason why there is none
                       └──▶ train ──▶ a version       on the engine, behind a gate: the next answer carries it

    loop       consumes             produces                        waits for                woken by
    ---------  -------------------  ------------------------------  -----------------------  ----------------------
    serve      HTTP requests        turns, next states, feedback    the engine, one fsync    clients
    engine     a worker's death     a worker that answers           its /health              its exit
    hear       what other          the same sessions and keys      the store                other processes
               processes did
    expire     idle sessions        ended sessions, skips           the next expiry          the clock
    retention  old, ended sessions  free, overwritten pages         one transaction each     the clock
    erase      traces of deletions  pages and a log without them    readers                  the clock
    warm       the first turn       a judge and a trainer that  the engine, the trainer  the store
                                    are ready, what the gate
                                    compares with
    judge      next states,         judgements                      the judge                the store, the clock
               feedback
    credit     judgements           samples, or skips               rendering, in threads    the store, the clock
    train      samples              steps, candidate versions       a batch or a pause       the store, the clock
    release    candidate versions   live, or rejected ones          the engine, the trainer  the train loop, the clock
    confirm    versions that        confirmed, or rejected ones     the engine               the release
               answer on probation
    watch      turns, judgements    a way back to the parent        the store                the store
    examine    live versions        measures of them, if wished     the engine               the release
    follow     versions that other  the same answers here           the engine               other processes
               processes released
    page       every row            events for pages that are open  a page; a pause          the store

The loops meet in the store. None calls another, except that the train loop hands its candidates to the release.
`learn=False` leaves out judging, crediting and training. Observers (`tracking/`) are told what was done, and change
nothing. `wiring/` makes the parts; this page runs them.

Start: find the model, take the writer's lock, recover the store, load keys and open sessions, start the loops, listen.
What a killed process had begun to judge or credit is free again at once. Stop: the loops end in the reverse order of
their start. No new connections; running answers finish (`gateway.drain_s`) and their turns are written; learning stops
where it is, for rows say what is left to do; the engine ends; the store closes. A kill -9 at any point is a start like
any other: nothing that a client saw the end of is missing.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from openclaw_rl.config import Config, LoadedConfig
from openclaw_rl.dashboard.server.making import make_decisions, make_page
from openclaw_rl.envs.collecting import at_once
from openclaw_rl.envs.pace import Pace
from openclaw_rl.errors import EngineUnavailable, TrainError
from openclaw_rl.gateway.access.retention import expire_sessions, let_go
from openclaw_rl.protocols import EngineHost, LearningStore
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.release.undo.commands import Serving
from openclaw_rl.tracking import make_observers
from openclaw_rl.train.loop import TrainLoop
from openclaw_rl.types import LOCAL_USER, Version
from openclaw_rl.wiring.cloud import look_at_service
from openclaw_rl.wiring.commands import make_commands
from openclaw_rl.wiring.envs import Trying, collecting, held_out, make_means, make_pace
from openclaw_rl.wiring.foundation import check_settings, lay_foundation, open_store, prepare_run_dir, write_private
from openclaw_rl.wiring.learning import (
    make_credit_loop,
    make_judging,
    make_rehearsal,
    make_release,
    make_train_loop,
    make_trainer,
)
from openclaw_rl.wiring.serving import listening, make_serving, socket_dir

log = logging.getLogger("openclaw_rl.pipeline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a person needs to know once the system listens."""

    url: str
    key: str
    model: str
    data_dir: Path
    page: str | None = None
    """A link to the page that lets its owner in, once; None: there is no page."""


async def run(
    config: Config,
    *,
    learn: bool = True,
    on_started: Callable[[Started], None] = lambda _: None,
    on_stopping: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = lambda _: None,
    loaded: LoadedConfig | None = None,
) -> None:
    """Runs the system until Ctrl-C or SIGTERM. `on_started` is told when the first request could be answered.

    `say` is given a line about each step, in a thread of its own. `loaded` says where each setting comes from.

    Without `learn` it serves and records only: what people say is on disk, and judged by the next start that learns.
    """
    stop, hurry = _on_signals()
    check_settings(config, learn=learn)
    await look_at_service(config, learn=learn, say=say)
    foundation = await lay_foundation(config, learn=learn)
    trainer = make_trainer(foundation) if learn else None
    async with AsyncExitStack() as cleanup:
        store = await cleanup.enter_async_context(await open_store(config.store))
        lessons, run_dir = store.lessons, prepare_run_dir(config)
        log.info("store opened", extra=asdict(store.recovery))
        await lessons.run_with(foundation.model_id)
        sockets = cleanup.enter_context(socket_dir(run_dir))
        serving = await make_serving(foundation, store, sockets)
        host, gateway, metrics = serving.host, serving.gateway, serving.metrics
        observers = make_observers(config, registry=metrics.registry, say=say, known=await lessons.versions())
        cleanup.push_async_callback(asyncio.to_thread, observers.close)
        gateway.on_turn.append(observers.answered)

        async with asyncio.TaskGroup() as tasks, AsyncExitStack() as running:
            start = partial(_start, tasks, running)
            start("engine", host.run(), end=host.stop)
            start("expire", expire_sessions(gateway))
            if serving.retention is not None:
                start("retention", serving.retention.run())
            if serving.following is not None:
                start("hear", serving.following.run())
            start("erase", make_commands(config, store).forgetting.run())
            running.callback(gateway.shares.close)
            running.push_async_callback(gateway.background.drain)

            listens_at: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            pace = make_pace(config, lessons)
            keep_pace = at_once if trainer is None else pace.keep
            collector = await running.enter_async_context(
                collecting(foundation, serving, lessons, listens_at, keep_pace=keep_pace)
            )
            if trainer is not None:
                running.push_async_callback(trainer.close)
            exam = held_out(collector, lessons)
            releasing = make_release(foundation, lessons, host, serving.live, observers, trainer=trainer, tasks=exam)
            releaser = releasing.releaser
            start("release", releaser.run())
            start("confirm", releaser.confirm())
            if lessons.is_shared:
                start("follow", releaser.follow())
            start("examine", releasing.examiner.run())
            if releasing.watch is not None:
                start("watch", releasing.watch.run())

            idle_lines, judging = asyncio.Queue[str](), None
            if learn:
                judging = await make_judging(foundation, lessons, host.engine, sockets, metrics)
                if judging.host is not None:
                    start("judge engine", judging.host.run(), end=judging.host.stop)
                running.push_async_callback(judging.close)
                await lessons.release_earlier()
                start("judge", judging.loop.run())
                if trainer is not None:
                    rehearse = partial(trainer.rehearse, make_rehearsal(config, foundation.renderer))
                    start("warm", _warm(host, lessons, judging.prepared, rehearse, idle_lines))
                start("credit", make_credit_loop(foundation, lessons, host.engine, metrics, observers).run())

            training = None
            if trainer is not None:
                training = make_train_loop(
                    config,
                    lessons,
                    trainer,
                    foundation.renderer,
                    release=partial(_release, releaser, pace),
                    on_step=observers.stepped,
                    on_skip=observers.skipped,
                    on_waiting=idle_lines.put_nowait,
                    terms_of=serving.keys.terms_of,
                )
                start("train", _train(releaser, training))
                start("prepare", _prepare(releaser, idle_lines))

            commands = make_commands(
                config,
                store,
                serving=Serving(releaser=releaser, engine=host.engine),
                let_go=partial(let_go, gateway),
                forget_cache=gateway.forget_cache,
                catch_up=observers.catch_up,
            )
            train = None if training is None else partial(training.work, at_once=True)
            trying = Trying(collector=collector, lessons=lessons, releaser=releaser, means=make_means(config))
            telling = {"/collect": trying.collect, "/try": trying.examine}
            page = None
            if config.gateway.page:
                page = make_page(foundation, serving, releasing, judging, lessons, commands, loaded=loaded)
                start("page", page.feed.run())
            url = await running.enter_async_context(
                listening(
                    foundation,
                    serving,
                    releasing,
                    commands,
                    telling=telling,
                    train=train,
                    hurry=hurry,
                    page_routes=(lambda _: ()) if page is None else page.routes,
                    page_link=None if page is None else page.link,
                    decisions=partial(make_decisions, config),
                )
            )
            listens_at.set_result(url)
            write_private(run_dir / "address.json", json.dumps({"url": url, "admin": str(sockets / "admin.sock")}))
            started = Started(
                url=url,
                key=serving.secret,
                model=foundation.model.name,
                data_dir=config.store.data_dir,
                page=None if page is None else page.link(url),
            )
            _tune_interpreter()
            announcing = start("announce", _announce(host, started, on_started))
            await stop.wait()
            announcing.cancel()
            on_stopping()
        (run_dir / "address.json").unlink(missing_ok=True)
    log.info("stopped")


def _start(
    tasks: asyncio.TaskGroup,
    running: AsyncExitStack,
    name: str,
    loop: Coroutine[None, None, None],
    *,
    end: Callable[[], Awaitable[None]] | None = None,
) -> asyncio.Task[None]:
    """Starts a loop. When `running` is left, the loop is ended by `end`, or cancelled."""
    task = tasks.create_task(loop, name=name)

    async def cancel() -> None:
        task.cancel()
        await asyncio.wait((task,))

    running.push_async_callback(end or cancel)
    return task


async def _announce(host: EngineHost, started: Started, on_started: Callable[[Started], None]) -> None:
    """Says that the system is ready when it is, and says so as long as it is not."""
    while not host.is_ready:
        try:
            await host.wait_ready()
        except EngineUnavailable as error:
            log.warning("not ready yet: %s", error)
    on_started(started)
    log.info("started", extra={"url": started.url, "model": started.model})


async def _train(releaser: Releaser, loop: TrainLoop) -> None:
    """Trains once the candidates of the last run are released or rejected. A step that is cut short is taken again."""
    await releaser.settled()
    await loop.run()


async def _release(releaser: Releaser, pace: Pace, version: Version) -> None:
    """Whoever waits for what was learned is told when it answers, or never will."""
    try:
        await releaser.release(version)
    finally:
        pace.stepped()


async def _prepare(releaser: Releaser, idle_lines: asyncio.Queue[str]) -> None:
    """While a line waits for samples, the gate asks its live version what it will compare the next one with."""
    while True:
        await releaser.prepare(await idle_lines.get())


async def _warm(
    host: EngineHost,
    lessons: LearningStore,
    prepare_judges: Callable[[], Awaitable[None]],
    rehearse: Callable[[], Awaitable[None]],
    idle_lines: asyncio.Queue[str],
) -> None:
    """With the first turn, all that its lesson would wait for is made ready; on a GPU, which has room, at the start."""
    if not (await host.wait_ready()).device.startswith("cuda"):
        await lessons.woken("warm").wait()
    await prepare_judges()
    try:
        await rehearse()
    except TrainError as error:
        log.warning("the trainer is not ready yet: %s", error)  # the first step says so too, and is tried again
    idle_lines.put_nowait(LOCAL_USER)


def _on_signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Stop and hurry: the first Ctrl-C or SIGTERM sets one, the second the other, a third gives up on order."""
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def told() -> None:
        if hurry.is_set():
            raise KeyboardInterrupt
        (hurry if stop.is_set() else stop).set()

    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, told)
    return stop, hurry


def _tune_interpreter() -> None:
    """Two of Python's defaults do not suit a server that answers beside a thread that writes.

    The collector took 17 % of the time under load: what lives now lives until the end, and requests make little cyclic
    garbage. And whoever wants the interpreter may wait 5 ms for it, at every step of a commit; 0.5 ms was the better
    one in two of three paired runs at 200 requests/s, and the disk's noise hid the third.
    """
    sys.setswitchinterval(0.0005)
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 200, 50)
