"""References to weights."""

from __future__ import annotations

from pathlib import Path

from openclaw_rl.types import WeightsRef


def folder_ref(path: str, sha256: str) -> WeightsRef | None:
    """Weights in a local folder; none where the path is empty."""
    return WeightsRef.of_folder(Path(path), sha256) if path else None
