"""Images that an engine has become folders, once. The engine is a stand-in (`tests/fakes/docker.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.envs.tasks.harbor.bases import find_base
from openclaw_rl.errors import TaskError
from tests.fakes.engines import stand_in


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return stand_in(tmp_path, monkeypatch)


def test_an_image_that_is_no_folder_yet_is_copied_once(state: Path, tmp_path: Path) -> None:
    (state / "images" / "plain" / "etc" / "issue").write_text("of the image")
    images = tmp_path / "cache"
    base = find_base("plain", images)
    assert (base.root / "etc" / "issue").read_text() == "of the image"
    assert (dict(base.env), base.workdir) == ({"OF_IMAGE": "yes"}, "/work")
    assert not list(state.glob("*/label")), "the container it was copied from is removed"
    assert [folder.name for folder in images.iterdir()] == ["plain_latest"]
    (state / "engine-is-down").touch()
    assert find_base("plain", images) == base


def test_an_image_that_nobody_has_is_refused_with_the_reason(state: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="none:1 available: .*pull access denied"):
        find_base("none:1", tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_without_an_engine_the_message_says_what_to_do(state: Path, tmp_path: Path) -> None:
    (state / "engine-is-down").touch()
    with pytest.raises(TaskError, match="not here. Where Docker is, its files are copied once: mkdir"):
        find_base("plain", tmp_path / "cache")
