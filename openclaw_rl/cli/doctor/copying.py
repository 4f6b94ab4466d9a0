"""`openclaw-rl store copy`: what was copied and compared, table by table."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict

from rich.text import Text

from openclaw_rl.cli.screen import make_console, print_json
from openclaw_rl.store.copying import copy_store


def run_copy(source: str, target: str, *, as_json: bool) -> None:
    console = make_console("stderr")
    with console.status("copying …", spinner_style="dim") if console.is_terminal and not as_json else nullcontext():
        tables = copy_store(source, target)
    if as_json:
        print_json([asdict(one) for one in tables])
        return
    for one in tables:
        if one.num_rows:
            console.print(Text(f"{one.name:<12} {one.num_rows:>9} rows  {one.digest[:16]}"))
    console.print(Text(f"{sum(one.num_rows for one in tables)} rows are there as they were here: each was compared."))
    console.print("Versions and keys are files of the data directory: keep it.", style="dim", markup=False)
