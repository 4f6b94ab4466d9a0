"""The options that every command has, and how they become settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from openclaw_rl.config import LoadedConfig

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Where everything is kept.", show_default="~/.openclaw-rl"),
]
ConfigFiles = Annotated[
    list[Path] | None, typer.Option("--config", metavar="FILE", help="YAML or JSON settings; repeatable.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="SECTION.KEY=VALUE", help="Any setting; `openclaw-rl config` lists them."),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


def load(
    data_dir: Path | None,
    files: Sequence[Path] | None,
    overrides: Sequence[str] | None,
    flags: Mapping[str, object] | None = None,
) -> LoadedConfig:
    """The settings with everything from the command line in them; a `section.key=value` is stronger than a flag."""
    from openclaw_rl.config import SHORTHANDS, load_config  # imported here: 0.2 s that `--help` does not need

    given = {**(flags or {}), "--data-dir": data_dir}
    short = [f"{SHORTHANDS[flag]}={value}" for flag, value in given.items() if value is not None]
    return load_config(list(files or ()), overrides=[*short, *(overrides or ())])
