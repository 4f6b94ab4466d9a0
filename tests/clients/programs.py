"""The programs that people already have, at the versions tested: a `Program` -> its command, installed once.

Each lives in a folder of its own under `CACHE`, so that a second run of the tests finds it there and nothing of the
machine's own is touched. Knows npm and pip; knows nothing about what the programs do.
"""

from __future__ import annotations

import fcntl
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CACHE = Path.home() / ".cache" / "openclaw-rl" / "clients"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command and the packages it comes in, each at one version: npm's `name@1.2`, PyPI's `name==1.2`."""

    command: str
    registry: Literal["npm", "pypi"]
    packages: tuple[str, ...]
    runs_scripts: bool = False
    """Whether npm may run its install script, without which the command is not there."""

    @property
    def folder(self) -> Path:
        return CACHE / self.command

    @property
    def path(self) -> Path:
        """The command itself, once it is installed."""
        return self.folder / ("node_modules/.bin" if self.registry == "npm" else "bin") / self.command


_CPU = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
# OpenClaw wants a newer Node than most machines have; npm carries Node's own builds.
NODE = Program(command="node", registry="npm", packages=(f"node-{sys.platform}-{_CPU}@24.21.0",))
OPENCLAW = Program(command="openclaw", registry="npm", packages=("openclaw@2026.9.6",))
CODEX = Program(command="codex", registry="npm", packages=("@openai/codex@0.166.0",))
OPENCODE = Program(command="opencode", registry="npm", packages=("opencode-ai@1.18.33",), runs_scripts=True)
PI = Program(command="pi", registry="npm", packages=("@mariozechner/pi-coding-agent@0.73.1",))
CLAUDE_CODE = Program(
    command="claude", registry="npm", packages=("@anthropic-ai/claude-code@2.1.325",), runs_scripts=True
)
# It asks litellm for tools, and litellm asks for mcp without saying so.
MINI_SWE_AGENT = Program(command="mini", registry="pypi", packages=("mini-swe-agent==2.4.6", "mcp==2.3.0"))
AIDER = Program(command="aider", registry="pypi", packages=("aider-chat==0.86.2",))


class NotInstalled(Exception):
    """npm or pip could not fetch a program."""


def installed(program: Program) -> Path:
    """The program's command; what is not there yet is fetched first, by one process at a time. Else `NotInstalled`."""
    CACHE.mkdir(parents=True, exist_ok=True)
    wanted = "\n".join(program.packages)
    stamp = program.folder / ".installed"
    with (CACHE / f".{program.command}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.is_file() or stamp.read_text() != wanted:
            shutil.rmtree(program.folder, ignore_errors=True)  # another version, or half of this one
            program.folder.mkdir()
            _install(program)
            stamp.write_text(wanted)
    return program.path


def _install(program: Program) -> None:
    if program.registry == "npm":
        scripts = () if program.runs_scripts else ("--ignore-scripts",)
        _run("npm", "install", "--prefix", program.folder, "--no-save", *scripts, *program.packages)
    else:
        _run(sys.executable, "-m", "venv", program.folder)
        _run(program.folder / "bin" / "pip", "install", "--disable-pip-version-check", "--quiet", *program.packages)


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotInstalled(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
