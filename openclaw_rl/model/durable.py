"""What was written becomes what a crash leaves behind: files and folders are forced to the disk."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Returns when the file's bytes, or the folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unfinished(target: Path) -> Path:
    """Where a folder is written that becomes `target`, by a rename, when it is whole."""
    return target.with_name(f".{target.name}.partial")


def sync_folder(folder: Path) -> None:
    """Every file in the folder, then the folder."""
    for path in (*folder.iterdir(), folder):
        sync(path)
