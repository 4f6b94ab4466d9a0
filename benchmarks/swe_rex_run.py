"""swe-rex's `LocalDeployment` as its users run it: a deployment and a bash session for each episode. Imports swe-rex
alone, and runs in an environment of its own.

    python swe_rex_run.py ORDER.json  ->  {"figures": {"start_p50_ms": …}, "failed": {"32": "CommandTimeoutError: …"}}

It has no boxes: an episode's files are uploaded into a folder of this machine, its commands run there, and what is
there in the end is compared with what is expected by `diff -r` in the same shell.
"""

from __future__ import annotations

import asyncio
import json
import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from swerex.deployment.local import LocalDeployment
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest, UploadRequest


async def _opened() -> LocalDeployment:
    deployment = LocalDeployment(logger=logging.getLogger("quiet"))
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest(startup_timeout=60.0))
    return deployment


async def _say(deployment: LocalDeployment, command: str) -> None:
    await deployment.runtime.run_in_session(BashAction(command=command, timeout=60.0, check="raise"))


async def _starts(number: int) -> float:
    """The median, in ms, until the first command is answered."""
    spent = []
    for _ in range(number):
        began = time.perf_counter()
        deployment = await _opened()
        await _say(deployment, "/bin/true")
        spent.append(1000 * (time.perf_counter() - began))
        await deployment.stop()
    return statistics.median(spent)


async def _commands(number: int) -> float:
    deployment = await _opened()
    began = time.perf_counter()
    for _ in range(number):
        await _say(deployment, "/bin/true")
    spent = time.perf_counter() - began
    await deployment.stop()
    return number / spent


async def _episode(task: dict[str, Any]) -> None:
    deployment = await _opened()
    try:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "app")
            await deployment.runtime.upload(UploadRequest(source_path=task["files"], target_path=str(place)))
            await _say(deployment, f"cd {place}")
            for command in task["commands"]:
                await _say(deployment, command)
            await _say(deployment, f"diff -r {task['expected']} {place}")
    finally:
        await deployment.stop()


async def _episodes(tasks: list[dict[str, Any]], number: int, parallel: int) -> float:
    """So many in a minute."""
    places, began = asyncio.Semaphore(parallel), time.perf_counter()

    async def one(at: int) -> None:
        async with places:
            await _episode(tasks[at % len(tasks)])

    await asyncio.gather(*(one(at) for at in range(number)))
    return 60 * number / (time.perf_counter() - began)


async def run(order: dict[str, Any]) -> None:
    logging.disable(logging.CRITICAL)
    found = {"start_p50_ms": await _starts(order["starts"]), "commands_per_s": await _commands(order["commands"])}
    failed: dict[str, str] = {}
    for parallel, number in order["episodes"].items():
        try:
            found[f"episodes_per_min_{parallel}"] = await _episodes(order["tasks"], number, int(parallel))
        except Exception as error:  # whatever ends one of theirs says nothing of the others
            failed[parallel] = f"{type(error).__name__}: {str(error)[:200]}"
    print(json.dumps({"figures": found, "failed": failed}))


if __name__ == "__main__":
    asyncio.run(run(json.loads(Path(sys.argv[1]).read_text())))
