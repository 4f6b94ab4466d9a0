"""A model name and whose key it came with -> the version that is asked for. Knows labels; loads nothing.

A user's line of versions is that user's alone: its labels hold the user's name, and its weights what the user said.
So a version of another line is answered like one that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable

from openclaw_rl.errors import RequestError
from openclaw_rl.types import BASE_VERSION, version_label, version_number


def versions_for(line: str | None, loaded: Iterable[str]) -> list[str]:
    """The loaded versions that requests of a line may ask for; None is somebody without a key."""
    return [label for label in loaded if label == BASE_VERSION or (line is not None and _is_of(line, label))]


def pinned_version(model: str, line: str, loaded: Iterable[str]) -> str | None:
    """`NAME@VERSION` asks for one version; any other model name means the live one."""
    _, at, version = model.rpartition("@")
    if not at:
        return None
    label = version if version.startswith("v") else f"v{version}"
    if label not in versions_for(line, loaded):
        raise not_served(version)
    return label


def not_served(version: str) -> RequestError:
    """The answer to whoever asks for a version that is not there, or not theirs."""
    return RequestError(
        f"version {version[:80]!r} is not served; GET /v1/models lists those that you can ask for",
        status=404,
        param="model",
        code="model_not_found",
    )


def _is_of(line: str, label: str) -> bool:
    try:
        number = version_number(label)
    except ValueError:
        return False  # an engine may hold labels that are no line's
    return label == version_label(line, number)
