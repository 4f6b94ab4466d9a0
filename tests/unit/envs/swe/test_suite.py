"""Which verdict a row means by a name: its own, or those of all tests that SWE-bench's cut name begins."""

from __future__ import annotations

import pytest

from openclaw_rl.envs.swe.suite import CaseVerdict, SuiteRun

GOOD, BAD = CaseVerdict(passed=True), CaseVerdict(passed=False, said="no")
RUN = SuiteRun(
    verdicts={
        "t.py::test_a": GOOD,
        "t.py::test_a[1]": BAD,
        "t.py::test_b[x, y]": GOOD,
        "t.py::test_b[x, z]": BAD,
        "t.py::test_c[x, y]": GOOD,
        "t.py::test_c[x, z]": GOOD,
        "t.py::test_d[x,y]": GOOD,
        "t.py::test_e[": BAD,
        "t.py::test_e[ y]": GOOD,
    }
)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("t.py::test_a", GOOD),
        ("t.py::test_a[1]", BAD),
        ("t.py::test_a[2]", None),
        ("t.py::test_b[x,", BAD),
        ("t.py::test_c[x,", GOOD),
        ("t.py::test_c[x", None),
        ("t.py::test_d[x,", None),
        ("t.py::test_e[", BAD),
        ("t.py::test_f[x,", None),
        ("t.py::test_b", None),
    ],
)
def test_a_name_and_its_verdict(name: str, verdict: CaseVerdict | None) -> None:
    assert RUN.verdict(name) == verdict
    assert RUN.passes(name) == (verdict is GOOD)
