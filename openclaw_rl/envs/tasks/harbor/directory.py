"""A Harbor task directory -> a `HarborTask`: what is asked, the box it is asked in, and how it is graded.

    task.toml        its values (`task_toml`)
    instruction.md   what the agent is told; a canary that marks the file for filters of training data is left out
    environment/     what the box is made of (`images`)
    tests/test.sh    the verifier
    solution/        what its author calls a solution; not every task has one
    steps/NAME/      instruction.md, tests/, solution/ and workdir/ of each of several steps

A task without steps is one with a single step. Nothing is run here, and no link is followed out of the directory.
Whether this machine has what the task needs is not known here (`needs`).
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from openclaw_rl.envs.tasks.harbor.compose import COMPOSE_FILES, read_compose
from openclaw_rl.envs.tasks.harbor.task_toml import (
    MAX_BYTES,
    AgentTable,
    Artifact,
    EnvironmentTable,
    StepTable,
    TaskToml,
    VerifierTable,
    parse_task_toml,
)
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Split

MAX_INSTRUCTION_BYTES = 256 * 1024
_MAX_ENTRIES = 200_000
_MAX_TREE_BYTES = 16 << 30
_HELD_OUT_SHARE = 0.2

_CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxSource:
    """What a box is made of: a table, and the folder of its Dockerfile. `has_tests`: its image holds the tests."""

    table: EnvironmentTable
    folder: Path
    has_tests: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborStep:
    """One instruction and its verifier. `tests`: folders that make up /tests, each over the ones before it.

    `grader`: the box of a verifier that has one of its own and sees nothing but artifacts; None where it sees all that
    the agent left. `files` are put into the working directory before the step.
    """

    name: str
    instruction: str
    agent: AgentTable
    verifier: VerifierTable
    tests: tuple[Path, ...]
    solution: Path | None
    files: Path | None
    min_reward: Mapping[str, float]
    artifacts: tuple[Artifact, ...]
    grader: BoxSource | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborTask:
    """A task as its directory says it."""

    folder: Path
    config: TaskToml
    steps: tuple[HarborStep, ...]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def plan(self) -> BoxSource:
        return BoxSource(table=self.config.environment, folder=self.folder / "environment")

    @property
    def strategy(self) -> Literal["mean", "final"]:
        """How the rewards of several steps become one."""
        return self.config.multi_step_reward_strategy or "mean"

    @property
    def kinds(self) -> frozenset[str]:
        """By what names a kind of tasks is asked for: its category and tags."""
        tags = self.config.metadata.get("tags")
        named = [self.config.metadata.get("category"), *(tags if isinstance(tags, list) else ())]
        return frozenset(kind for kind in named if isinstance(kind, str))


def read_task(folder: Path) -> HarborTask:
    """`TaskError` says what is broken. Blocking."""
    check_tree(folder)
    where = folder / "task.toml"
    config = parse_task_toml(read_text(where, MAX_BYTES), f"{where.parent.name}/task.toml")
    if not (folder / "environment").is_dir():
        raise TaskError(f"{folder.name} has no folder environment/; make one, empty where the task needs no files")
    config = config.model_copy(update={"environment": _with_compose(config.environment, folder / "environment")})
    tables = config.steps or (None,)
    return HarborTask(folder=folder, config=config, steps=tuple(_step(folder, config, table) for table in tables))


def _step(folder: Path, config: TaskToml, table: StepTable | None) -> HarborStep:
    home = folder if table is None else folder / "steps" / table.name
    agent, verifier = (config.agent, config.verifier) if table is None else _merged(config, table)
    grader = _grader(folder, config, table)
    least = None if table is None else table.min_reward
    return HarborStep(
        name="" if table is None else table.name,
        instruction=_without_canary(read_text(home / "instruction.md", MAX_INSTRUCTION_BYTES)),
        agent=agent,
        verifier=verifier,
        tests=() if grader is not None and grader.has_tests else _tests(folder, home),
        solution=next((one / "solution" for one in (home, folder) if (one / "solution" / "solve.sh").is_file()), None),
        files=home / "workdir" if table is not None and (home / "workdir").is_dir() else None,
        min_reward=least if isinstance(least, dict) else {} if least is None else {"reward": least},
        artifacts=(*config.artifacts, *(() if table is None else table.artifacts)),
        grader=grader,
    )


def _merged(config: TaskToml, table: StepTable) -> tuple[AgentTable, VerifierTable]:
    """A step's own values over the task's."""
    agent, verifier = config.agent, config.verifier
    own = table.agent.model_dump(exclude_none=True)
    theirs = {
        "timeout_sec": table.verifier.timeout_sec,
        "env": verifier.env | table.verifier.env,
        "user": verifier.user if table.verifier.user is None else table.verifier.user,
        "network_mode": table.verifier.network_mode or verifier.network_mode,
        "collect": (*verifier.collect, *table.verifier.collect),
    }
    return agent.model_copy(update=own), verifier.model_copy(update=theirs)


def _grader(folder: Path, config: TaskToml, table: StepTable | None) -> BoxSource | None:
    """Harbor's order: an image, or a Dockerfile beside the tests, of the step and then of the task; else the box of the
    agent, made anew."""
    step = None if table is None else table.verifier
    if ((step and step.own_mode) or config.verifier.own_mode or "shared") == "shared":
        return None
    own = [config.verifier] if step is None else [step, config.verifier]
    homes = [folder] if table is None else [folder / "steps" / table.name, folder]
    values = next((one.environment for one in own if one.environment is not None), config.environment)
    for verifier, home in zip(own, homes, strict=True):
        image = verifier.environment and verifier.environment.docker_image
        if image or any((home / "tests" / name).is_file() for name in ("Dockerfile", *COMPOSE_FILES)):
            table_of = _with_compose(values.model_copy(update={"docker_image": image}), home / "tests")
            return BoxSource(table=table_of, folder=home / "tests", has_tests=True)
    image = config.environment.docker_image
    return BoxSource(table=values.model_copy(update={"docker_image": image}), folder=folder / "environment")


def _with_compose(table: EnvironmentTable, folder: Path) -> EnvironmentTable:
    """Without a network where the compose file says so."""
    is_cut_off = table.network_mode == "public" and read_compose(folder).is_offline
    return table.model_copy(update={"network_mode": "no-network"}) if is_cut_off else table


def _tests(folder: Path, home: Path) -> tuple[Path, ...]:
    tests = tuple(dict.fromkeys(one / "tests" for one in (folder, home) if (one / "tests").is_dir()))
    if not any((one / "test.sh").is_file() for one in tests):
        raise TaskError(f"{home.name} has no tests/test.sh; without a verifier nothing can be graded")
    return tests


def _without_canary(text: str) -> str:
    lines = text.split("\n")
    while lines and _CANARY.fullmatch(lines[0].strip()):
        lines.pop(0)
    while lines and not lines[0].strip():
        lines.pop(0)
    if not lines:
        raise TaskError("instruction.md is empty; it says what the agent is to do")
    return "\n".join(lines)


def split_of(task: HarborTask) -> Split:
    """As `[metadata] split` says: everything but "train" is held out. Else by a hash of the name, a fifth held out."""
    said = task.config.metadata.get("split")
    if said is None:
        return hashed_split(task.name)
    return "train" if said == "train" else "held_out"


def hashed_split(name: str) -> Split:
    share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) / 2**64
    return "held_out" if share < _HELD_OUT_SHARE else "train"


def read_text(path: Path, max_bytes: int) -> str:
    """`TaskError` for a file that is not there, larger, or not text."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise TaskError(f"{path.parent.name}/{path.name} cannot be read: {error.strerror}") from None
    if len(data) > max_bytes:
        raise TaskError(f"{path.parent.name}/{path.name} is larger than {max_bytes} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise TaskError(f"{path.parent.name}/{path.name} is not text in UTF-8") from None


def check_tree(folder: Path) -> None:
    """`TaskError` for a link that leads out of the folder or into a circle, for what is no file, folder or link, and
    for more than anybody would copy.

    Links in environment/ may lead anywhere: they are copied as links and mean a place in the box.
    """
    if not folder.is_dir() or folder.is_symlink():
        raise TaskError(f"{folder} is not a folder with a task")
    root, size = folder.resolve(), 0
    for path in _entries(root):
        found = path.lstat()
        size += found.st_size
        if stat.S_ISLNK(found.st_mode):
            if path.relative_to(root).parts[0] != "environment":
                _check_link(path, root)
        elif not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            raise TaskError(f"{folder.name}/{path.relative_to(root)} is no file, folder or link")
    if size > _MAX_TREE_BYTES:
        raise TaskError(f"{folder.name} holds {size >> 30} GiB of files; a task has at most {_MAX_TREE_BYTES >> 30}")


def _check_link(path: Path, root: Path) -> None:
    try:
        target = path.resolve()
    except (OSError, RuntimeError):
        raise TaskError(f"{root.name}/{path.relative_to(root)} is a link that leads in a circle") from None
    if not target.is_relative_to(root):
        raise TaskError(f"{root.name}/{path.relative_to(root)} is a link that leads out of the task")
    if path.is_relative_to(target):
        raise TaskError(f"{root.name}/{path.relative_to(root)} is a link that leads in a circle")


def _entries(root: Path) -> Iterator[Path]:
    waiting, num_seen = [root], 0
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            num_seen += 1
            if num_seen > _MAX_ENTRIES:
                raise TaskError(f"{root.name} has more than {_MAX_ENTRIES} files")
            yield path
            if path.is_dir() and not path.is_symlink():
                waiting.append(path)
