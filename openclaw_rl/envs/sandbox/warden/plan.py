"""What a box is to be, on the wire between whoever wants it and the warden.

It is the one thing that both sides import; the paths in it are already checked.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Literal, TypedDict


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxPlan:
    """`trees`, `read_only`: (place in the box, path here). `door`: whether somebody listens at the gateway's port."""

    layers: tuple[str, ...] = ()
    trees: tuple[tuple[str, str], ...] = ()
    read_only: tuple[tuple[str, str], ...] = ()
    workdir: str = "/work"
    memory_mb: int = 2048
    processes: int = 256
    disk_mb: int = 1024
    network: Literal["none", "full"] = "none"
    door: int = 0

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, object]) -> BoxPlan:
        known = {field.name: raw[field.name] for field in fields(cls)}
        for name in ("trees", "read_only"):
            pairs = raw[name]
            assert isinstance(pairs, list)
            known[name] = tuple((place, path) for place, path in pairs)
        layers = raw["layers"]
        assert isinstance(layers, list)
        return cls(**{**known, "layers": tuple(layers)})  # type: ignore[arg-type]


class CommandOrder(TypedDict):
    """What process 1 is told to start; its standard input and output come along as descriptors."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
