"""The verifier's box: fresh, with the tests brought in."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.envs.sandbox.box import BoxLimits
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from openclaw_rl.envs.tasks.harbor.images import Image
from openclaw_rl.envs.tasks.harbor.verifying import Verified, gathered, verify
from openclaw_rl.errors import EnvError


async def verified(sandbox: BubblewrapSandbox, tests: Path | None, *, work: Path, script: str = "") -> Verified:
    work.mkdir(exist_ok=True)
    if tests is not None:
        tests.mkdir(exist_ok=True)
        (tests / "test.sh").write_text(script)
    return await verify(
        sandbox,
        Image(trees={"/app": work}, workdir="/app"),
        tests,
        env={"POINTS": "0.5"},
        limits=BoxLimits(memory_mb=256, disk_mb=16),
        network="none",
        timeout_s=30.0,
    )


async def test_a_verifier_works_beside_what_was_left(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    script = (
        '#!/bin/bash\necho "$PWD $0"; ls -A /logs/*; echo $POINTS > /logs/verifier/reward.txt; touch /tests/x here\n'
    )
    found = await verified(sandbox, tmp_path / "tests", work=tmp_path / "work", script=script)
    assert found.rewards == {"reward": 0.5}
    assert found.output == "/app /tests/test.sh\n/logs/agent:\n\n/logs/artifacts:\n\n/logs/verifier:"
    assert [path.name for path in (tmp_path / "tests").iterdir()] == ["test.sh"]
    assert not (tmp_path / "tests" / "test.sh").stat().st_mode & 0o111
    assert list((tmp_path / "work").iterdir()) == []


async def test_an_image_without_its_tests_is_a_failure(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    with pytest.raises(EnvError, match=r"the verifier cannot be started: .*/tests/test\.sh"):
        await verified(sandbox, None, work=tmp_path / "work")


async def test_only_the_end_of_what_it_said_is_kept(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    script = "#!/bin/bash\nseq 5000\necho 1 > /logs/verifier/reward.txt\n"
    found = await verified(sandbox, tmp_path / "tests", work=tmp_path / "work", script=script)
    assert found.output.endswith("\n4999\n5000")
    assert len(found.output) <= 4000


async def test_folders_of_tests_lie_over_each_other(tmp_path: Path) -> None:
    for folder, files in (("all", ("a", "b")), ("step", ("b", "c"))):
        (tmp_path / folder).mkdir()
        for name in files:
            (tmp_path / folder / name).write_text(folder)
    both = [tmp_path / "all", tmp_path / "step"]
    found = await gathered(both, tmp_path / "to")
    assert found is not None
    assert {path.name: path.read_text() for path in found.iterdir()} == {"a": "all", "b": "step", "c": "step"}
    assert await gathered(both[:1], tmp_path / "none") == tmp_path / "all"
    assert await gathered((), tmp_path / "none") is None
