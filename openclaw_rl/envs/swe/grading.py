"""What an agent left behind -> its grade, in a box where it has never been.

The box holds the tree with all tests; of the agent's only what `patches` carries is written over it. Then

    resolved: all of FAIL_TO_PASS and of PASS_TO_PASS pass      reward +1, share 1
    all of PASS_TO_PASS, and the part a of FAIL_TO_PASS         reward 2a − 1, share a
    a test of PASS_TO_PASS no longer does, or tampering         reward −1, share 0

What keeps the tests from coming to an end is the agent's doing: the author's solution passes them in a fraction of the
limit, which `openclaw-rl env check` tells before anybody trains.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from openclaw_rl.envs.sandbox.box import Box, BoxSpec, Sandbox
from openclaw_rl.envs.swe.interpreter import Interpreter
from openclaw_rl.envs.swe.patches import FileChange, Rules, Work
from openclaw_rl.envs.swe.rows import SweRow, file_of
from openclaw_rl.envs.swe.suite import TESTBED, SuiteRun, run_suite
from openclaw_rl.envs.swe.trees import GIT_ENV, Trees, import_roots
from openclaw_rl.errors import EnvError
from openclaw_rl.types import Grade

TESTS_S = 600.0
_MAX_REPORT = 8000
_MAX_LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """All that attempts at one task need."""

    row: SweRow
    trees: Trees
    interpreter: Interpreter
    rules: Rules

    @classmethod
    def of(cls, row: SweRow, trees: Trees, interpreter: Interpreter) -> Material:
        """Blocking."""
        rules = Rules(
            tests=frozenset(map(file_of, row.tests)) | trees.brought(),
            solution=row.patched_files,
            taken=sys.stdlib_module_names | interpreter.installed_names(),
            roots=import_roots(trees.graded),
        )
        return cls(row=row, trees=trees, interpreter=interpreter, rules=rules)

    def spec(self, tree: Path, programs: Mapping[str, Path], gateway: str = "") -> BoxSpec:
        return box_spec(tree, self.interpreter, programs=programs, gateway=gateway)


def box_spec(
    tree: Path, interpreter: Interpreter, *, programs: Mapping[str, Path] | None = None, gateway: str = ""
) -> BoxSpec:
    """A box with this tree in which its code can be loaded and its tests can run. The same for every run."""
    roots = ":".join(f"{TESTBED}/{root}".removesuffix("/.") for root in import_roots(tree))
    fixed = {"PYTHONPATH": roots, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "TZ": "UTC", "LANG": "C.UTF-8"}
    return BoxSpec(
        trees={TESTBED: tree},
        read_only={**(programs or {}), **interpreter.mounts},
        workdir=TESTBED,
        env={**GIT_ENV, **interpreter.env, **fixed},
        gateway=gateway,
    )


async def grade(material: Material, work: Work, sandbox: Sandbox) -> Grade:
    """`EnvError` where a box failed; everything else is a grade."""
    counts = {"changed_files": float(len(work.carried)), "tampering": float(len(work.tampering))}
    if work.tampering:
        return Grade(reward=-1.0, metrics=counts, report=_report(work, "failed: it changed what decides about it"))
    box = await sandbox.start(material.spec(material.trees.graded, {}))
    try:
        await _carry(box, work.carried)
        run = await run_suite(box, sorted({file_of(test) for test in material.row.tests}), limit_s=TESTS_S)
    finally:
        await box.close()
    return _judge(material.row, work, run, counts)


def _judge(row: SweRow, work: Work, run: SuiteRun, counts: Mapping[str, float]) -> Grade:
    fixed, kept = (set(filter(run.passes, tests)) for tests in (row.fail_to_pass, row.pass_to_pass))
    num_broken = len(set(row.pass_to_pass)) - len(kept)
    num_to_fix = len(set(row.fail_to_pass))
    share = 0.0 if num_broken else len(fixed) / num_to_fix
    metrics = {
        **counts,
        "fixed": float(len(fixed)),
        "to_fix": float(num_to_fix),
        "broken": float(num_broken),
    }
    counted = f"{len(fixed)} of {num_to_fix} tests that failed pass now; {num_broken} that passed before fail"
    failing = [] if run.trouble else _failures(run, row.tests)
    report = _report(work, run.trouble or counted, *failing, *([run.output] if run.trouble else []))
    return Grade(reward=2.0 * share - 1.0, share=share, metrics=metrics, report=report)


def _failures(run: SuiteRun, tests: Iterable[str]) -> list[str]:
    failed = [test for test in dict.fromkeys(tests) if not run.passes(test)]
    listed = [f"{test}: {verdict.said if (verdict := run.verdict(test)) else 'did not run'}" for test in failed]
    return [*listed[:_MAX_LISTED], *([f"and {len(listed) - _MAX_LISTED} more"] if len(listed) > _MAX_LISTED else [])]


def _report(work: Work, *lines: str) -> str:
    apart = {"tampering": work.tampering, "left out": work.left_out}
    notes = [f"{fate}: {', '.join(map(repr, paths))}" for fate, paths in apart.items() if paths]
    return "\n".join([*lines, *notes, work.diff()])[:_MAX_REPORT]


async def _carry(box: Box, carried: Sequence[FileChange]) -> None:
    """First everything makes way, so that a file may stand where a folder was, and the other way round."""
    written = [change for change in carried if change.after is not None]
    await _for_each(box, "rm -rf --", [change.path for change in carried])
    await _for_each(box, "mkdir -p --", sorted({str(PurePosixPath(change.path).parent) for change in written}))
    for change in written:
        await box.write(f"{TESTBED}/{change.path}", change.after or b"", mode=change.mode)


async def _for_each(box: Box, command: str, paths: Sequence[str]) -> None:
    listed = b"".join(f"{TESTBED}/{path}".encode() + b"\0" for path in paths)
    ran = await box.run(f"xargs -0 -r {command}", timeout_s=60.0, stdin=listed)
    if ran.exit_code != 0:
        raise EnvError(f"the agent's work cannot be put into the box it is graded in: {ran.output}")
