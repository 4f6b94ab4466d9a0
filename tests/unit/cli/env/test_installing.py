"""`env install`: programs of others come onto the shelf; what cannot be fetched is told with the remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openclaw_rl.cli.env.installing import install_harness
from openclaw_rl.config import Config
from openclaw_rl.errors import ConfigError, EnvError

NPM = """#!/bin/sh
echo "$@" >>{log}
bin="$3/node_modules/.bin"
mkdir -p "$bin"
printf '#!/bin/sh\\necho "ran $0 $1 with $PATH" >>{runs}\\n' >"$bin/$(basename "$3")"
chmod +x "$bin"/*
"""
"""Keeps how it was called, `npm install --prefix FOLDER …`, and makes a program that keeps how it is run."""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config.model_validate({"model": {"cache_dir": tmp_path / "cache"}})


def programs_on_the_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An npm that fetches nothing, on the PATH; the file that it writes to."""
    log = folder / "npm.log"
    npm = folder / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(NPM.format(log=log, runs=folder / "runs.log"))
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{npm.parent}{os.pathsep}{os.environ['PATH']}")
    return log


def test_a_program_and_what_it_needs_is_fetched_once(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = programs_on_the_path(tmp_path, monkeypatch)
    install_harness(config, "openclaw")
    install_harness(config, "builtin")
    assert capsys.readouterr().out.splitlines() == ["openclaw is ready", "builtin is ready"]
    fetched = [line.rpartition(" ")[2] for line in log.read_text().splitlines()]
    assert [package.rpartition("@")[0].partition("-")[0] for package in fetched] == ["node", "openclaw"]
    clients = tmp_path / "cache" / "envs" / "clients"
    (ran,) = (tmp_path / "runs.log").read_text().splitlines()
    assert ran.startswith(
        f"ran {clients}/openclaw/node_modules/.bin/openclaw --version with {clients}/node/node_modules/.bin:"
    ), "it ends its installation here: its folder is read-only in a box"
    assert all(f"{clients}/" in line for line in log.read_text().splitlines())

    install_harness(config, "openclaw")
    assert len(log.read_text().splitlines()) == 2, "what is there is not fetched again"


def test_a_name_that_is_none_is_told(config: Config) -> None:
    with pytest.raises(ConfigError, match="there is no harness 'opencalw'; expected builtin, openclaw, "):
        install_harness(config, "opencalw")


def test_without_npm_the_remedy_is_told(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EnvError, match="install npm first"):
        install_harness(config, "codex")
