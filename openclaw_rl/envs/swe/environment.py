"""`protocols.Environment` over sets of rows. A set is a file of records, or a folder with `tasks.jsonl`:

    tasks.jsonl     the rows
    repos/          their repositories, as `trees` finds them
    venvs/          owner__name-version, or owner__name for all versions: the venv that a repository's tests run with,
                    or a link to it; without one: pytest alone

A source is the path of a set, the name of one in the cache (`swe-sets/NAME.jsonl` or `swe-sets/NAME/`), or empty for
the set that we ship. `rollout.benchmark` is the source where none is named, and `rollout.task_type` a repository.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from openclaw_rl.config import RolloutConfig
from openclaw_rl.envs.sandbox.box import Sandbox
from openclaw_rl.envs.swe.grading import Material
from openclaw_rl.envs.swe.interpreter import Interpreter, default_interpreter
from openclaw_rl.envs.swe.room import SweRoom
from openclaw_rl.envs.swe.rows import SweRow, read_rows
from openclaw_rl.envs.swe.trees import find_repository, make_trees
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Task, TaskRef, TaskSource

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_OF_PYTEST = re.compile(r"[^:]+\.py::.+", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowSet:
    folder: Path
    rows: Mapping[str, SweRow]


class SweEnvironment:
    """Repositories with a problem each."""

    name = "swe"

    def __init__(self, *, rollout: RolloutConfig, sandbox: Sandbox, cache: Path) -> None:
        self._rollout = rollout
        self._sandbox = sandbox
        self._cache = cache
        self._sets: dict[str, _RowSet] = {}
        self._materials: dict[TaskRef, asyncio.Task[Material]] = {}

    def sources(self) -> Sequence[TaskSource]:
        known = self._cache / "swe-sets"
        entries = known.iterdir() if known.is_dir() else ()
        named = {path.stem if path.suffix == ".jsonl" else path.name for path in entries}
        return [_about(name, self._load(name)) for name in ("", *sorted(named))]

    async def tasks(self, source: str) -> Sequence[Task]:
        source = source or self._rollout.benchmark or ""
        found = await asyncio.to_thread(self._load, source)
        kind = self._rollout.task_type
        rows = [row for row in found.rows.values() if kind in (None, row.repo)]
        if not rows:
            repos = ", ".join(sorted({row.repo for row in found.rows.values()}))
            raise TaskError(f"rollout.task_type is {kind!r}, and no task is of that repository; there are {repos}")
        return [
            Task(
                ref=TaskRef(environment=self.name, source=source, name=row.instance_id),
                split=row.split or "train",
                instruction=row.problem_statement,
            )
            for row in rows
        ]

    async def room(self, task: TaskRef, *, gateway: str, programs: Mapping[str, Path]) -> SweRoom:
        found = await asyncio.to_thread(self._load, task.source)
        row = found.rows.get(task.name)
        if row is None:
            raise TaskError(f"there is no task {task.name!r} in {task.source or 'the shipped set'}")
        return SweRoom(
            lambda: self._material(task, row, found.folder),
            sandbox=self._sandbox,
            gateway=gateway,
            programs=programs,
        )

    async def _material(self, task: TaskRef, row: SweRow, folder: Path) -> Material:
        """Made once for all attempts at a task; what failed is tried again by the next."""
        making = self._materials.get(task)
        if making is None or (making.done() and (making.cancelled() or making.exception() is not None)):
            making = self._materials[task] = asyncio.create_task(self._make(row, folder))
        return await asyncio.shield(making)

    async def _make(self, row: SweRow, folder: Path) -> Material:
        if other := next((test for test in row.tests if not _OF_PYTEST.fullmatch(test)), None):
            raise TaskError(
                f"{row.instance_id} names a test {other!r}, which is none of pytest (path/test_x.py::test_y); "
                "repositories with a test runner of their own are not supported"
            )
        interpreter = await asyncio.to_thread(self._interpreter, row, folder)
        repository = await asyncio.to_thread(find_repository, row, folder / "repos")
        trees = await make_trees(row, repository, sandbox=self._sandbox, cache=self._cache)
        return await asyncio.to_thread(Material.of, row, trees, interpreter)

    def _interpreter(self, row: SweRow, folder: Path) -> Interpreter:
        names = [row.folder, *([f"{row.folder}-{row.version}"] if _VERSION.fullmatch(row.version) else [])]
        venvs = [folder / "venvs" / name for name in reversed(names)]
        if venv := next((one for one in venvs if one.exists()), None):
            return Interpreter.of(venv.resolve())
        if row.packages:
            image = f" (the image {row.image})" if row.image else ""
            raise TaskError(
                f"{row.instance_id} was made for packages of its own{image}, and images are not run here; make a venv "
                f"with pytest and what {row.repo} {row.version} needs, and put it, or a link to it, at "
                f"{' or '.join(map(str, venvs))}"
            )
        return default_interpreter(self._cache)

    def _load(self, source: str) -> _RowSet:
        """Blocking. A file is read once."""
        if source not in self._sets:
            file = self._file(source)
            rows = read_rows(file)
            self._sets[source] = _RowSet(folder=file.parent, rows={row.instance_id: row for row in rows})
        return self._sets[source]

    def _file(self, source: str) -> Path:
        if not source:
            return Path(str(files("openclaw_rl.envs.swe") / "demo" / "tasks.jsonl"))
        sets = self._cache / "swe-sets"
        for place in (Path(source).expanduser(), sets / source, sets / f"{source}.jsonl"):
            if place.is_file():
                return place.absolute()
            if (place / "tasks.jsonl").is_file():
                return (place / "tasks.jsonl").absolute()
        raise TaskError(
            f"there is no set of tasks {source!r}; name a .jsonl file of SWE-bench's records, or put it at "
            f"{sets / source}.jsonl, with clones of its repositories in repos/ beside it"
        )


def _about(name: str, found: _RowSet) -> TaskSource:
    rows = list(found.rows.values())
    repos = ", ".join(sorted({row.repo for row in rows}))
    num_train = sum(row.split == "train" for row in rows)
    return TaskSource(
        name=name, about=f"Faults to find and mend in {repos}.", num_train=num_train, num_held_out=len(rows) - num_train
    )
