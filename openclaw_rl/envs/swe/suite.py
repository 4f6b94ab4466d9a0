"""A tree in a box -> which of its tests pass, as pytest's JUnit report says.

The code under test runs in the process that writes the report, so it could lie. What makes that hard:

* the report's path is drawn anew for every run, and without a report no test has passed: a process that ends itself
  early gains nothing;
* two planted tests run with the others, under names drawn anew. One passes and one fails; a report in which it is
  otherwise is not believed. That finds whatever makes *every* test pass.

Code that goes for single tests by name, from within pytest's process, is not found out here.
"""

from __future__ import annotations

import re
import secrets
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from xml.etree import ElementTree

from openclaw_rl.envs.sandbox.box import Box
from openclaw_rl.errors import TaskError

TESTBED = "/testbed"
"""Where the repository lies in a box."""

_PYTEST = (
    "pytest -q -p no:cacheprovider --rootdir=/testbed --continue-on-collection-errors --color=no "
    "-o addopts= -o junit_family=xunit1 -o junit_logging=no"
)
_MAX_REPORT = 64 << 20
_MAX_MESSAGE = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseVerdict:
    """What came of one test. `said` is what its failure says of itself, `trace` the text that goes with it."""

    passed: bool
    said: str = ""
    trace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """One run. `trouble` says why there is no report to believe, and no verdicts; `is_late`: since it did not end."""

    verdicts: Mapping[str, CaseVerdict] = field(default_factory=dict)
    trouble: str = ""
    is_late: bool = False
    output: str = ""
    took_s: float = 0.0

    @property
    def passed(self) -> frozenset[str]:
        return frozenset(test for test, verdict in self.verdicts.items() if verdict.passed)

    def verdict(self, test: str) -> CaseVerdict | None:
        """Of a test by the name that a row has for it; None: it did not run.

        SWE-bench has cut names at their first blank: `test_x[a,` means `test_x[a, b]` and all others that begin so.
        Of these it is the verdict of one that failed, if any did.
        """
        if test in self.verdicts or "[" not in test or test.endswith("]"):
            return self.verdicts.get(test)
        meant = [verdict for name, verdict in self.verdicts.items() if name.split(maxsplit=1)[0] == test]
        return min(meant, key=lambda verdict: verdict.passed, default=None)

    def passes(self, test: str) -> bool:
        """By the same name."""
        verdict = self.verdict(test)
        return verdict is not None and verdict.passed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planted:
    """A test file with one test that passes and one that fails, whatever the repository does."""

    path: str
    passes: str
    fails: str

    @classmethod
    def beside(cls, file: str) -> _Planted:
        path = str(PurePosixPath(file).with_name(f"test_{secrets.token_hex(6)}.py"))
        return cls(path=path, passes=f"test_{secrets.token_hex(6)}", fails=f"test_{secrets.token_hex(6)}")

    def source(self) -> bytes:
        """A TestCase, since that is collected whatever names the repository's settings ask for."""
        return (
            "import unittest\n\n\nclass Test(unittest.TestCase):\n"
            f"    def {self.passes}(self):\n        assert True\n\n"
            f"    def {self.fails}(self):\n        assert not {secrets.randbelow(1000) + 1}\n"
        ).encode()

    def is_true_to_itself(self, verdicts: Mapping[str, CaseVerdict]) -> bool:
        found = [verdicts.get(f"{self.path}::Test::{name}") for name in (self.passes, self.fails)]
        return [verdict and verdict.passed for verdict in found] == [True, False]


async def run_suite(box: Box, files: Sequence[str], *, known: Iterable[str] = (), limit_s: float) -> SuiteRun:
    """Runs the tests of these files; of none: all that pytest finds, and then `known` names all files there are."""
    folder = f"/tmp/{secrets.token_hex(12)}"  # noqa: S108  in the box, where nobody knows it beforehand
    planted = _Planted.beside(files[0]) if files else None
    asked = [*files, planted.path] if planted else []
    if planted:
        await box.write(f"{TESTBED}/{planted.path}", planted.source())
    began = time.monotonic()
    ran = await box.run(
        f"mkdir {folder} && exec {_PYTEST} --junitxml={folder}/report.xml {shlex.join(asked)}", timeout_s=limit_s
    )
    took_s = time.monotonic() - began
    if ran.exit_code is None:
        trouble = f"the tests did not end within {limit_s:g} s"
        return SuiteRun(trouble=trouble, is_late=True, output=ran.output, took_s=took_s)
    try:
        report = await box.read(f"{folder}/report.xml", max_bytes=_MAX_REPORT)
    except TaskError:
        report = None
    if report is None:
        trouble = f"the test run ended without a report (exit code {ran.exit_code})"
        return SuiteRun(trouble=trouble, output=ran.output, took_s=took_s)
    try:
        verdicts = read_report(report, asked or known)
    except ValueError as error:
        return SuiteRun(trouble=f"the report of the test run is broken: {error}", output=ran.output, took_s=took_s)
    if planted and not planted.is_true_to_itself(verdicts):
        trouble = "the test run was tampered with: it does not report the tests that were planted as they are"
        return SuiteRun(trouble=trouble, output=ran.output, took_s=took_s)
    own = {test: verdict for test, verdict in verdicts.items() if not (planted and test.startswith(planted.path))}
    return SuiteRun(verdicts=own, output=ran.output, took_s=took_s)


def read_report(xml: bytes, files: Iterable[str]) -> dict[str, CaseVerdict]:
    """By id of the test. Tests outside these files are left out. ValueError if it is no JUnit report."""
    if re.search(rb"<!(DOCTYPE|ENTITY)", xml):
        raise ValueError("it defines entities, which pytest never does")
    try:
        root = ElementTree.fromstring(xml)  # noqa: S314  no entities, see above; its size is bounded
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from error
    modules = {file.removesuffix(".py").replace("/", "."): file for file in files}
    verdicts: dict[str, CaseVerdict] = {}
    for case in root.iter("testcase"):
        test = _id_of(case, modules)
        if test and verdicts.get(test, _PASSED).passed:  # what failed once stays so: one test may be written twice
            verdicts[test] = _verdict(case)
    return verdicts


_PASSED = CaseVerdict(passed=True)


def _id_of(case: ElementTree.Element, modules: Mapping[str, str]) -> str:
    """From the class's name: the file that is reported with it may be that of a parent, if tests are inherited."""
    name = case.get("classname", "")
    for module, classes in _ways_to_cut(name):
        if module in modules:
            return "::".join((modules[module], *classes, case.get("name", "")))
    return ""


def _ways_to_cut(name: str) -> Iterator[tuple[str, Sequence[str]]]:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        yield ".".join(parts[:length]), parts[length:]


def _verdict(case: ElementTree.Element) -> CaseVerdict:
    for kind in ("failure", "error", "skipped"):
        if (found := case.find(kind)) is not None:
            said, trace = found.get("message", ""), found.text or ""
            return CaseVerdict(passed=False, said=said[:_MAX_MESSAGE], trace=trace[:_MAX_MESSAGE])
    return _PASSED
