"""One attempt at a Harbor task: the agent's box, the steps one after the other, and the verifier after each.

It knows no tools and no prompt: whoever acts in the box does so through `box`.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from openclaw_rl.envs.sandbox.box import Box, BoxLimits, BoxSpec, Sandbox
from openclaw_rl.envs.tasks.harbor.carrying import Carried, carry, deliver
from openclaw_rl.envs.tasks.harbor.directory import BoxSource, HarborStep, HarborTask
from openclaw_rl.envs.tasks.harbor.images import Image, Images
from openclaw_rl.envs.tasks.harbor.needs import agent_network, check_needs, resolved, verifier_network
from openclaw_rl.envs.tasks.harbor.rewards import REWARD, combined, is_enough
from openclaw_rl.envs.tasks.harbor.verifying import LOG_FOLDERS, Verified, gathered, verify
from openclaw_rl.errors import EnvError, TaskError

AGENT_TIMEOUT_S = 600.0
"""For a task that names none."""
_REMARK_CHARS, _REMARK_PATHS = 500, 5


def _not_carried(left: Sequence[str]) -> str:
    if not left:
        return ""
    shown = ", ".join(left[:_REMARK_PATHS]) + ", …" * (len(left) > _REMARK_PATHS)
    return (
        f"[the grader did not see what was changed among the system's files: {shown}; where that is part of the work, "
        "task.toml names it in artifacts]"
    )


def limits_of(plan: BoxSource) -> BoxLimits:
    """What the task gives, or else what boxes have. `cpus` is none of it: boxes share the cores of their machine."""
    usual = BoxLimits()
    return replace(
        usual, memory_mb=plan.table.memory_mb or usual.memory_mb, disk_mb=plan.table.storage_mb or usual.disk_mb
    )


class HarborAttempt:
    """Made for a task that was read; `start` it, and `close` it whatever happens."""

    def __init__(self, task: HarborTask, *, sandbox: Sandbox, images: Images, scratch: Path) -> None:
        self._task = task
        self._sandbox = sandbox
        self._images = images
        self._scratch = scratch
        self._home: Path | None = None
        self._box: Box | None = None
        self._image: Image | None = None
        self._at = 0
        self._verdicts: dict[int, Verified] = {}
        self._remark = ""
        """What may explain a reward that is not full."""

    @property
    def step(self) -> HarborStep:
        """The step that the agent is at."""
        return self._task.steps[self._at]

    @property
    def is_at_last(self) -> bool:
        return self._at == len(self._task.steps) - 1

    @property
    def timeout_s(self) -> float:
        """For the agent, at all steps together."""
        return sum(step.agent.timeout_sec or AGENT_TIMEOUT_S for step in self._task.steps)

    @property
    def box(self) -> Box:
        if self._box is None:
            raise EnvError("the attempt has not begun, or has ended")
        return self._box

    @property
    def image(self) -> Image:
        assert self._image is not None, "an image is made before its box"
        return self._image

    async def prepare(self) -> None:
        """Makes the image. `TaskError` where the task cannot be attempted here."""
        check_needs(self._task)
        self._image = await self._make_image(self._task.plan)

    async def start(self, *, gateway: str, programs: Mapping[str, Path]) -> None:
        """A new box, at the first step."""
        if self._image is None:
            await self.prepare()
        await self.close()
        await asyncio.to_thread(self._scratch.mkdir, parents=True, exist_ok=True)
        self._home = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self._scratch))
        self._at, self._verdicts, self._remark = 0, {}, ""
        plan = self._task.plan
        spec = BoxSpec(
            layers=self.image.layers,
            trees=self.image.trees,
            read_only=programs,
            workdir=self.image.workdir,
            env=self.image.env,
            limits=limits_of(plan),
            network=agent_network(self._task, self.step),
            gateway=gateway,
        )
        self._box = await self._sandbox.start(spec)
        await self._expect(LOG_FOLDERS, "the box cannot be used")
        await self._prepare_step()

    async def solve(self) -> None:
        """Runs the author's solutions, of each step in its turn. `TaskError` where there is none."""
        while True:
            await self._solve_step()
            if self.is_at_last or not await self.advance():
                return

    async def advance(self) -> bool:
        """Grades the step and goes on to the next; False where it was the last, or not done well enough."""
        verdict = await self._graded()
        if self.is_at_last or not is_enough(verdict.rewards, self.step.min_reward):
            return False
        self._at += 1
        await self._prepare_step()
        return True

    async def verdict(self) -> Verified:
        """Of the whole attempt. The steps that an agent did not come to are graded as it left them."""
        while await self.advance():
            pass
        verdicts = [self._verdicts[at] for at in sorted(self._verdicts)]
        rewards = combined([one.rewards for one in verdicts], self._task.strategy)
        return Verified(rewards=rewards, output=verdicts[-1].output)

    async def close(self) -> None:
        """Nothing of the attempt is left. May be called twice."""
        if self._box is not None:
            await self._box.close()
            self._box = None
        if self._home is not None:
            await asyncio.to_thread(shutil.rmtree, self._home, ignore_errors=True)
            self._home = None

    async def _make_image(self, plan: BoxSource) -> Image:
        delivered = [one.source for step in self._task.steps for one in step.artifacts]
        on_machine = self._task.config.own.runs_on == "machine"
        image = await self._images.image(plan, on_machine=on_machine, delivered=delivered)
        return replace(image, env={**image.env, **resolved(plan.table.env, "[environment] env")})

    async def _prepare_step(self) -> None:
        files = self.step.files
        if files is None:
            return
        for folder, _, names in await asyncio.to_thread(lambda: list(os.walk(files))):
            for path in (Path(folder, name) for name in names):
                data = await asyncio.to_thread(path.read_bytes)
                place = f"{self.image.workdir}/{path.relative_to(files)}"
                await self.box.write(place, data, mode=path.stat().st_mode & 0o777)
        if (files / "setup.sh").is_file():
            await self._expect("bash setup.sh", f"setup.sh of step {self.step.name} failed")

    async def _solve_step(self) -> None:
        solution = self.step.solution
        if solution is None:
            raise TaskError(f"{self._task.name} has no solution/solve.sh, so nobody can say whether it can be solved")
        for path in await asyncio.to_thread(lambda: sorted(one for one in solution.rglob("*") if one.is_file())):
            data = await asyncio.to_thread(path.read_bytes)
            await self.box.write(f"/solution/{path.relative_to(solution)}", data, mode=0o755)
        env = {"DEBIAN_FRONTEND": "noninteractive", **resolved(self._task.config.solution.env, "[solution] env")}
        timeout_s = self.step.agent.timeout_sec or AGENT_TIMEOUT_S
        command = "/solution/solve.sh; ended=$?; rm -rf /solution; exit $ended"
        ran = await self.box.run(command, timeout_s=timeout_s, env=env)
        if ran.exit_code is None:
            raise TaskError(f"the solution of {self._task.name} did not end within {timeout_s:g} s")
        if ran.exit_code != 0:
            said = ran.output.strip()[-_REMARK_CHARS:]
            self._remark = f"[the solution ended with code {ran.exit_code}: {said}]"

    async def _graded(self) -> Verified:
        step, plan = self.step, self._task.plan
        for hook in step.verifier.collect:
            await self._expect(hook.command, "what collects the agent's work failed", timeout_s=hook.timeout_sec)
        limits = limits_of(step.grader or plan)
        home = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self._home))
        try:
            carried = await self._graders_image(home)
            verdict = await verify(
                self._sandbox,
                carried.image,
                await gathered(step.tests, home / "tests"),
                env=resolved(step.verifier.env, "[verifier] env"),
                limits=limits,
                network=verifier_network(self._task, step),
                timeout_s=step.verifier.timeout_sec,
            )
        finally:
            await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)
        if verdict.rewards[REWARD] < 1.0:
            remarks = (self._remark, _not_carried(carried.left))
            verdict = replace(verdict, output="\n".join(filter(None, (verdict.output, *remarks))))
        self._remark = ""
        self._verdicts[self._at] = verdict
        return verdict

    async def _graders_image(self, home: Path) -> Carried:
        max_bytes = limits_of(self._task.plan).disk_mb << 20
        delivered = {self._absolute(one.source): one.exclude for one in self.step.artifacts}
        if self.step.grader is None:
            return await carry(self.box, self.image, home, delivered=list(delivered), max_bytes=max_bytes)
        image = await self._make_image(self.step.grader)
        return await deliver(self.box, image, home, delivered=delivered, max_bytes=max_bytes)

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.image.workdir, path))

    async def _expect(self, command: str, failure: str, *, timeout_s: float = 60.0) -> None:
        ran = await self.box.run(command, timeout_s=timeout_s)
        if ran.exit_code != 0:
            raise EnvError(f"{failure} ({shlex.quote(command)[:200]}): {ran.output.strip()[-500:]}")
