"""What a task says of its box -> an `Image` to start boxes from; made once, and kept.

    Dockerfile                      its image's root folder (`bases`), and a layer for each part of the recipe
    docker_image and Dockerfile     the image's root folder: the Dockerfile is what it was made of
    docker_image alone              its root folder, and the files of environment/ in the working directory
    Dockerfile, runs_on = "machine" the programs of this machine, and what COPY says (`placing`)
    neither                         the programs of this machine, and environment/ in the working directory

`runs_on = "machine"` in `[metadata.openclaw_rl]` is the author's word that any Linux programs will do; a Dockerfile
without it is never done on other programs than those of its image. Layers are named after everything that led to them,
so tasks whose recipes begin alike share the beginning.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from weakref import WeakValueDictionary

from openclaw_rl.envs.sandbox.box import Box, BoxLimits, BoxSpec, Sandbox
from openclaw_rl.envs.sandbox.lacking import missing_users
from openclaw_rl.envs.tasks.harbor.bases import Base, find_base
from openclaw_rl.envs.tasks.harbor.directory import BoxSource, read_text
from openclaw_rl.envs.tasks.harbor.dockerfile import Instruction, parse_dockerfile
from openclaw_rl.envs.tasks.harbor.placing import CONTEXT, copy_command, digest_of, found_sources, place_on_machine
from openclaw_rl.envs.tasks.harbor.recipe import Copy, MakeFolder, Recipe, Run, Step, base_of, read_recipe
from openclaw_rl.envs.tasks.harbor.task_toml import MAX_BYTES
from openclaw_rl.errors import TaskError

WORKDIR = "/app"
"""Where work is done in a box of this machine's programs, unless the task says otherwise."""

_BUILD_LIMITS = BoxLimits(memory_mb=4096, processes=1024, disk_mb=16 * 1024)
_TAIL_CHARS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What a box starts from: layers, or trees over the programs of this machine."""

    layers: tuple[Path, ...] = ()
    trees: Mapping[str, Path] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str


class Images:
    """Makes images. `cache/images` holds the root folders that people brought; what is made of them and of tasks goes
    to `cache/layers` and `cache/trees`."""

    def __init__(self, sandbox: Sandbox, cache: Path) -> None:
        self._sandbox = sandbox
        self._cache = cache
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def image(self, plan: BoxSource, *, on_machine: bool, delivered: Sequence[str]) -> Image:
        """`TaskError` where it cannot be made here. `delivered`: paths in the box that its agent is to deliver."""
        instructions = await asyncio.to_thread(_instructions, plan, on_machine=on_machine)
        name = plan.table.docker_image or (base_of(instructions) if instructions else "")
        try:
            async with asyncio.timeout(plan.table.build_timeout_sec):
                if name and not on_machine:
                    base = await asyncio.to_thread(find_base, name, self._cache / "images")
                    return await self._layered(plan, base, _recipe(plan, instructions, base))
                return await self._on_machine(plan, _recipe(plan, instructions, None), delivered)
        except TimeoutError:
            raise TaskError(f"the image was not made within {plan.table.build_timeout_sec:g} s") from None

    async def _on_machine(self, plan: BoxSource, recipe: Recipe, delivered: Sequence[str]) -> Image:
        digest = await asyncio.to_thread(_digest, f"machine {delivered} {recipe.workdir}", recipe.steps, plan.folder)

        def place(to: Path) -> None:
            to.mkdir()
            place_on_machine(recipe, plan.folder, to, delivered)

        async with self._alone(digest):
            made = self._cache / "trees" / digest
            if not await asyncio.to_thread(made.is_dir):
                await asyncio.to_thread(_make, made, place)
        trees = {f"/{name}": made / name for name in await asyncio.to_thread(os.listdir, made)}
        return Image(trees=trees, env=recipe.env, workdir=recipe.workdir)

    async def _layered(self, plan: BoxSource, base: Base, recipe: Recipe) -> Image:
        layers, digest = [base.root], base.identity
        for part in _parts(recipe.steps):
            digest = await asyncio.to_thread(_digest, digest, part, plan.folder)
            async with self._alone(digest):
                made = self._cache / "layers" / digest
                if not await asyncio.to_thread(made.is_dir):
                    await self._make_layer(layers, part, plan, made)
            layers.append(made)
        return Image(layers=tuple(layers), env=recipe.env, workdir=recipe.workdir)

    def _alone(self, digest: str) -> asyncio.Lock:
        return self._making.setdefault(digest, asyncio.Lock())

    async def _make_layer(self, layers: Sequence[Path], part: Sequence[Step], plan: BoxSource, made: Path) -> None:
        spec = BoxSpec(
            layers=tuple(layers),
            read_only={CONTEXT: plan.folder},
            workdir="/",
            limits=_BUILD_LIMITS,
            network="full",  # as in a build of Docker's, whatever the task's own network is
        )
        box = await self._sandbox.start(spec)
        try:
            for step in part:
                await _carry_out(box, step, plan)
            await asyncio.to_thread(made.parent.mkdir, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=made.parent, prefix=".making-") as begun:
                layer = Path(begun, "layer")
                await box.keep_layer(layer)
                await asyncio.to_thread(_settle, layer, made)
        except TaskError as error:
            lack = missing_users()
            raise TaskError(f"{error}; it may be that {lack}" if lack else str(error)) from None
        finally:
            await box.close()


def _instructions(plan: BoxSource, *, on_machine: bool) -> list[Instruction]:
    """Of the Dockerfile, where it is what the image is to be made of."""
    if not _has_dockerfile(plan) or (plan.table.docker_image and not on_machine):
        return []
    return parse_dockerfile(read_text(plan.folder / "Dockerfile", MAX_BYTES))


def _has_dockerfile(plan: BoxSource) -> bool:
    return (plan.folder / "Dockerfile").is_file()


def _recipe(plan: BoxSource, instructions: Sequence[Instruction], base: Base | None) -> Recipe:
    env, workdir = ({}, "") if base is None else (base.env, base.workdir)
    default = WORKDIR if base is None else "/"
    if instructions:
        recipe = read_recipe(instructions, env=env, workdir=workdir)
        workdir = recipe.workdir if recipe.workdir != "/" else default
        return replace(recipe, workdir=plan.table.workdir or workdir)
    place = plan.table.workdir or workdir or default
    is_made_already = plan.has_tests or _has_dockerfile(plan)
    files = () if is_made_already else (Copy(sources=(".",), to=f"{place.rstrip('/')}/", unpacks=False, line=0),)
    return Recipe(steps=(MakeFolder(path=place), *files), env=env, workdir=place)


def _parts(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Each ends with a RUN, but for the last: what is dear to do is done once for all tasks that begin so."""
    part: list[Step] = []
    for step in steps:
        part.append(step)
        if isinstance(step, Run):
            yield part
            part = []
    if part:
        yield part


def _digest(before: str, steps: Sequence[Step], context: Path) -> str:
    said = [[type(step).__name__, asdict(step)] for step in steps]
    copied = [digest_of(context, found_sources(step, context)) for step in steps if isinstance(step, Copy)]
    return hashlib.sha256(json.dumps([before, said, copied], sort_keys=True).encode()).hexdigest()[:32]


async def _carry_out(box: Box, step: Step, plan: BoxSource) -> None:
    if isinstance(step, Run):
        command = f"cd {shlex.quote(step.workdir)} && {step.command}"
    elif isinstance(step, Copy):
        command = await asyncio.to_thread(copy_command, step, plan.folder)
    else:
        command = f"mkdir -p -- {shlex.quote(step.path)}"
    env = step.env if isinstance(step, Run) else {}
    ran = await box.run(command, timeout_s=plan.table.build_timeout_sec, env=env)
    if ran.exit_code != 0:
        said = ran.output[-_TAIL_CHARS:].strip()
        ended = "was not done in time" if ran.exit_code is None else f"ended with code {ran.exit_code}"
        raise TaskError(f"the image cannot be made: {command[:200]} {ended}: {said}")


def _make(made: Path, fill: Callable[[Path], None]) -> None:
    """A folder that is there whole or not at all."""
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent, prefix=".making-") as begun:
        fill(Path(begun, "made"))
        _settle(Path(begun, "made"), made)


def _settle(begun: Path, made: Path) -> None:
    with suppress(OSError):
        (begun / PurePosixPath(CONTEXT).name).rmdir()  # where the box saw the task's folder
    try:
        begun.rename(made)
    except OSError:
        if not made.is_dir():  # otherwise another process was first, with the same
            raise
