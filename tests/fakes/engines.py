"""Puts the stand-in for Docker (`docker.py`) on the path, with one image."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.fakes import docker

FOLDERS = ("dev", "etc", "opt", "proc", "root", "tmp", "usr", "work")
"""Of the image `plain`; its programs are those of this machine."""


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns where its state is."""
    if shutil.which("nsenter") is None:
        pytest.skip("the stand-in for Docker needs nsenter, of util-linux")
    state, programs = folder / "engine", folder / "bin"
    image = state / "images" / "plain"
    for name in FOLDERS:
        (image / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        if os.path.islink(f"/{name}"):
            (image / name).symlink_to(os.readlink(f"/{name}"))
    programs.mkdir()
    program = programs / "docker"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {docker.__file__} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_DOCKER", str(state))
    return state
