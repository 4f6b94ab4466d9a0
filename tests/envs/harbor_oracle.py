"""Runs where Harbor is installed: a list of questions in, what Harbor's own models make of each out. Both are JSON.

{"toml": text}        what the text of a task.toml says
{"folder": path}      what a task directory says
An answer is {"refused": why} or the values.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

from harbor.models.task.config import TaskConfig  # type: ignore[import-not-found]
from harbor.models.task.task import Task  # type: ignore[import-not-found]
from harbor.models.task.verifier_mode import (  # type: ignore[import-not-found]
    resolve_verifier_environment_definition,
)


def answer(question: dict[str, str]) -> Any:
    try:
        if "toml" in question:
            return TaskConfig.model_validate_toml(question["toml"]).model_dump(mode="json")
        return folder(Path(question["folder"]))
    except Exception as error:  # whatever it is, Harbor would not run this
        return {"refused": f"{type(error).__name__}: {error}"}


def folder(path: Path) -> Any:
    task = Task(path)
    steps = task.config.steps or [None]
    return {
        "config": task.config.model_dump(mode="json"),
        "instructions": [task.step_instruction(step.name) if step else task.instruction for step in steps],
        "graders": [grader(task, step) for step in steps],
    }


def grader(task: Any, step: Any) -> Any:
    found = resolve_verifier_environment_definition(task.config, task.paths, step)
    if found is None:
        return None
    return {
        "config": found.config.model_dump(mode="json"),
        "folder": str(found.directory.relative_to(task.task_dir)),
        "has_tests": found.bundled_tests,
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    json.dump([answer(question) for question in json.load(sys.stdin)], sys.stdout)
