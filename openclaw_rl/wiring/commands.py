"""What a command needs that has no server: judges with engines of their own, and undo, forget and import."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path

from openclaw_rl.config import Config, require_available
from openclaw_rl.engine.registry import capabilities_of, make_host, start_timeout_s
from openclaw_rl.errors import EngineUnavailable
from openclaw_rl.judge.compose import Composed
from openclaw_rl.judge.heads import HeadsJudge
from openclaw_rl.judge.registry import check_judge, judges_in, make_judges
from openclaw_rl.protocols import Engine, EngineHost, Judge, WholeStore
from openclaw_rl.release.undo.commands import Commands, Serving, take_back
from openclaw_rl.release.undo.forgetting import Forgetting
from openclaw_rl.tracking.records import forget_lines
from openclaw_rl.train.registry import make_keeper
from openclaw_rl.types import Lesson, Session
from openclaw_rl.wiring.foundation import lay_foundation
from openclaw_rl.wiring.learning import make_judge_host, served_model


async def _no_engine(_: Collection[Session]) -> None:
    """There is no cache to forget anything."""


def make_commands(
    config: Config,
    store: WholeStore,
    *,
    serving: Serving | None = None,
    let_go: Callable[[Sequence[str]], AbstractContextManager[None]] = lambda _: nullcontext(),
    forget_cache: Callable[[Collection[Session]], Awaitable[None]] = _no_engine,
    catch_up: Callable[[], None] = lambda: None,
) -> Commands:
    """What a person may do to what was learned, for the running server, and for a command that has the store alone."""

    def forget_records(lesson: Lesson) -> None:
        catch_up()
        forget_lines(config.store.data_dir / "records", lesson)

    keeper = make_keeper(config)
    forgetting = Forgetting(
        log=store.lessons,
        keeper=keeper,
        take_back=partial(take_back, store.lessons, serving, reason="a conversation that it learned from is forgotten"),
        let_go=let_go,
        forget_cache=forget_cache,
        forget_records=forget_records,
        erase=store.erase,
    )
    return Commands(log=store.lessons, forgetting=forgetting, keeper=keeper, serving=serving)


@asynccontextmanager
async def open_judge(config: Config) -> AsyncIterator[Judge]:
    """The judges of `evaluation.judge` as one."""
    async with open_judges(config) as judges:
        yield Composed(judges)


@asynccontextmanager
async def open_judges(config: Config) -> AsyncIterator[list[Judge]]:
    """The judges of `evaluation.judge`. `self` and `model` load their weights first: that takes seconds to minutes."""
    check_judge(config.evaluation)
    async with AsyncExitStack() as cleanup:
        sockets = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="openclaw-rl-")))
        timeout_s = start_timeout_s(config.engine)
        engine = renderer = second = second_renderer = None
        names, served = set(judges_in(config.evaluation)), None
        reads = capabilities_of(config.engine).hidden and names & {"auto", "heads"}
        if reads or names & {"self", "model"}:
            require_available(config)
        if reads or "self" in names:
            foundation = await lay_foundation(config, learn=False)
            renderer = foundation.renderer
            host = make_host(config.engine, foundation.model, sockets / "engine.sock")
            engine = await cleanup.enter_async_context(_running(host, timeout_s))
            served = served_model(foundation, engine)
        if "model" in names:
            host, second_renderer = await make_judge_host(config, sockets)
            second = await cleanup.enter_async_context(_running(host, timeout_s))
        judges = make_judges(
            config,
            engine=engine,
            renderer=renderer,
            judge_engine=second,
            judge_renderer=second_renderer,
            served=served,
        )
        for judge in judges:
            cleanup.push_async_callback(judge.close)
            if isinstance(judge, HeadsJudge):
                await judge.prepared()
        yield judges


@asynccontextmanager
async def _running(host: EngineHost, timeout_s: float) -> AsyncIterator[Engine]:
    task = asyncio.create_task(host.run(), name="engine")
    try:
        try:
            await host.wait_ready(timeout_s)
        except EngineUnavailable:
            reason = host.last_error or f"it was not ready within {timeout_s:g} s"
            raise EngineUnavailable(f"the judge's engine did not start: {reason}") from None
        yield host.engine
    finally:
        await host.stop()
        await asyncio.wait((task,))
