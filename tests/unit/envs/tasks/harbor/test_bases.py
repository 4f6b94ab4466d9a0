"""The images that people brought, by the names that Dockerfiles give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.envs.tasks.harbor.bases import find_base, folder_name
from openclaw_rl.errors import TaskError


@pytest.mark.parametrize(
    ("image", "folder"),
    [
        ("debian", "debian_latest"),
        ("docker.io/library/debian:12", "debian_12"),
        ("ghcr.io:443/a/b", "ghcr.io_443_a_b_latest"),
        ("a@sha256:12", "a_sha256_12"),
        ("../../etc:1", ".._.._etc_1"),
    ],
)
def test_one_image_has_one_folder(image: str, folder: str) -> None:
    assert folder_name(image) == folder


def made(images: Path, config: str | None) -> Path:
    (images / "a_1" / "root").mkdir(parents=True)
    if config is not None:
        (images / "a_1" / "config.json").write_text(config)
    return images


def test_an_image_has_the_variables_that_docker_tells(tmp_path: Path) -> None:
    config = '[{"Config": {"Env": ["A=1=2", "B="], "WorkingDir": "/w", "User": "root"}}]'
    base = find_base("a:1", made(tmp_path, config))
    assert (base.root, base.env, base.workdir) == (tmp_path / "a_1" / "root", {"A": "1=2", "B": ""}, "/w")


def test_an_image_without_a_word_of_docker_sets_nothing(tmp_path: Path) -> None:
    base = find_base("a:1", made(tmp_path, None))
    assert (base.env, base.workdir) == ({}, "")


def test_an_image_that_was_made_anew_is_another(tmp_path: Path) -> None:
    images = made(tmp_path, None)
    before = find_base("a:1", images).identity
    assert find_base("a:1", images).identity == before
    (images / "a_1" / "config.json").write_text('{"Env": ["A=1"]}')
    assert find_base("a:1", images).identity != before


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("{", "is not what `docker inspect` says"),
        ("[]", "is not what `docker inspect` says"),
        ('{"Entrypoint": ["/x"]}', "runs in Docker alone"),
        ('{"User": "app"}', "runs in Docker alone"),
    ],
)
def test_an_image_that_needs_docker_is_refused(tmp_path: Path, config: str, why: str) -> None:
    with pytest.raises(TaskError, match=why):
        find_base("a:1", made(tmp_path, config))


def test_an_image_that_is_not_here_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(TaskError) as caught:
        find_base("python:3.12-slim", tmp_path)
    assert "docker create --name openclaw-image python:3.12-slim && docker export" in str(caught.value)
    assert "mmdebstrap" not in str(caught.value)
    for image, suite in (("debian:bookworm-slim", "bookworm"), ("ubuntu:24.04", "noble")):
        with pytest.raises(TaskError, match=f"mmdebstrap .* {suite} "):
            find_base(image, tmp_path)
    with pytest.raises(TaskError, match="holds no shell"):
        find_base("scratch", tmp_path)
