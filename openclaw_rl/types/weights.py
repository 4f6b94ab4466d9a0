"""Where weights are: a reference that the trainer that made them can follow, and nobody else has to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote, unquote, urlsplit

from openclaw_rl.types.checks import require


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsRef:
    """Weights by name. `uri` is `file:/folder` for a local folder, or a scheme of the trainer that owns them.

    `sha256` is what the published bytes hash to; empty where the owner cannot say.
    """

    uri: str
    sha256: str

    def __post_init__(self) -> None:
        require(bool(urlsplit(self.uri).scheme), f"{self.uri!r} is no URI: write file:/folder for a local folder")

    @classmethod
    def of_folder(cls, folder: Path, sha256: str) -> Self:
        """A local folder."""
        return cls(uri=f"file:{quote(str(folder))}", sha256=sha256)

    @property
    def folder(self) -> Path | None:
        """The local folder that it names; None for weights that are elsewhere."""
        parts = urlsplit(self.uri)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None
