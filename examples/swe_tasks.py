"""Makes a set of SWE tasks from real packages on this machine, to train on some and to be tested on others.

    python examples/swe_tasks.py tasks/ --num 10
    openclaw-rl env run swe --tasks tasks/

Each package's source release comes from the package index, with its tests; every task is one fault that some of them
find (`openclaw_rl/envs/swe/making.py`). No package is in both splits. Nothing of them is part of OpenClaw-RL: what is
made stays on this machine, under the packages' own licences.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.envs.sandbox.making import make_sandbox
from openclaw_rl.envs.swe.interpreter import Interpreter
from openclaw_rl.envs.swe.making import MakingProgress, make_tasks
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A release whose source has tests, and what they need beside pytest."""

    name: str
    version: str
    split: Split
    needs: tuple[str, ...] = ()


PACKAGES = (
    Package(name="parse", version="1.22.4", split="train"),
    Package(name="sqlparse", version="0.6.1", split="train"),
    Package(name="boltons", version="26.2.0", split="train"),
    Package(name="glom", version="25.12.0", split="train", needs=("boltons", "attrs", "face", "pyyaml")),
    Package(name="toolz", version="1.2.0", split="held_out"),
    Package(name="cachetools", version="8.0.0", split="held_out"),
    Package(name="humanize", version="4.17.0", split="held_out", needs=("freezegun",)),
    Package(name="tabulate", version="0.10.0", split="held_out"),
)


def main() -> None:
    """A package that cannot be had, or whose tests do not pass here, is told and left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the set")
    parser.add_argument("--num", type=int, default=10, help="tasks of each package")
    parser.add_argument("--parallel", type=int, default=2, help="boxes at once")
    parser.add_argument("--seed", type=int, default=0)
    names = [package.name for package in PACKAGES]
    parser.add_argument("--only", nargs="*", choices=names, default=names, metavar="NAME", help="names of packages")
    asked = parser.parse_args()
    made = 0
    for package in (package for package in PACKAGES if package.name in asked.only):
        try:
            made += asyncio.run(make(package, asked.out, num=asked.num, parallel=asked.parallel, seed=asked.seed))
        except (TaskError, subprocess.CalledProcessError) as error:
            print(f"{package.name}: left out: {error}")
    print(f"{made} tasks in {asked.out}")


async def make(package: Package, out: Path, *, num: int, parallel: int, seed: int) -> int:
    """How many tasks were made of a package."""
    interpreter = await asyncio.to_thread(install, out / "environments" / package.name, package.needs)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        source = await asyncio.to_thread(fetch, package, Path(scratch))
        made = await make_tasks(
            source,
            out,
            num=num,
            seed=seed,
            sandbox=make_sandbox(Path(scratch) / "boxes"),
            interpreter=interpreter,
            on_progress=show,
            split=package.split,
            parallel=parallel,
        )
    took_s = time.monotonic() - began
    why = ", ".join(f"{num} {reason}" for reason, num in made.rejected.items())
    print(
        f"\r{package.name} {package.version} ({package.split}): {len(made.rows)} tasks of {made.num_tried} faults in "
        f"{took_s:.0f} s; {made.num_tests} tests; {why or 'none rejected'}"
    )
    return len(made.rows)


def show(progress: MakingProgress) -> None:
    """One line, rewritten."""
    print(
        f"\r{progress.num_made} of {progress.num_wanted} tasks, {progress.num_tried} faults tried", end="", flush=True
    )


def fetch(package: Package, into: Path) -> Path:
    """The unpacked source release."""
    wanted = f"{package.name}=={package.version}"
    pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(into), wanted)
    (archive,) = into.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(into, filter="data")
    return into / archive.name.removesuffix(".tar.gz")


def install(venv: Path, needs: tuple[str, ...]) -> Interpreter:
    """A venv with pytest and what the package needs, made once."""
    if not (venv / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        pip("install", "pytest", *needs, python=venv / "bin" / "python")
        (venv / "installed").touch()
    return Interpreter.of(venv)


def pip(*arguments: str, python: Path = Path(sys.executable)) -> None:
    """pip of an interpreter, without its chatter."""
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run([str(python), "-m", "pip", arguments[0], *quiet, *arguments[1:]], check=True)


if __name__ == "__main__":
    main()
