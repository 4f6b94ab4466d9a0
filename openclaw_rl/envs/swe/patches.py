"""The tree an agent leaves behind, against the one it got -> what of it counts. Both lie here; neither is run.

Every changed path is one of three:

* *carried* to where the work is graded: the repository's own files;
* *left out*, being harmless where it stays behind: new tests, compiled files, metadata of installed packages, links,
  names that cannot be printed, and settings files whose part about tests is as it was;
* *tampering*: a test that was there, settings of the test run (`conftest.py`, `pytest.ini`, the part about pytest of
  `pyproject.toml`, `tox.ini` or `setup.cfg`), what Python runs by itself (`sitecustomize.py`, `.pth`), and a new module
  of a name that Python or pytest would load instead of their own. One of these, and the attempt has failed.

A file that the author's solution changes is always carried, wherever it lies.
"""

from __future__ import annotations

import configparser
import difflib
import os
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Literal

Fate = Literal["carried", "left out", "tampering"]

_RUN_SETTINGS = ("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")
_RUN_BY_ITSELF = ("sitecustomize.py", "usercustomize.py", "*.pth")
_MADE_BY_TOOLS = ("__pycache__", ".git", ".pytest_cache", "*.egg-info", "*.dist-info", "*.pyc")
_SHARED_SETTINGS = ("pyproject.toml", "tox.ini", "setup.cfg")
_TEST_FOLDERS = ("test", "tests")
_TEST_FILES = ("test_*.py", "*_test.py")
_MAX_DIFF_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A path below the tree that is not as it was; None: no file there. `mode`: that of the new one."""

    path: str
    before: bytes | None
    after: bytes | None
    mode: int = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is known of a task when its changes are sorted.

    `tests`: files that the tests of the task are in. `solution`: files that the author's solution changes. `taken`:
    names of modules that are Python's or the test runner's. `roots`: folders of the tree that modules are loaded from.
    """

    tests: frozenset[str]
    solution: frozenset[str]
    taken: frozenset[str]
    roots: tuple[str, ...]

    def fate(self, change: Change) -> Fate:
        path = PurePosixPath(change.path)
        if not change.path.isprintable():
            return "left out"
        if change.path in self.solution:
            return "carried"
        if any(_is_one_of(part, _MADE_BY_TOOLS) for part in path.parts):
            return "left out"
        if _is_one_of(path.name, _RUN_SETTINGS + _RUN_BY_ITSELF):
            return "tampering"
        if path.name in _SHARED_SETTINGS:
            same = _about_tests(path.name, change.before) == _about_tests(path.name, change.after)
            return "left out" if same else "tampering"
        if change.path in self.tests or is_test(change.path):
            return "left out" if change.before is None else "tampering"
        return "tampering" if change.before is None and self._takes_a_name(path) else "carried"

    def _takes_a_name(self, path: PurePosixPath) -> bool:
        module = path.parent if path.name.partition(".")[0] == "__init__" else path
        is_code = path.suffix in (".py", ".so")
        return is_code and str(module.parent) in self.roots and module.name.partition(".")[0] in self.taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """All that an agent changed, sorted."""

    carried: tuple[Change, ...]
    left_out: tuple[str, ...]
    tampering: tuple[str, ...]

    def diff(self) -> str:
        """What is carried, as a patch that `git apply` takes; files that are no text are only named."""
        return "".join(diff_of(change) for change in self.carried)


def sort_changes(before: Path, after: Path, rules: Rules) -> Work:
    """Compares the agent's tree with the one it got. Blocking."""
    sorted_by: dict[Fate, list[Change]] = {"carried": [], "left out": [], "tampering": []}
    for change in changes(before, after):
        sorted_by[rules.fate(change)].append(change)
    links = [path for path, is_link in _paths(after) if is_link and not (before / path).is_symlink()]
    return Work(
        carried=tuple(sorted_by["carried"]),
        left_out=(*(change.path for change in sorted_by["left out"]), *links),
        tampering=tuple(change.path for change in sorted_by["tampering"]),
    )


def changes(before: Path, after: Path) -> Iterator[Change]:
    """Every file that is not in both trees as it is in the other. Blocking."""
    old, new = (dict(_paths(tree)) for tree in (before, after))
    for path in sorted(old.keys() | new.keys()):
        was, now = _content(before / path, old.get(path)), _content(after / path, new.get(path))
        mode = 0o644 if now is None else stat.S_IMODE((after / path).lstat().st_mode)
        was_mode = mode if was is None else stat.S_IMODE((before / path).lstat().st_mode)
        if was != now or (now is not None and (mode ^ was_mode) & 0o100):
            yield Change(path=path, before=was, after=now, mode=0o755 if mode & 0o100 else 0o644)


def is_test(path: str) -> bool:
    """Whether a file of this name is a test, or belongs to tests."""
    parts = PurePosixPath(path).parts
    return any(part in _TEST_FOLDERS for part in parts[:-1]) or _is_one_of(parts[-1], _TEST_FILES)


def diff_of(change: Change) -> str:
    """One change as git writes it."""
    old, new = f"a/{change.path}", f"b/{change.path}"
    head = [f"diff --git {old} {new}\n"]
    if change.before is None:
        head.append(f"new file mode 100{change.mode:o}\n")
        old = "/dev/null"
    if change.after is None:
        head.append("deleted file mode 100644\n")
        new = "/dev/null"
    if max(len(content or b"") for content in (change.before, change.after)) > _MAX_DIFF_BYTES:
        return "".join([*head, f"Large files {old} and {new} differ\n"])
    try:
        before, after = ((content or b"").decode() for content in (change.before, change.after))
    except UnicodeDecodeError:
        return "".join([*head, f"Binary files {old} and {new} differ\n"])
    lines = difflib.unified_diff(_lines(before), _lines(after), old, new)
    body = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return "".join([*head, *body])


def _lines(text: str) -> list[str]:
    """Cut at line feeds alone, as git does; `splitlines` would also cut at form feeds and carriage returns."""
    return [f"{line}\n" for line in text.split("\n")[:-1]] + ([last] if (last := text.rpartition("\n")[2]) else [])


def _paths(tree: Path) -> Iterator[tuple[str, bool]]:
    """Every file and link of a tree but git's own, and whether it is a link. Links are never followed."""
    for folder, folders, files in os.walk(tree):
        folders[:] = [name for name in folders if name != ".git"]
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in (*files, *links):
            path = Path(folder) / name
            yield path.relative_to(tree).as_posix(), path.is_symlink()


def _content(path: Path, is_link: bool | None) -> bytes | None:
    """None where no regular file is: a link is none."""
    return path.read_bytes() if is_link is False else None


def _is_one_of(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _about_tests(name: str, content: bytes | None) -> object:
    """The part of a settings file that the test run reads; what cannot be read counts as a part of its own."""
    try:
        text = (content or b"").decode()
        if name == "pyproject.toml":
            return tomllib.loads(text).get("tool", {}).get("pytest")
        parser = configparser.RawConfigParser()
        parser.read_string(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, configparser.Error):
        return content
    section = "pytest" if name == "tox.ini" else "tool:pytest"
    return dict(parser[section]) if parser.has_section(section) else None
