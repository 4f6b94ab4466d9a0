"""A task's docker-compose.yaml -> what it asks for beyond the one box that every task has, and whether that is offline.

Many files say of the service `main` what Harbor gives it anyway, in Harbor's own variables, and `network_mode: none`:
the way to a box without a network before task.toml had one. Whatever else a file says is told, and nothing is started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from openclaw_rl.envs.tasks.harbor.task_toml import MAX_BYTES

COMPOSE_FILES = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")

_BUILDS = ("${CONTEXT_DIR}", ".", "./")
_SLEEPS = ("sleep infinity", ["sleep", "infinity"], ["sh", "-c", "sleep infinity"], ["bash", "-c", "sleep infinity"])
_LOGS = re.compile(r"\$\{HOST_\w+_PATH\}:\$\{ENV_\w+_PATH\}")
_OWN_VARIABLE = re.compile(r"(\w+)=\$\{\1\}")
_LIMITS = {"cpus": "${CPUS}", "memory": "${MEMORY}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compose:
    """`reasons`: why it is more than one box of ours can be."""

    reasons: tuple[str, ...] = ()
    is_offline: bool = False


def read_compose(folder: Path) -> Compose:
    """Of the compose file in a folder; without one, nothing is asked for. Blocking."""
    file = next((folder / name for name in COMPOSE_FILES if (folder / name).exists()), None)
    if file is None:
        return Compose()
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_BYTES + 1)
        services = yaml.safe_load(text[:MAX_BYTES])["services"]
        names = sorted(map(str, services))
        main = services["main"] if names == ["main"] else {}
        fields = {str(name): value for name, value in main.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, yaml.YAMLError):
        return Compose(reasons=(f"its {file.name} describes no service that is called main",))
    if names != ["main"]:
        return Compose(reasons=(f"it has several services ({file.name}), and there is one box",))
    asked = tuple(f"its {file.name} asks for {what}, and a box has none" for what in _beyond(fields))
    return Compose(reasons=asked, is_offline=fields.get("network_mode") == "none")


def _beyond(fields: dict[str, Any]) -> Iterator[str]:
    """What of the service is more than Harbor's own."""
    for name, value in fields.items():
        if not _is_usual(name, value):
            yield f"main.{name}"[:60]


def _is_usual(name: str, value: Any) -> bool:
    match name:
        case "build":
            context = value.get("context") if isinstance(value, dict) and set(value) == {"context"} else value
            return context in _BUILDS
        case "image":
            return bool(value == "${MAIN_IMAGE_NAME}")
        case "command":
            return value in _SLEEPS
        case "environment":
            pairs = [f"{key}={said}" for key, said in value.items()] if isinstance(value, dict) else value
            return isinstance(pairs, list) and all(_OWN_VARIABLE.fullmatch(str(pair)) for pair in pairs)
        case "volumes":
            return isinstance(value, list) and all(_LOGS.fullmatch(str(volume)) for volume in value)
        case "deploy":
            return bool(value == {"resources": {"limits": _LIMITS}})
        case "network_mode":
            return value in ("none", "bridge")
    return False
