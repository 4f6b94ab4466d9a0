"""A folder that a person names -> the task directories in it.

    tasks/hello/task.toml         the folder `tasks/hello` is one task
    tasks/*/task.toml             the folder `tasks` is many; one that has only an instruction.md is among them
    tasks/dataset.toml            the folder `tasks` is those that the file names, as folders beside it

Names are those of the folders. What is in a task is not known here.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from openclaw_rl.envs.tasks.harbor.directory import read_text
from openclaw_rl.envs.tasks.harbor.task_toml import MAX_BYTES, parse_task_toml
from openclaw_rl.errors import TaskError

_NAME = re.compile(r"[^/\x00-\x1f\x7f]{1,255}")


def find_tasks(source: Path) -> dict[str, Path]:
    """The folders of tasks by their names; `TaskError` where there is none. Blocking."""
    try:
        if (source / "task.toml").is_file():
            return {source.resolve().name: source.resolve()}
        if not source.is_dir():
            raise TaskError(f"{source} is not a folder; name one that holds a task.toml, or folders that do")
        beside = {path.name: path.resolve() for path in sorted(source.iterdir()) if _looks_like_one(path)}
    except OSError as error:
        raise TaskError(f"{source} cannot be read: {error.strerror}") from None
    if (source / "dataset.toml").is_file():
        return _listed(source / "dataset.toml", beside)
    if not beside:
        raise TaskError(f"{source} holds no task: neither it nor a folder in it has a task.toml")
    return beside


def find_task(source: Path, name: str) -> Path:
    """The folder of one task of a source. Blocking."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise TaskError(f"a task is named as its folder, got {name!r}")
    found = find_tasks(source)
    if name not in found:
        raise TaskError(f"{source} has no task {name!r}; it has {', '.join(list(found)[:5])}{', …' * (len(found) > 5)}")
    return found[name]


def _looks_like_one(folder: Path) -> bool:
    """Also where its task.toml is missing, so that somebody is told."""
    return any((folder / name).is_file() for name in ("task.toml", "instruction.md"))


def _listed(manifest: Path, beside: dict[str, Path]) -> dict[str, Path]:
    try:
        raw = tomllib.loads(read_text(manifest, MAX_BYTES))
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{manifest} is not TOML: {error}") from None
    tasks = raw.get("tasks", [])
    listed = [one.get("name") for one in tasks if isinstance(one, dict)] if isinstance(tasks, list) else []
    names = [name for name in listed if isinstance(name, str)]
    if not names or len(names) < len(listed):
        raise TaskError(f"{manifest} lists no tasks; [[tasks]] has a name each")
    by_package = {_package(path): path for path in beside.values()} | beside
    found = {}
    for name in names:
        path = by_package.get(name) or by_package.get(name.rpartition("/")[2])
        if path is None:
            raise TaskError(f"{manifest} lists {name}, which is not beside it; download the dataset with Harbor first")
        found[path.name] = path
    return found


def _package(folder: Path) -> str:
    """The name in `[task]`, by which a dataset lists a task; that of the folder where none can be read."""
    try:
        package = parse_task_toml(read_text(folder / "task.toml", MAX_BYTES), folder.name).task
    except TaskError:
        return folder.name
    return folder.name if package is None else package.name
