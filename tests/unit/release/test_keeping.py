"""Whose files may go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from openclaw_rl.protocols import LearningStore
from openclaw_rl.release.answering import NoSuchVersion
from openclaw_rl.release.keeping import NUM_NEWEST, superseded, tidy
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.train.local import LocalWeights
from openclaw_rl.types import Version, VersionState
from tests.factories.weights import folder_ref
from tests.fakes.release import NOWHERE, FakeEngine, OpenDoor, Rows


def version(number: int, state: VersionState = "retired", *, parent: int | None = None, path: str = "/x") -> Version:
    above = number - 1 if parent is None else parent
    return Version(line="local", number=number, parent=above, state=state, created_at=0.0, weights=folder_ref(path, ""))


def numbers(versions: list[Version], save_every: int) -> list[int]:
    return [one.number for one in superseded(versions, save_every=save_every)]


@pytest.mark.parametrize(("save_every", "gone"), [(1, []), (2, [1, 3, 5]), (3, [1, 2, 4, 5]), (100, [1, 2, 3, 4, 5])])
def test_every_nth_and_the_newest_stay(save_every: int, gone: list[int]) -> None:
    line = [*map(version, range(1, 10)), version(10, "live")]
    assert len(line) - NUM_NEWEST == 5
    assert numbers(line, save_every) == gone
    assert numbers(list(reversed(line)), save_every) == gone[::-1], "in whatever order they come"


def test_what_answers_and_what_it_stands_on_stay_however_old() -> None:
    line = [version(1), version(2), version(3, "live"), *(version(n, "rolled_back") for n in range(4, 11))]
    assert numbers(line, 100) == [1, 4, 5]


def test_what_answered_before_a_chain_stays() -> None:
    line = [*map(version, range(1, 12)), replace(version(12, "live"), gate={"parent": "v4"})]
    assert 4 not in numbers(line, 100)
    assert numbers(line, 100) == [1, 2, 3, 5, 6, 7]


def test_what_the_next_step_builds_on_stays() -> None:
    line = [
        version(1, "live"),
        *(version(n, "no_effect") for n in (2, 3, 4)),
        *map(version, range(5, 12)),
    ]
    assert numbers(line, 100) == [2, 3, 5, 6]


def test_what_was_rejected_pushes_nothing_out_that_can_be_gone_back_to() -> None:
    line = [*map(version, range(1, 6)), version(6, "live"), *(version(n, "rejected", parent=6) for n in range(7, 14))]
    assert numbers(line, 100) == [1, 7, 8]


def test_what_waits_for_its_gate_and_its_parent_stay() -> None:
    line = [version(1), version(2), version(3), version(4, "candidate", parent=2), *map(version, range(5, 11))]
    assert numbers(line, 100) == [1, 3, 5]


def test_what_is_gone_does_not_go_again() -> None:
    line = [version(1, path=""), version(2), *map(version, range(3, 8))]
    assert numbers(line, 100) == [2]


async def test_what_a_crash_left_behind_goes_with_the_next_release(tmp_path: Path) -> None:
    for name in ("v1", "v2", "v9"):
        (tmp_path / name / "weights").mkdir(parents=True)
    rows = Rows(version(1, path=""), version(2, "live", path=str(tmp_path / "v2" / "weights")))
    await tidy(cast("LearningStore", rows), LocalWeights(tmp_path), "local", save_every=1)
    left = {folder.name for folder in tmp_path.iterdir()}
    assert left == {"v2", "v9"}, "what no row knows is not ours to remove"


async def test_going_back_to_files_that_were_removed_says_so_and_changes_nothing() -> None:
    over, live, rows = FakeEngine(), LiveVersions(), Rows(version(1, path=""), version(2, "live"))
    releaser = Releaser(
        cast("LearningStore", rows), over, OpenDoor(), live, proving=OpenDoor(), keeper=NOWHERE, save_every=2
    )
    await releaser.restore()
    with pytest.raises(NoSuchVersion, match=r"version 1 were not kept \(training\.save_every\); there are 0, 2"):
        await releaser.roll_back("local", 1)
    assert (await live.label("local"), rows.rows[2].state, over.retired) == ("v2", "live", [])
