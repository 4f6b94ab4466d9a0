"""A tested Python repository -> tasks: faults of one place each, and the tests that find them.

The suite runs twice as it is; only tests that pass both times count. Then one fault after the other is made, and the
suite runs with it, in a box of its own. A fault becomes a task if tests fail, enough others still pass, and a second
run says the same. The problem is told by what the failing tests say.

    out/tasks.jsonl      a row each; rows of other repositories stay
    out/repos/NAME/      the repository as it is, without its history
    out/venvs/NAME       a link to the venv that its tests run with

`environment` loads such a folder; `trees` says how a task is made of a row and the sound repository.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from openclaw_rl.envs.sandbox.box import Sandbox
from openclaw_rl.envs.swe.candidates import FaultCandidate, candidates, python_files
from openclaw_rl.envs.swe.grading import box_spec
from openclaw_rl.envs.swe.interpreter import Interpreter
from openclaw_rl.envs.swe.patches import FileChange, diff_of
from openclaw_rl.envs.swe.rows import REPO_NAME, SweRow, file_of, read_rows, write_rows
from openclaw_rl.envs.swe.statements import problem_of
from openclaw_rl.envs.swe.suite import TESTBED, CaseVerdict, SuiteRun, run_suite
from openclaw_rl.envs.swe.trees import import_roots
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Split

BASELINE_S = 900.0
_SHORTEST_S = 20.0
_TIMES_BASELINE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MakingProgress:
    """How far it is. `last`: what became of the last fault."""

    num_made: int
    num_tried: int
    num_wanted: int
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTasks:
    """The rows that were made, and why the other faults were not taken."""

    rows: tuple[SweRow, ...]
    num_tests: int
    num_tried: int
    rejected: Mapping[str, int]


async def make_tasks(
    repo: Path,
    out: Path,
    *,
    num: int,
    seed: int,
    sandbox: Sandbox,
    interpreter: Interpreter,
    on_progress: Callable[[MakingProgress], None] = lambda _: None,
    name: str = "",
    split: Split = "train",
    parallel: int = 2,
    min_pass_to_pass: int = 10,
) -> MadeTasks:
    """Adds up to `num` tasks to the set in `out`: fewer where there are no more faults to make. The same seed makes the
    same ones, and replaces what was made of a repository of this name. `TaskError` where its tests do not pass here.
    """
    name = name or (await asyncio.to_thread(repo.resolve)).name
    if not re.fullmatch(REPO_NAME, name):
        raise TaskError(
            f"{name!r} is no name of a repository in a set of tasks; call its folder by A-Z a-z 0-9 . _ + -"
        )
    tree = await asyncio.to_thread(_put_tree, repo, out / "repos" / name)
    suite = _Suite(name, tree, sandbox=sandbox, interpreter=interpreter, min_pass_to_pass=min_pass_to_pass)
    await suite.measure()
    await asyncio.to_thread(_link, out / "venvs" / name, interpreter.venv)
    others = await asyncio.to_thread(_rows_of_others, out / "tasks.jsonl", name)
    untried = candidates(tree, seed)
    rows: list[SweRow] = []
    rejected: Counter[str] = Counter()
    num_tried = 0
    while len(rows) < num and (batch := await asyncio.to_thread(lambda: list(islice(untried, parallel)))):
        for candidate, found in zip(batch, await suite.try_all(batch), strict=True):
            num_tried += 1
            if found.rejected:
                rejected[found.rejected] += 1
            elif len(rows) < num:
                rows.append(_row(name, candidate, found, split))
            last = found.rejected or candidate.fault.operator
            on_progress(MakingProgress(num_made=len(rows), num_tried=num_tried, num_wanted=num, last=last))
        await asyncio.to_thread(write_rows, out / "tasks.jsonl", [*others, *rows])
    return MadeTasks(rows=tuple(rows), num_tests=len(suite.baseline), num_tried=num_tried, rejected=rejected)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """What the suite says with a fault: the tests that find it and those that do not, or why it is no task."""

    failing: Mapping[str, CaseVerdict]
    passing: tuple[str, ...] = ()
    rejected: str = ""


class _Suite:
    """The tests of one repository, run over and over."""

    def __init__(
        self, name: str, tree: Path, *, sandbox: Sandbox, interpreter: Interpreter, min_pass_to_pass: int
    ) -> None:
        self.baseline: frozenset[str] = frozenset()
        self._name = name
        self._tree = tree
        self._files: Sequence[str] = ()
        self._limit_s = BASELINE_S
        self._sandbox = sandbox
        self._interpreter = interpreter
        self._min_pass_to_pass = min_pass_to_pass

    async def measure(self) -> None:
        """Which tests pass without a fault, twice, and how long they take."""
        await asyncio.to_thread(self._check_installed)
        first = again = await self._run()
        self._files = sorted({file_of(test) for test in first.passed})
        if self._files:
            again = await self._run()
        self.baseline = first.passed & again.passed
        self._limit_s = max(_SHORTEST_S, _TIMES_BASELINE * again.took_s)
        if len(self.baseline) <= self._min_pass_to_pass:
            raise TaskError(
                f"of {self._name}, {len(self.baseline)} tests pass twice, and more than {self._min_pass_to_pass} are "
                f"needed. If a package is missing, name a venv that has it (--python). {again.trouble}\n"
                f"{again.output[-2000:]}"
            )

    async def try_all(self, batch: Sequence[FaultCandidate]) -> list[_Trial]:
        """What the tests say of each, all at once."""
        async with asyncio.TaskGroup() as group:
            trials = [group.create_task(self._try(candidate)) for candidate in batch]
        return [trial.result() for trial in trials]

    async def _try(self, candidate: FaultCandidate) -> _Trial:
        first = self._found(await self._run(candidate))
        if first.rejected:
            return first
        again = self._found(await self._run(candidate))
        if again.rejected or again.failing.keys() != first.failing.keys():
            return _Trial(failing={}, rejected="not the same twice")
        return first

    def _found(self, run: SuiteRun) -> _Trial:
        passing = tuple(sorted(self.baseline & run.passed))
        failing = {test: run.verdicts.get(test, _LOST) for test in sorted(self.baseline - run.passed)}
        if run.trouble:
            return _Trial(failing={}, rejected="the tests do not end" if run.is_late else "no report of the tests")
        if not failing:
            return _Trial(failing={}, rejected="no test fails")
        if len(passing) < self._min_pass_to_pass:
            return _Trial(failing={}, rejected="too few tests pass")
        return _Trial(failing=failing, passing=passing)

    async def _run(self, candidate: FaultCandidate | None = None) -> SuiteRun:
        spec, known = await asyncio.to_thread(
            lambda: (box_spec(self._tree, self._interpreter), () if self._files else python_files(self._tree))
        )
        box = await self._sandbox.start(spec)
        try:
            if candidate is not None:
                await box.write(f"{TESTBED}/{candidate.path}", candidate.faulty)
            return await run_suite(box, self._files, known=known, limit_s=self._limit_s)
        finally:
            await box.close()

    def _check_installed(self) -> None:
        """An installed copy of the repository would show the solution of every task."""
        entries = (entry for root in import_roots(self._tree) for entry in (self._tree / root).iterdir())
        own = {entry.stem for entry in entries if entry.suffix == ".py" or (entry / "__init__.py").exists()}
        if both := own & self._interpreter.installed_names():
            raise TaskError(
                f"{', '.join(sorted(both))} of {self._name} is installed in {self._interpreter.venv} too, where the "
                "solution of every task could be read; name a venv without it (--python)"
            )


_LOST = CaseVerdict(passed=False, said="did not run")


def _row(name: str, candidate: FaultCandidate, found: _Trial, split: Split) -> SweRow:
    patch = diff_of(FileChange(path=candidate.path, before=candidate.faulty, after=candidate.sound))
    return SweRow(
        instance_id=f"{name}-{hashlib.sha256(patch.encode()).hexdigest()[:8]}",
        repo=name,
        base_commit="",
        problem_statement=problem_of(name, found.failing),
        patch=patch,
        test_patch="",
        fail_to_pass=tuple(found.failing),
        pass_to_pass=found.passing,
        split=split,
    )


def _put_tree(repo: Path, to: Path) -> Path:
    """Copies what belongs to the repository. `TaskError` if it is none."""
    if not repo.is_dir():
        raise TaskError(f"there is no repository {repo}; name a folder with a tested Python package")
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(repo, to, symlinks=True, ignore=_not_its_own)
    return to


def _not_its_own(folder: str, names: Sequence[str]) -> set[str]:
    """History, caches and environments."""
    folders = [name for name in names if Path(folder, name).is_dir()]
    made = ("__pycache__", "node_modules")
    return {name for name in folders if name[0] == "." or name in made or Path(folder, name, "pyvenv.cfg").exists()}


def _link(place: Path, venv: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(venv)


def _rows_of_others(file: Path, name: str) -> list[SweRow]:
    return [row for row in read_rows(file) if row.repo != name] if file.exists() else []
