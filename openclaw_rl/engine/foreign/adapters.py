"""Published versions -> folders and names that a server loads them by.

Servers keep what an adapter left in their caches by its name and path, and read its folder again when they need room:
so every version gets a name and a folder of its own, which nobody ever writes again, and which stays until the server
can no longer ask for it. Knows no server.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.engine.worker.admission import verify
from openclaw_rl.errors import EngineRefused
from openclaw_rl.model.folder import unfinished
from openclaw_rl.types import Publication, WeightsRef

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"


@dataclass(slots=True, eq=False)
class LoadedVersion:
    """A version that the server has, by the name that it has there, and how many requests still run on it."""

    label: str
    name: str
    sha256: str = ""
    folder: Path | None = None
    num_requests: int = 0


class AdapterFolders:
    """Copies of adapters under one folder, which is this engine's alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._left: list[Path] = []

    def clear(self) -> None:
        """Nothing of a former life stays. Blocking."""
        self._left.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def place(self, name: str) -> Path:
        """Where the adapter of this name lies."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder / name

    def copy(self, publication: Publication, name: str) -> Path:
        """The version's own folder: what it holds was checked after it was copied. Blocking; `EngineRefused`."""
        source = verify(publication)
        if not (source / CONFIG_FILE).is_file():
            raise EngineRefused(
                f"version {publication.version}: {source} is no adapter, and this engine loads adapters only; train "
                "with training.use_lora=true, or serve full weights with engine.type=embedded",
                code="version_unreadable",
            )
        target = self.place(name)
        scratch = unfinished(target)
        try:
            scratch.mkdir()
            for file in (CONFIG_FILE, WEIGHTS_FILE):
                shutil.copyfile(source / file, scratch / file)
        except OSError as error:
            shutil.rmtree(scratch, ignore_errors=True)
            raise EngineRefused(
                f"version {publication.version} cannot be copied to {target}: {error.strerror or error}; free room "
                "there, or move it with engine.adapter_dir",
                code="version_unreadable",
            ) from error
        scratch.rename(target)
        copied = WeightsRef.of_folder(target, publication.sha256)
        verify(Publication(version=publication.version, weights=copied))
        return target

    def leave(self, folder: Path) -> None:
        """The folder goes with the next one that is left: a request that was just cancelled may still want it."""
        for gone in self._left:
            shutil.rmtree(gone, ignore_errors=True)
        self._left = [folder]
