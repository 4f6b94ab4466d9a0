"""Boxes whose maker is killed: `python -m tests.faults.boxes.box_child SCRATCH`. Says when they are at work."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from openclaw_rl.envs.sandbox.box import BoxSpec
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from tests.faults.boxes.probe import DAEMONS


async def main(scratch: Path) -> None:
    sandbox = BubblewrapSandbox(scratch)
    boxes = await asyncio.gather(*(sandbox.start(BoxSpec()) for _ in range(3)))
    await asyncio.gather(*(box.shell(DAEMONS, timeout_s=60.0) for box in boxes))
    waiting = [asyncio.create_task(box.run("sleep 1000", timeout_s=2000.0)) for box in boxes]
    print("at work", flush=True)
    await asyncio.gather(*waiting)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
