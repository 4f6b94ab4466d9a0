"""A folder of weights -> the one SHA-256 that names its bytes; and what is written is forced onto the disk.

What counts for the checksum is what a worker loads: every `*.safetensors` and every `*config.json` directly in the
folder, by name and content. It is that of the lines `sha256sum` prints for those files, sorted by name, so that it can
be checked by hand:

    cd FOLDER && ls | grep -E '(\\.safetensors|config\\.json)$' | LC_ALL=C sort | xargs sha256sum | sha256sum

Standard library only: the trainer, the control process and every worker use it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from openclaw_rl.errors import ModelError

_SUFFIXES = (".safetensors", ".safetensors.index.json", "config.json")

_PART_BYTES = 8 << 20
"""Between two parts the interpreter is asked for, which costs whoever has it 50 µs."""


def folder_sha256(folder: Path) -> str:
    """The checksum of an adapter's or a model's folder, in hex. Blocking: reads every byte, at 1 to 2 GB/s.

    `ModelError` if the folder cannot be read or has no weights.
    """
    try:
        names = sorted(path.name for path in folder.iterdir() if path.name.endswith(_SUFFIXES) and path.is_file())
        if not any(name.endswith(".safetensors") for name in names):
            raise ModelError(f"{folder} has no *.safetensors; name the folder that the weights were saved to")
        lines = [f"{file_sha256(folder / name)}  {name}\n" for name in names]
    except OSError as error:
        raise ModelError(f"cannot read the weights in {folder}: {error.strerror or error}") from error
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def file_sha256(path: Path) -> str:
    """The checksum of one file, in hex."""
    digest, part = hashlib.sha256(), memoryview(bytearray(_PART_BYTES))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(part):
            digest.update(part[:size])
    return digest.hexdigest()


def unfinished(target: Path) -> Path:
    """Where a folder is written that becomes `target`, by a rename, when it is whole."""
    return target.with_name(f".{target.name}.partial")


def sync(path: Path) -> None:
    """Returns when the file's bytes, or the folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Every file in the folder, then the folder."""
    for path in (*folder.iterdir(), folder):
        sync(path)
