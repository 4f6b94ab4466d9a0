"""A venv -> what a box must show so that a repository's tests run there, and names that nobody may take.

It only reads the venv's files: a set of tasks may bring one, and nothing of it runs outside a box.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from openclaw_rl.errors import TaskError

_RUNNER = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
_LIBRARIES = ("lib", "lib64")
_INSTALL_S = 600.0
_READY = "openclaw-rl-ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A venv with pytest. `base` is the installation of Python that it builds on."""

    venv: Path
    base: Path
    site: Path

    @classmethod
    def of(cls, venv: Path) -> Interpreter:
        """`TaskError` says what the folder lacks."""
        venv = venv.absolute()
        try:
            lines = (venv / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise TaskError(f"{venv} is no venv ({error}); make one: python3 -m venv DIR") from error
        stated = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
        base = Path(stated.get("home", "")).parent
        library = next(iter(sorted(venv.glob("lib/python3*"))), None)
        found = library and any((base / lib / library.name / "os.py").is_file() for lib in _LIBRARIES)
        if library is None or not base.is_absolute() or not found:
            raise TaskError(f"{venv} builds on {stated.get('home')}, where no Python is; make the venv anew")
        site = library / "site-packages"
        if not (site / "pytest" / "__init__.py").is_file():
            raise TaskError(f"{venv} has no pytest; install it there: {venv}/bin/python -m pip install pytest")
        return cls(venv=venv, base=base, site=site)

    @property
    def mounts(self) -> Mapping[str, Path]:
        """Everything at its own place, as the scripts of a venv name it. What is below /usr, every box shows."""
        needed = {str(self.venv): self.venv.resolve()}
        for part in ("bin", *_LIBRARIES):
            needed[str(self.base / part)] = (self.base / part).resolve()
        return {path: folder for path, folder in needed.items() if not path.startswith("/usr/") and folder.is_dir()}

    @property
    def env(self) -> Mapping[str, str]:
        return {"VIRTUAL_ENV": str(self.venv), "PATH": f"{self.venv}/bin:/usr/local/bin:/usr/bin:/bin"}

    def installed_names(self) -> frozenset[str]:
        """The modules that are installed in the venv."""
        code = (path for path in self.site.iterdir() if path.suffix in ("", ".py", ".so"))
        return frozenset(path.name.partition(".")[0] for path in code)


def default_interpreter(cache: Path) -> Interpreter:
    """A venv with pytest alone, made once. Blocking. `TaskError` where pytest is neither here nor can be fetched."""
    venv = cache.absolute() / "swe-venv"
    venv.parent.mkdir(parents=True, exist_ok=True)
    with (cache / "swe-venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (venv / _READY).is_file():
            shutil.rmtree(venv, ignore_errors=True)
            _make(venv)
            (venv / _READY).touch()
    return Interpreter.of(venv)


def _make(venv: Path) -> None:
    """The runner is copied from beside us, where it is installed: that needs no network."""
    try:
        ours = [distribution(name) for name in _RUNNER]
    except PackageNotFoundError:
        _call([sys.executable, "-m", "venv", str(venv)])
        _call([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "pytest"])
        return
    _call([sys.executable, "-m", "venv", "--without-pip", str(venv)])
    (site,) = venv.glob("lib/python3*/site-packages")
    for file, place in (pair for one in ours for pair in _files(one)):
        (site / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, site / place)
    script = venv / "bin" / "pytest"
    script.write_text(f"#!{venv}/bin/python\nimport sys\nfrom pytest import console_main\n\nsys.exit(console_main())\n")
    script.chmod(0o755)


def _files(installed: Distribution) -> Iterator[tuple[Path, Path]]:
    """A distribution's files and their places in site-packages, without scripts and compiled copies."""
    for file in installed.files or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            yield Path(str(file.locate())), Path(*file.parts)


def _call(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_S)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        raise TaskError(
            f"the tests of SWE tasks need an interpreter with pytest, and making one failed: {' '.join(said)}. "
            "Install pytest beside openclaw-rl, or name a venv that has it"
        ) from error
