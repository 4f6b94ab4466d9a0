"""A model's folder -> one that servers of others may read: they load every safetensors file that they find."""

from __future__ import annotations

import shutil
from pathlib import Path

from openclaw_rl.model.files import ModelFiles

OURS = "quantised.safetensors"
"""The embedded engine's second copy of the weights, beside the first."""


def without_ours(model: ModelFiles, place: Path) -> Path:
    """The model's own folder, or one beside `place` with links to all files but ours. Blocking."""
    if not (model.path / OURS).exists():
        return model.path
    folder = place.with_name(f"{place.name}-model")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in model.path.iterdir():
        if file.name != OURS:
            (folder / file.name).symlink_to(file)
    return folder
