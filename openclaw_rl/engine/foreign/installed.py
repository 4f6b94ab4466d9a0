"""A package in an environment of its own -> the interpreter that has it, and its version.

Servers of others pin their own torch and transformers, so that none of them can live beside us: each is installed into
an environment of its own and started from there. Nothing of it is imported here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.engine.foreign.probing import parts
from openclaw_rl.errors import ConfigError

_ASK = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """`package` is the name that was found, of several that a build may have."""

    python: Path
    package: str
    version: str


def find_installed(
    kind: str, packages: Sequence[str], *, python: Path, is_default: bool, oldest: tuple[int, ...], how: str
) -> Installed:
    """At `engine.KIND.python`; if that is the default and not there, as the program KIND on the path. Blocking;
    `ConfigError` with `how` it is installed."""
    setting = f"engine.{kind}.python"
    where = python
    if is_default and not python.exists():
        program = shutil.which(kind)
        if program is None:
            raise ConfigError(
                f"engine.type={kind}: there is neither {python} nor {kind} on the PATH: {how}; or name "
                f"the interpreter that has it with {setting}, or a server that runs already with engine.url"
            )
        where = Path(program).resolve().with_name("python3")
    try:
        done = subprocess.run([where, "-c", _ASK, *packages], capture_output=True, text=True, timeout=60, check=True)
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfigError(f"{where} cannot be asked whether it has {kind} ({error}); set {setting}") from None
    if not found:
        raise ConfigError(f"{where} has no {kind}: {how}, or set {setting} to an interpreter that has it")
    package, version = next(iter(found.items()))
    if parts(version) < oldest:
        needed = ".".join(map(str, oldest))
        raise ConfigError(f"{where} has {package} {version}, and {needed} or newer is needed: upgrade it there")
    return Installed(python=where, package=package, version=version)
