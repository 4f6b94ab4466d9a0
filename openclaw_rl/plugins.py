"""`package.module:name` or `file.py:name` -> what it names: how people bring code of their own. No dependencies."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from openclaw_rl.errors import ConfigError

FORM = "package.module:name or file.py:name"


def whole_path(named: str) -> str:
    """The same name for a process in another folder: `mine.py:X` with the whole path of the file; else as it is."""
    where, colon, name = named.rpartition(":")
    return f"{Path(where).resolve()}{colon}{name}" if where.endswith(".py") else named


def load_named(path: str, setting: str) -> tuple[ModuleType, Any]:
    """The module and the thing in it; ConfigError says what is wrong with `setting`, which the path came from."""
    where, _, name = path.rpartition(":")
    if not where or not name.isidentifier():
        raise ConfigError(f"{setting} {path!r} is not of the form {FORM}")
    try:
        module = _load_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except (Exception, SystemExit) as error:  # code of others may raise anything while it is imported
        raise ConfigError(f"{where} of {setting} cannot be imported: {error!r}") from error
    if not hasattr(module, name):
        raise ConfigError(f"{where} of {setting} has no {name!r}; it is written {FORM}")
    return module, getattr(module, name)


def _load_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    name = f"openclaw_rl_plugin_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
