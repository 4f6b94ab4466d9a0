"""A verifier -> its rewards: in a fresh box, into which the tests come after the agent's work.

It does not know what the rewards mean to whoever learns from them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.envs.sandbox.box import BoxLimits, BoxSpec, Sandbox
from openclaw_rl.envs.tasks.harbor.images import Image
from openclaw_rl.envs.tasks.harbor.needs import Network
from openclaw_rl.envs.tasks.harbor.placing import lay_over
from openclaw_rl.envs.tasks.harbor.rewards import read_rewards
from openclaw_rl.errors import EnvError

_NO_REWARD = "rm -rf /logs/verifier"
"""Whatever was carried into the box: rewards are what this verifier leaves."""
LOG_FOLDERS = "mkdir -p /logs/agent /logs/artifacts /logs/verifier"

_MAX_REWARD_BYTES = 64 * 1024
_TAIL_CHARS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a verifier said. `output` is the end of what it printed."""

    rewards: Mapping[str, float]
    output: str


async def verify(
    sandbox: Sandbox,
    image: Image,
    tests: Path | None,
    *,
    env: Mapping[str, str],
    limits: BoxLimits,
    network: Network,
    timeout_s: float,
) -> Verified:
    """`tests`: the folder to be seen as /tests; None where the image has them. `EnvError` where there is no reward."""
    trees = dict(image.trees) if tests is None else {**image.trees, "/tests": tests}
    spec = BoxSpec(
        layers=image.layers, trees=trees, workdir=image.workdir, env=image.env, limits=limits, network=network
    )
    box = await sandbox.start(spec)
    try:
        begun = await box.run(f"{_NO_REWARD} && {LOG_FOLDERS} && chmod +x /tests/test.sh", timeout_s=60.0)
        if begun.exit_code != 0:
            raise EnvError(f"the verifier cannot be started: {begun.output.strip()[:500]}")
        ran = await box.run("/tests/test.sh", timeout_s=timeout_s, env=env)
        output = ran.output[-_TAIL_CHARS:].strip()
        if ran.exit_code is None:
            raise EnvError(f"the verifier did not end within {timeout_s:g} s; the last it said: {output[-500:]}")
        as_json = await box.read("/logs/verifier/reward.json", max_bytes=_MAX_REWARD_BYTES)
        as_text = await box.read("/logs/verifier/reward.txt", max_bytes=_MAX_REWARD_BYTES)
        try:
            return Verified(rewards=read_rewards(as_json, as_text), output=output)
        except EnvError as error:
            raise EnvError(f"{error} (exit code {ran.exit_code}); the last it said: {output[-500:]}") from None
    finally:
        await box.close()


async def gathered(tests: Sequence[Path], to: Path) -> Path | None:
    """The folders of tests as one, each over the ones before it."""
    if len(tests) < 2:
        return tests[0] if tests else None
    await asyncio.to_thread(to.mkdir)
    for folder in tests:
        await asyncio.to_thread(lay_over, folder, to)
    return to
