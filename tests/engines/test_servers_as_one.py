"""`engine.urls`: several servers of others answer as one."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

from openclaw_rl.config import load_config
from openclaw_rl.engine.pool.pool import Pool
from openclaw_rl.engine.registry import make_host
from openclaw_rl.engine.worker.wire import merge
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.types import Publication, WeightsRef
from tests.engines.bench import files, protocol_server, save_adapter
from tests.engines.test_conformance import ask


async def test_two_servers_have_each_version_and_one_may_die(tiny: Path, tmp_path: Path) -> None:
    model, adapter = files(tiny), tmp_path / "adapter"
    save_adapter(model, adapter, seed=3)
    async with AsyncExitStack() as cleanup:
        servers = [protocol_server("vllm", tiny) for _ in range(2)]
        for server in servers:
            await server.start()
            cleanup.push_async_callback(server.close)
        urls = json.dumps([server.url for server in servers])
        overrides = ("engine.type=vllm", f"engine.urls={urls}", "engine.backoff_s=0.01")
        host = make_host(load_config(overrides=overrides, env={}).config.engine, model, tmp_path / "engine.sock")
        assert isinstance(host, Pool)
        running = asyncio.create_task(host.run())
        try:
            await host.wait_ready(60.0)
            assert host.capabilities == host.members[0].host.capabilities
            assert host.capabilities.logprobs_changed_by, "turns with top-p are not learned from"
            base = merge([delta async for delta in host.engine.generate(ask())])
            version = Publication(version="v1", weights=WeightsRef.of_folder(adapter, folder_sha256(adapter)))
            await host.engine.publish(version)
            states = [member.host.state for member in host.members]
            assert [state.versions for state in states if state is not None] == [("v0", "v1")] * 2
            said = merge([delta async for delta in host.engine.generate(ask())])
            assert (base.version, said.version) == ("v0", "v1")
            await servers[0].kill()
            for number in range(4):
                again = merge([delta async for delta in host.engine.generate(ask(seed=number))])
                assert again.version == "v1"
        finally:
            await host.stop()
            await running
