"""Datasets of reasoning-gym -> tasks. The library runs in boxes only: some of its checks evaluate what they are given.

    make_tasks(Gym(sandbox), "chain_sum", …)  ->  chain_sum-train-0, …

An answer that equals the known one is right; for any other the library's own check is asked, which may give a part of
the points. Held-out problems have another seed, and none of the questions that are trained on.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.envs.sandbox.box import BoxLimits, BoxSpec, Sandbox
from openclaw_rl.envs.toolcall.answers import Check, is_number, stated
from openclaw_rl.envs.toolcall.boxes import PYTHON, own_program, with_python
from openclaw_rl.envs.toolcall.tasks import SUBMIT, Deeds, Marked, Problem, ToolTask, calls_of
from openclaw_rl.errors import EnvError, TaskError
from openclaw_rl.types import Json, Split

_MAKE_S = 600.0
_SCORE_S = 120.0
_FAR = 1 << 15
"""Between two seeds: problem i of a dataset is drawn with its seed plus i, and a source has at most 20 000."""
_LIMITS = BoxLimits(output_bytes=64 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A dataset as it was drawn: the same again with the same seed."""

    dataset: str
    config: Mapping[str, Json]
    seed: int
    size: int

    def to_json(self) -> dict[str, Json]:
        return {"dataset": self.dataset, "config": dict(self.config), "seed": self.seed, "size": self.size}


class Gym:
    """reasoning-gym as `python` has it, each request in a fresh box."""

    def __init__(self, sandbox: Sandbox, python: Path = PYTHON) -> None:
        self._sandbox = sandbox
        self._python = python

    async def make(self, drawn: Drawn) -> list[tuple[str, str | None]]:
        """Questions with an answer, None where the check of the library is not to be relied on."""
        made = await self._ask(drawn.to_json(), timeout_s=_MAKE_S)
        return [(each["question"], each["answer"]) for each in made]

    async def score(self, drawn: Drawn, index: int, answer: str) -> float:
        """How much of the points an answer gets."""
        asked = {**drawn.to_json(), "index": index, "answer": answer}
        return float((await self._ask(asked, timeout_s=_SCORE_S))["score"])

    async def _ask(self, request: Mapping[str, Json], *, timeout_s: float) -> Json:
        if lacks := self._sandbox.lacks():
            raise TaskError(f"reasoning-gym needs a box: {lacks}")
        box = await self._sandbox.start(with_python(BoxSpec(limits=_LIMITS), self._python))
        try:
            command = shlex.join(own_program("gym", python=self._python))
            ran = await box.run(command, timeout_s=timeout_s, stdin=json.dumps(request).encode())
        finally:
            await box.close()
        if ran.exit_code is None:
            raise EnvError(f"reasoning-gym took longer than {timeout_s:g} s over {request['dataset']}")
        if ran.exit_code != 0:
            raise EnvError(f"reasoning-gym failed over {request['dataset']}: {ran.output.strip()[-500:]}")
        told = json.loads(ran.output.splitlines()[-1])
        if "missing" in told:
            raise TaskError("reasoning-gym is not installed; `pip install openclaw-rl[envs]`")
        if "refused" in told:
            raise TaskError(f"reasoning-gym makes no {request['dataset']} so: {told['refused']}")
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class GymGoal:
    """The answer that is known, or one that the library's check takes."""

    gym: Gym
    drawn: Drawn
    index: int
    reference: str
    is_a_call: bool = field(default=False, init=False)

    async def read(self, deeds: Deeds) -> Marked:
        if deeds.answer is None:
            return Marked(share=0.0, report="No answer was given.")
        check = Check(name="number" if is_number(self.reference) else "exact")
        if check.accepts(deeds.answer, self.reference):
            return Marked(share=1.0, report="The answer is right.")
        share = await self.gym.score(self.drawn, self.index, stated(deeds.answer).strip())
        return Marked(share=share, report=f"The answer given, {deeds.answer[:200]!r}, gets {share:.0%} of the points.")


async def make_tasks(
    gym: Gym,
    dataset: str,
    *,
    config: Mapping[str, Json],
    seed: int,
    num_train: int,
    num_held_out: int,
    tools: Sequence[str],
    system: str,
) -> list[ToolTask]:
    """`TaskError` where the library is missing, has no such dataset, or has no check to rely on for it."""
    tasks: list[ToolTask] = []
    asked: set[str] = set()
    sizes: tuple[tuple[Split, int, int], ...] = (
        ("train", 2 * seed * _FAR, num_train),
        ("held_out", (2 * seed + 1) * _FAR, num_held_out),
    )
    for split, own_seed, size in sizes:
        drawn = Drawn(dataset=dataset, config=config, seed=own_seed, size=size)
        for index, (question, answer) in enumerate(await gym.make(drawn) if size else []):
            if answer is None or question in asked:
                continue
            asked.add(question)
            goal = GymGoal(gym=gym, drawn=drawn, index=index, reference=answer)
            solution = calls_of((SUBMIT.name, {"answer": answer}))
            tasks.append(
                ToolTask(
                    name=f"{dataset}-{split.replace('_', '-')}-{index}",
                    split=split,
                    problem=Problem(question=question, goal=goal, solution=solution),
                    system=system,
                    wants=tuple(tools),
                )
            )
    if not tasks:
        raise TaskError(f"no problem of {dataset} has an answer that its own check takes, while it refuses nonsense")
    return tasks
