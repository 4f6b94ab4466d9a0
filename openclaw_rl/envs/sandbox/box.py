"""What tracks ask of a sandbox. They do not know how a box is made.

BoxSpec(trees={"/app": Path("tasks/count/files")}, workdir="/app", limits=BoxLimits(memory_mb=512))

A box has a root of its own: the programs of this machine, or the layers of an image; nothing of the user's home, of our
data and of other boxes. What it writes is thrown away when it is closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from openclaw_rl.types import Ran

GATEWAY_IN_THE_BOX = "http://127.0.0.1:8780"
"""Where programs in a box reach the gateway of their spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxLimits:
    """What a box may use. `disk_mb`: all that it writes. `output_bytes`: what is kept of one command's output."""

    memory_mb: int = 2048
    processes: int = 256
    disk_mb: int = 1024
    output_bytes: int = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxSpec:
    """`layers`: folders of an image, the lowest first; none: the programs of this machine.

    `image`: the name of an image instead of layers; Docker's alone.
    `trees` and `read_only`: a path in the box and the folder here that it shows; the box writes to a copy of a tree.
    `gateway`: the URL here that the box reaches at `GATEWAY_IN_THE_BOX`, whatever its network is.
    """

    layers: tuple[Path, ...] = ()
    image: str = ""
    trees: Mapping[str, Path] = field(default_factory=dict)
    read_only: Mapping[str, Path] = field(default_factory=dict)
    workdir: str = "/work"
    env: Mapping[str, str] = field(default_factory=dict)
    limits: BoxLimits = BoxLimits()
    network: Literal["none", "full"] = "none"
    gateway: str = ""


class Box(Protocol):
    """A box that runs. `EnvError` where the box itself failed; whatever a command does is in its `Ran`.

    Paths are absolute paths in the box, and are never followed out of it.
    """

    async def shell(self, command: str, *, timeout_s: float) -> Ran:
        """In the one shell that lasts as long as the box: directory and variables stay. A command that is stopped at
        its time limit takes the shell along; the next one gets a new shell."""
        ...

    async def run(
        self, command: str, *, timeout_s: float, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> Ran:
        """In a shell of its own, in the spec's workdir. What it leaves in the background ends with the box."""
        ...

    async def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """A regular file's content; None where there is none. `TaskError` for one that is larger."""
        ...

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None: ...

    async def copy_out(self, path: str, to: Path, *, max_bytes: int) -> None:
        """A file or folder as it is now. Devices, sockets and links that lead out of it are left behind."""
        ...

    async def keep_layer(self, to: Path) -> None:
        """What was written so far, as a layer that another spec may name. How images are built."""
        ...

    async def close(self) -> None:
        """No process and no file of it is left. May be called twice."""
        ...


class Sandbox(Protocol):
    """Makes boxes."""

    @property
    def name(self) -> str: ...

    def lacks(self) -> str:
        """What this machine lacks for it, with the remedy; empty where boxes can be made."""
        ...

    async def start(self, spec: BoxSpec) -> Box: ...
