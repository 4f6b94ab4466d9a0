"""Libraries of others in venvs of their own, made once in the cache: what conformance tests compare with."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CACHE = Path.home() / ".cache" / "openclaw-rl" / "oracles"


def python_with(requirement: str, *, python: str = sys.executable) -> Path:
    """The Python of a venv that has it; skips the test where it cannot be installed."""
    home = CACHE / requirement.replace("==", "-")
    if not (home / "installed").exists():
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run((python, "-m", "venv", home), check=True)
        pip = (home / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", requirement)
        if subprocess.run(pip, check=False).returncode != 0:
            pytest.skip(f"{requirement} cannot be installed here")
        (home / "installed").touch()
    return home / "bin" / "python"


def newest_python(lowest: tuple[int, int]) -> str | None:
    """Of those on PATH and in ~/.pyenv/versions: the newest that can make a venv, from `lowest` on."""
    on_path = [
        found for minor in range(lowest[1] + 4, lowest[1] - 1, -1) if (found := shutil.which(f"python3.{minor}"))
    ]
    of_pyenv = sorted(map(str, Path.home().glob(".pyenv/versions/3.*/bin/python")), reverse=True)
    fits = f"import ensurepip, sys, venv; sys.exit(sys.version_info < {lowest})"
    for found in (*on_path, *of_pyenv):
        if subprocess.run((found, "-c", fits), check=False, capture_output=True).returncode == 0:
            return found
    return None
