"""`python -m openclaw_rl.model [--full-check] [SECTION.KEY=VALUE …]` puts the configured model in its place.

`make setup` calls it; `--full-check` reads every byte and makes the embedded model again if one is wrong.
"""

from __future__ import annotations

import sys

from rich.console import Console

from openclaw_rl.config import load_config
from openclaw_rl.errors import OpenClawError
from openclaw_rl.model.files import resolve_model

FULL_CHECK = "--full-check"


def main(arguments: list[str]) -> int:
    overrides = [argument for argument in arguments if argument != FULL_CHECK]
    console = Console(stderr=True, highlight=False)
    try:
        model = load_config(overrides=overrides).config.model
        files = resolve_model(model, console=console, full_check=FULL_CHECK in arguments)
    except OpenClawError as error:
        console.out(f"error: {error}", style="red")
        return 1
    except KeyboardInterrupt:
        return 130  # as a shell reports it; nothing half-made is left
    console.out(f"{files.name}: {files.architecture}, {files.weight_bytes / 1e6:.0f} MB in {files.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
