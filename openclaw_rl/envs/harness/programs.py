"""The programs of others, at the versions that were tried: a `Program` -> its files here, and where a box shows them.

Each lives in a folder of its own on a `ProgramShelf`, installed once, so that nothing of the machine's own is touched.
Knows npm and pip; knows nothing about what the programs do.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from openclaw_rl.errors import EnvError

_ROOT = "/opt/openclaw-rl"
"""Where all of them are in a box."""

_PYTHON = f"{_ROOT}/python"

_RUN_PYTHON = """
for site in {place}/lib/python3*/site-packages; do name=${{site%/site-packages}}; done
LD_LIBRARY_PATH={python}/lib exec {python}/bin/${{name##*/}} -I -c '
import os, site, sys
from importlib.metadata import entry_points
del os.environ["LD_LIBRARY_PATH"]  # for this interpreter, not for what the agent runs
site.addsitedir(sys.argv[1])
sys.argv[:2] = []
(command,) = entry_points(group="console_scripts", name=sys.argv[0])
sys.exit(command.load()())
' "$site" {command} "$@"
"""
"""An environment of Python's is bound to the folder and the interpreter that it was made with: neither is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command and the packages it comes in, each at one version: npm's `name@1.2`, PyPI's `name==1.2`."""

    command: str
    registry: Literal["npm", "pypi"]
    packages: tuple[str, ...]
    runs_scripts: bool = False
    """Whether npm may run its install script, without which the command is not there."""
    first_run: tuple[str, ...] = ()
    """Arguments of a run that ends its installation: in a box, where its folder is read-only, it could not."""
    runs_with: Program | None = None
    """Another program that it needs on the PATH."""

    @property
    def place(self) -> str:
        """Its folder in a box."""
        return f"{_ROOT}/{self.command}"

    @property
    def executable(self) -> str:
        """The command below its folder."""
        return f"{'node_modules/.bin' if self.registry == 'npm' else 'bin'}/{self.command}"

    @property
    def in_the_box(self) -> tuple[str, ...]:
        """The words that start it in a box; what comes after them are its arguments."""
        if self.registry == "npm":
            return (f"{self.place}/{self.executable}",)
        return ("sh", "-c", _RUN_PYTHON.format(place=self.place, python=_PYTHON, command=self.command), self.command)


_CPU = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
# OpenClaw wants a newer Node than most machines have; npm carries Node's own builds.
NODE = Program(command="node", registry="npm", packages=(f"node-{sys.platform}-{_CPU}@24.21.0",))
OPENCLAW = Program(
    command="openclaw", registry="npm", packages=("openclaw@2026.9.6",), first_run=("--version",), runs_with=NODE
)
CODEX = Program(command="codex", registry="npm", packages=("@openai/codex@0.166.0",))
OPENCODE = Program(command="opencode", registry="npm", packages=("opencode-ai@1.18.33",), runs_scripts=True)
CLAUDE_CODE = Program(
    command="claude", registry="npm", packages=("@anthropic-ai/claude-code@2.1.325",), runs_scripts=True
)
# It asks litellm for tools, and litellm asks for mcp without saying so.
MINI_SWE_AGENT = Program(command="mini", registry="pypi", packages=("mini-swe-agent==2.4.6", "mcp==2.3.0"))


@dataclass(frozen=True, slots=True)
class ProgramShelf:
    """The programs in a folder of this machine."""

    folder: Path

    def install(self, program: Program) -> Path:
        """The program's command; what is not there yet is fetched first, by one process at a time. Blocking.

        `EnvError` where it cannot be fetched.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        other = None if program.runs_with is None else self.install(program.runs_with)
        with (self.folder / f".{program.command}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.has(program):
                folder = self._folder(program)
                shutil.rmtree(folder, ignore_errors=True)  # another version, or half of this one
                folder.mkdir()
                _fetch(program, folder)
                if program.first_run:
                    path = [*(() if other is None else (str(other.parent),)), os.environ["PATH"]]
                    home = {"HOME": str(folder), "PATH": os.pathsep.join(path)}
                    _run(folder / program.executable, *program.first_run, env={**os.environ, **home})
                self._stamp(program).write_text(_wanted(program))
        return self._folder(program) / program.executable

    def has(self, program: Program) -> bool:
        """Whether it is there, at this version."""
        try:
            return self._stamp(program).read_text() == _wanted(program)
        except FileNotFoundError:
            return False

    def shown(self, program: Program) -> Mapping[str, Path]:
        """What a box must show for `in_the_box` to run: a path there, and the folder here. `EnvError` without it."""
        if not self.has(program):
            raise EnvError(f"{program.command} is not installed in {self.folder} as {', '.join(program.packages)}")
        folder = self._folder(program)
        if program.registry == "npm":
            return {program.place: folder}
        interpreter = (folder / "bin" / "python").resolve()
        if not interpreter.is_file():
            raise EnvError(f"{interpreter}, which {program.command} was installed with, is gone; delete {folder}")
        return {program.place: folder, _PYTHON: interpreter.parent.parent}

    def _folder(self, program: Program) -> Path:
        return self.folder / program.command

    def _stamp(self, program: Program) -> Path:
        return self._folder(program) / ".installed"


def _wanted(program: Program) -> str:
    return "\n".join((*program.packages, *program.first_run))


def _fetch(program: Program, folder: Path) -> None:
    if program.registry == "npm":
        scripts = () if program.runs_scripts else ("--ignore-scripts",)
        _run("npm", "install", "--prefix", folder, "--no-save", *scripts, *program.packages)
    else:
        _run(sys.executable, "-m", "venv", folder)
        _run(folder / "bin" / "pip", "install", "--disable-pip-version-check", "--quiet", *program.packages)


def _run(*command: str | Path, env: Mapping[str, str] | None = None) -> None:
    words = " ".join(map(str, command))
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=env)
    except FileNotFoundError:
        raise EnvError(f"`{words}` cannot be run: install {command[0]} first") from None
    if done.returncode:
        raise EnvError(f"`{words}` failed:\n{done.stdout}{done.stderr}")
