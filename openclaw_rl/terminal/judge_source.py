"""Settings to a judge that a command can ask, with the engine workers that it needs; they end with the command."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from openclaw_rl.assembly import make_judge_engine, make_supervisor
from openclaw_rl.config import Config, require_available
from openclaw_rl.engine.supervisor import SupervisedEngine, Supervisor
from openclaw_rl.errors import EngineUnavailable
from openclaw_rl.judge.registry import check_judge, join, make_judges
from openclaw_rl.model.files import resolve_model
from openclaw_rl.protocols import Engine, Judge
from openclaw_rl.render import load_renderer


@asynccontextmanager
async def open_judge(config: Config) -> AsyncIterator[Judge]:
    """The judges of `evaluation.judge` as one."""
    async with open_judges(config) as judges:
        yield join(judges)


@asynccontextmanager
async def open_judges(config: Config) -> AsyncIterator[list[Judge]]:
    """The judges of `evaluation.judge`. `self` and `model` load their weights first: that takes seconds to minutes."""
    check_judge(config.evaluation)
    names = config.evaluation.judge
    async with AsyncExitStack() as cleanup:
        sockets = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="openclaw-rl-")))
        engine = renderer = second = second_renderer = None
        if "self" in names:
            require_available(config)
            model = await asyncio.to_thread(resolve_model, config.model)
            renderer = await asyncio.to_thread(load_renderer, model.path, model.name, model.tokenizer_path)
            supervisor = make_supervisor(config.engine, model, sockets / "engine.sock")
            engine = await cleanup.enter_async_context(_running(supervisor, config.engine.start_timeout_s))
        if "model" in names:
            require_available(config)
            supervisor, second_renderer = await make_judge_engine(config, sockets / "judge.sock")
            second = await cleanup.enter_async_context(_running(supervisor, config.engine.start_timeout_s))
        judges = make_judges(
            config, engine=engine, renderer=renderer, judge_engine=second, judge_renderer=second_renderer
        )
        for judge in judges:
            cleanup.push_async_callback(judge.close)
        yield judges


@asynccontextmanager
async def _running(supervisor: Supervisor, timeout_s: float) -> AsyncIterator[Engine]:
    task = asyncio.create_task(supervisor.run(), name="engine")
    try:
        try:
            await supervisor.wait_ready(timeout_s)
        except EngineUnavailable:
            reason = supervisor.last_error or f"it was not ready within {timeout_s:g} s"
            raise EngineUnavailable(f"the judge's engine did not start: {reason}") from None
        yield SupervisedEngine(supervisor)
    finally:
        await supervisor.stop()
        await asyncio.wait((task,))
