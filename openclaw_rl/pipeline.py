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
    expire     idle sessions        ended sessions, skips           the next expiry          the clock
    retention  old, ended sessions  free, overwritten pages         one transaction each     the clock
    judge      next states,         judgements                      the judge                the store, the clock
               feedback
    credit     judgements           samples, or skips               rendering, in threads    the store, the clock
    train      samples              steps, candidate versions       a batch, the trainer     the store, the clock
    release    candidate versions   live, or rejected ones          the engine, the trainer  the train loop, the clock
    watch      turns, judgements    a way back to the parent        the store                the store
    examine    live versions        measures of them, if wished     the engine               the release

They meet in the store; none calls another, but the train loop, which hands its candidates to the release. `learn=False`
leaves out judging, crediting and training. Those who look on (`tracking/`) are told what was done, and change nothing.

Start: take the writer's lock, recover the store, load keys and open sessions, find the model, start the engine, listen.
What a killed process had begun to judge or credit is free again at once. Stop: no new connections, running answers
finish (`gateway.drain_s`), their turns are written, judging stops where it is, the engine ends, the store closes. A
kill -9 at any point is a start like any other: nothing that a client saw the end of is missing.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from aiohttp import web

from openclaw_rl.assembly import (
    check_teacher,
    check_training,
    make_commands,
    make_judge_engine,
    make_supervisor,
    make_train_loop,
    model_id_of,
    new_session_id,
    open_store,
    prepare_run_dir,
    write_private,
)
from openclaw_rl.config import Config, require_available
from openclaw_rl.credit.loop import CreditLoop
from openclaw_rl.credit.settings import CreditSettings
from openclaw_rl.engine.supervisor import SupervisedEngine, Supervisor
from openclaw_rl.errors import ConfigError, EngineUnavailable, StoreError
from openclaw_rl.evaluation.exam import Exam
from openclaw_rl.evaluation.examiner import Examiner
from openclaw_rl.gateway.admin import build_admin
from openclaw_rl.gateway.app import App, Readiness
from openclaw_rl.gateway.auth import KeyRing, check_binding, key_digest, new_key, read_key_file, write_key_file
from openclaw_rl.gateway.exchange import Background, Gateway
from openclaw_rl.gateway.history import Fingerprint
from openclaw_rl.gateway.http_server import HttpRunner
from openclaw_rl.gateway.memory import TokenMemory
from openclaw_rl.gateway.metrics import Metrics
from openclaw_rl.gateway.redacting import RedactingStore
from openclaw_rl.gateway.retention import Retention, let_go
from openclaw_rl.gateway.sessions import Sessions
from openclaw_rl.judge.canaries import Canaries
from openclaw_rl.judge.loop import JudgeLoop, JudgeSettings
from openclaw_rl.judge.registry import check_judge, make_judges
from openclaw_rl.model.files import ModelFiles, resolve_model
from openclaw_rl.protocols import Renderer
from openclaw_rl.release.commands import Commands, Serving
from openclaw_rl.release.gate import Gate, GateLimits
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.probes import Prober, frozen_probes
from openclaw_rl.release.proving import Proving
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.release.watch import Watch, WatchLimits
from openclaw_rl.render import load_renderer
from openclaw_rl.store import SqliteStore
from openclaw_rl.store.learning_log import LearningLog
from openclaw_rl.tracking import Observers, check_tracking, make_observers
from openclaw_rl.train.loop import TrainLoop
from openclaw_rl.train.process import TrainerProcess
from openclaw_rl.types import LOCAL_USER, Credit, Json, JudgedTurn, Version

log = logging.getLogger("openclaw_rl.pipeline")

_MAX_SOCKET_PATH = 100
"""Unix socket paths hold 108 bytes on Linux and 104 on macOS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a person needs to know once the system listens."""

    url: str
    key: str
    model: str
    data_dir: Path


async def run(
    config: Config,
    *,
    learn: bool = True,
    on_started: Callable[[Started], None] = lambda _: None,
    on_stopping: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Runs the system until Ctrl-C or SIGTERM. `on_started` is told when the first request could be answered.

    `say` is given a line about each step, in a thread of its own.

    Without `learn` it serves and records only: what people say is on disk, and judged by the next start that learns.
    """
    stop, hurry = _on_signals()
    require_available(config)
    check_binding(config.gateway.host, require_key=config.gateway.require_key)
    if learn:
        check_judge(config.evaluation)
        check_training(config.training)
    check_tracking(config.tracking)
    model = await asyncio.to_thread(resolve_model, config.model)
    if learn:
        await asyncio.to_thread(check_teacher, config.training, model)
    renderer = await asyncio.to_thread(load_renderer, model.path, model.name, model.tokenizer_path)
    model_id = await asyncio.to_thread(model_id_of, model, config.engine.type, config.model.checkpoint_path)
    metrics = Metrics()
    async with AsyncExitStack() as cleanup:
        store = await cleanup.enter_async_context(await open_store(config.store))
        run_dir = prepare_run_dir(config)
        log.info("store opened", extra=asdict(store.recovery))
        await store.lessons.run_with(model_id)
        known = await store.lessons.versions()
        observers = make_observers(config, registry=metrics.registry, say=say, known=known)
        cleanup.push_async_callback(asyncio.to_thread, observers.close)
        sockets = cleanup.enter_context(_socket_dir(run_dir))
        for stale in sockets.glob("*.sock"):
            stale.unlink()
        supervisor = make_supervisor(config.engine, model, sockets / "engine.sock")
        live = LiveVersions()
        gateway = Gateway(
            live_label=live.label,
            engine=SupervisedEngine(supervisor),
            renderer=renderer,
            store=RedactingStore(store) if config.store.redact else store,
            sessions=await _open_sessions(store, config),
            memory=TokenMemory(store.get_turn, model_id=model_id),
            background=Background(),
            model_id=model_id,
        )
        keys, secret = await _load_keys(store, config)
        has_weights = config.engine.type != "scripted"
        trainer = TrainerProcess.of(config, model.path) if learn and has_weights else None
        async with asyncio.TaskGroup() as loops:
            loops.create_task(supervisor.run(), name="engine")
            tidying = [loops.create_task(_expire(gateway), name="expire")]
            if config.store.retention_days is not None:
                retention = Retention(gateway, store.lessons, store.erase, days=config.store.retention_days)
                tidying.append(loops.create_task(retention.run(), name="retention"))
            tidying.append(loops.create_task(_erase_rest(config, store), name="erase"))
            async with (
                _releasing(loops, config, gateway, store.lessons, live, observers, trainer) as (releaser, examiner),
                _learning(loops, config, gateway, store.lessons, sockets, metrics, observers)
                if learn
                else nullcontext(),
                _training(loops, config, trainer, renderer, releaser, store.lessons, observers)
                if trainer is not None
                else nullcontext() as training,
                _listening(
                    *(gateway, config, model, keys, supervisor, sockets, hurry, metrics, releaser, examiner, training),
                    make_commands(
                        config,
                        store,
                        serving=Serving(releaser=releaser, engine=gateway.engine),
                        let_go=partial(let_go, gateway),
                        catch_up=observers.catch_up,
                    ),
                ) as url,
            ):
                write_private(run_dir / "address.json", json.dumps({"url": url, "admin": str(sockets / "admin.sock")}))
                started = Started(url=url, key=secret, model=model.name, data_dir=config.store.data_dir)
                _tune_interpreter()
                announce = loops.create_task(_announce(supervisor, started, on_started), name="announce")
                await stop.wait()
                announce.cancel()
                on_stopping()
            await gateway.background.drain()
            for task in tidying:
                task.cancel()
            await supervisor.stop()
        (run_dir / "address.json").unlink(missing_ok=True)
    log.info("stopped")


async def _announce(supervisor: Supervisor, started: Started, on_started: Callable[[Started], None]) -> None:
    """Says that the system is ready when it is, and says so as long as it is not."""
    while not supervisor.is_ready:
        try:
            await supervisor.wait_ready()
        except EngineUnavailable as error:
            log.warning("not ready yet: %s", error)
    on_started(started)
    log.info("started", extra={"url": started.url, "model": started.model})


async def _expire(gateway: Gateway) -> None:
    """Consumes idle sessions; produces ended ones. Waits for the next expiry, woken by the clock."""
    while True:
        await asyncio.sleep(max(1.0, gateway.sessions.seconds_to_next_expiry()))
        for ended in gateway.sessions.expired():
            gateway.background.start(gateway.end_session(ended))


async def _erase_rest(config: Config, store: SqliteStore) -> None:
    """Erases what a command deleted that was stopped before that; a disk that fails leaves it to the next start."""
    try:
        await make_commands(config, store).forgetting.resume()
    except StoreError as error:
        log.warning("what was forgotten could not be erased", extra={"reason": str(error)})


@asynccontextmanager
async def _learning(
    loops: asyncio.TaskGroup,
    config: Config,
    gateway: Gateway,
    lessons: LearningLog,
    sockets: Path,
    metrics: Metrics,
    observers: Observers,
) -> AsyncIterator[None]:
    """Judges and credits beside serving. Leaving stops both where they are: rows say what is left to do."""
    renderer, model_id = gateway.renderer, gateway.model_id
    async with AsyncExitStack() as cleanup:
        second, second_renderer = None, None
        if "model" in config.evaluation.judge:
            supervisor, second_renderer = await make_judge_engine(config, sockets / "judge.sock")
            loops.create_task(supervisor.run(), name="judge engine")
            cleanup.push_async_callback(supervisor.stop)
            second = SupervisedEngine(supervisor)
        judges = make_judges(
            config, engine=gateway.engine, renderer=renderer, judge_engine=second, judge_renderer=second_renderer
        )
        for judge in judges:
            cleanup.push_async_callback(judge.close)
        await lessons.release_all()
        canaries = Canaries.shipped() if config.evaluation.canaries else None

        def on_credit(judged: JudgedTurn, credit: Credit) -> None:
            metrics.credited(credit.skip or "sample")
            observers.credited(judged, credit)

        judging = JudgeLoop(lessons, judges, JudgeSettings.of(config), canaries=canaries, watch=metrics)
        crediting = CreditLoop(
            lessons,
            renderer,
            CreditSettings.of(config.training, config.rollout),
            model_id,
            on_credit=on_credit,
        )
        tasks = [
            loops.create_task(judging.run(), name="judge"),
            loops.create_task(crediting.run(), name="credit"),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


@asynccontextmanager
async def _releasing(
    loops: asyncio.TaskGroup,
    config: Config,
    gateway: Gateway,
    lessons: LearningLog,
    live: LiveVersions,
    observers: Observers,
    trainer: TrainerProcess | None,
) -> AsyncIterator[tuple[Releaser, Examiner]]:
    """Loads what was live when the last run ended; candidates of the train loop come through the same door.

    Without a trainer nobody proves what they are, and they wait. Whatever answers is watched.
    What goes live is examined now and then (`evaluation.eval_frequency`), beside everything else.
    """
    renderer, engine, settings = gateway.renderer, gateway.engine, config.release
    prober = Prober(engine, renderer, frozen_probes(renderer), max_tokens=settings.answer_tokens)
    gate = Gate(engine, renderer, prober, GateLimits.of(settings), replay=lessons, model_id=gateway.model_id)
    proving = (
        None
        if trainer is None
        else Proving(
            engine,
            prober,
            trainer,
            settings=config.training.model_dump(mode="json"),
            min_tokens=settings.probe_tokens,
            min_correlation=settings.min_correlation,
        )
    )
    save_every = config.training.save_every

    async def on_measured(line: str, number: int, measures: Mapping[str, float]) -> None:
        step = await lessons.add_metrics(line, number, measures)
        if step is not None:
            observers.evaluated(replace(step, metrics=measures))

    def on_change(version: Version) -> None:
        observers.changed(version)
        examiner.changed(version)

    examiner = Examiner(
        gateway.engine,
        renderer,
        lambda line, number: releaser.loaded(line, number),
        every=config.evaluation.eval_frequency,
        on_measured=on_measured,
    )
    releaser = Releaser(lessons, engine, gate, live, proving=proving, save_every=save_every, on_change=on_change)
    tasks = [
        loops.create_task(releaser.run(), name="release"),
        loops.create_task(examiner.run(), name="examine"),
    ]
    if settings.watch:
        watch = Watch(lessons, releaser.roll_back, WatchLimits.of(settings))
        tasks.append(loops.create_task(watch.run(), name="watch"))
    try:
        yield releaser, examiner
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if trainer is not None:
            await trainer.close()


@asynccontextmanager
async def _training(
    loops: asyncio.TaskGroup,
    config: Config,
    trainer: TrainerProcess,
    renderer: Renderer,
    releaser: Releaser,
    lessons: LearningLog,
    observers: Observers,
) -> AsyncIterator[TrainLoop]:
    """Trains beside serving. A step that leaving cuts short is taken again."""
    waiting = asyncio.Queue[str]()
    loop = make_train_loop(
        config,
        lessons,
        trainer,
        renderer,
        release=releaser.release,
        on_step=observers.stepped,
        on_skip=observers.skipped,
        on_waiting=waiting.put_nowait,
    )

    async def train() -> None:
        await releaser.settled()
        await loop.run()

    async def prepare() -> None:
        while True:
            await releaser.prepare(await waiting.get())

    tasks = [loops.create_task(train(), name="train"), loops.create_task(prepare(), name="prepare")]
    try:
        yield loop
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@contextmanager
def _socket_dir(run_dir: Path) -> Iterator[Path]:
    """A directory whose path is short enough for sockets: the run directory, or one under the system's temporary."""
    if len(os.fsencode(run_dir / "engine.sock")) <= _MAX_SOCKET_PATH:
        yield run_dir
        return
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-") as short:
        yield Path(short)


async def _open_sessions(store: SqliteStore, config: Config) -> Sessions:
    """The index as it was before the last stop or crash; what is overdue ends with the first round of `_expire`."""
    sessions = Sessions(timeout_s=config.rollout.session_timeout_s, new_id=new_session_id)
    for outline in await store.load_open():
        sessions.restore(outline)
    sessions.keep_private(map(Fingerprint.parse, await store.load_private()))
    return sessions


async def _load_keys(store: SqliteStore, config: Config) -> tuple[KeyRing, str]:
    """The keys of all users, and the local user's own in plain, which is made at the first start."""
    known = await store.keys()
    ring = KeyRing(known)
    path = config.store.data_dir / "key"
    secret = read_key_file(path)
    if secret is None or key_digest(secret) in {key.digest for key in known if key.revoked_at is not None}:
        _, secret = new_key(LOCAL_USER, time.time())
        write_key_file(path, secret)
    if key_digest(secret) not in {key.digest for key in known}:
        key, _ = new_key(LOCAL_USER, time.time(), label="key file", secret=secret)
        await store.put_key(key)
        ring.add(key)
    if config.gateway.api_key is not None:
        # In memory only: a key that leaves the settings opens nothing any more.
        ring.add(new_key(LOCAL_USER, time.time(), secret=config.gateway.api_key.get_secret_value())[0])
    return ring, secret


@asynccontextmanager
async def _listening(
    gateway: Gateway,
    config: Config,
    model: ModelFiles,
    keys: KeyRing,
    supervisor: Supervisor,
    sockets: Path,
    hurry: asyncio.Event,
    metrics: Metrics,
    releaser: Releaser,
    examiner: Examiner,
    training: TrainLoop | None,
    commands: Commands,
) -> AsyncIterator[str]:
    """Listens for clients and for commands; leaving waits until running answers are finished, or until `hurry`."""
    app = App(
        gateway,
        config.gateway,
        model=config.model.served_name or model.name,
        keys=keys,
        metrics=metrics,
        readiness=lambda: _readiness(supervisor),
        engine_state=lambda: supervisor.state,
    )
    host, port = config.gateway.host, config.gateway.port
    public = HttpRunner(app.build(), config.gateway)
    train = None if training is None else partial(training.work, at_once=True)

    async def examine(
        line: str, number: int, exam: Mapping[str, Json], on_progress: Callable[[int, int], None]
    ) -> Json:
        return (await examiner.examine(line, number, Exam.from_json(exam), on_progress=on_progress)).to_json()

    admin = web.AppRunner(
        build_admin(gateway.store, keys, releaser.roll_back, train, examine, commands),
        access_log=None,
        shutdown_timeout=1.0,  # a long command that somebody waits for must not keep the system from ending
    )
    await public.setup()
    await admin.setup()
    try:
        await _bind(web.TCPSite(public, host, port), f"{host}:{port}")
        await _bind(web.UnixSite(admin, str(sockets / "admin.sock")), str(sockets / "admin.sock"))
        yield f"http://{f'[{host}]' if ':' in host else host}:{public.addresses[0][1]}"
    finally:
        await admin.cleanup()
        await public.drain(hurry)
        await asyncio.to_thread((sockets / "admin.sock").unlink, missing_ok=True)


def _readiness(supervisor: Supervisor) -> Readiness:
    reason = "" if supervisor.is_ready else supervisor.last_error or "the engine is starting"
    return Readiness(supervisor.is_ready, reason, supervisor.num_restarts)


async def _bind(site: web.BaseSite, address: str) -> None:
    before = os.umask(0o177)
    try:
        await site.start()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(f"cannot listen on {address} ({reason}); choose another address with --port") from None
    finally:
        os.umask(before)


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
