"""`openclaw-rl doctor` and `config`, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openclaw_rl.cli.options import AsJson, Loaded, arg, command

room = typer.Typer()
store = typer.Typer(help="Move a store between SQLite and PostgreSQL.", no_args_is_help=True)
room.add_typer(store, name="store")


@command(room)
def doctor(
    loaded: Loaded,
    deep: Annotated[bool, typer.Option("--deep", help="Compare every row and version with its digest.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine, and say what to do.

    CPU, GPU, memory, disk, port, file modes, model, a running server. The exit status is 1 if something is broken.
    """
    from openclaw_rl.cli.doctor.examine import run_doctor

    raise typer.Exit(run_doctor(loaded.config, deep=deep, as_json=as_json))


@command(room)
def backup(loaded: Loaded, target: Annotated[Path, arg("TARGET", "A folder that is not there yet.")]) -> None:
    """Copy everything that must survive to a folder, and read it again.

    A running server goes on meanwhile. What is copied was true at one moment.
    """
    from openclaw_rl.cli.doctor.backup import make_backup

    make_backup(loaded.config.store, target)


@command(room)
def restore(loaded: Loaded, source: Annotated[Path, arg("SOURCE", "What `backup` made.")]) -> None:
    """Fill an empty data directory from a backup.

    Refused where conversations or versions are, and while a server runs.
    """
    from openclaw_rl.cli.doctor.backup import restore_backup

    restore_backup(loaded.config.store, source)


@command(store, "copy")
def copy(
    loaded: Loaded,
    source: Annotated[str, arg("FROM", "A data directory, or postgresql+psycopg://…")],
    target: Annotated[str, arg("TO", "The same, and empty.")],
    as_json: AsJson = False,
) -> None:
    """Copy a whole store to another database, and compare every row.

    Refused where rows are, and while a server writes the directory FROM. Versions and keys are files and stay.
    """
    from openclaw_rl.cli.doctor.copying import run_copy

    run_copy(source, target, as_json=as_json)


@command(room, "config")
def show_config(
    loaded: Loaded,
    keys: list[str],
    plan: Annotated[bool, typer.Option("--plan", help="Show which process would run on which GPU.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show every setting and where it came from.

    Defaults are weaker than files, files than the environment, and that than the command line.
    """
    from openclaw_rl.cli.doctor.settings import show_settings

    if plan:
        from openclaw_rl.cli.doctor.plan import show_plan
        from openclaw_rl.cli.doctor.probes import gpus_of_driver
        from openclaw_rl.config.plan import plan_launch

        show_plan(plan_launch(loaded.config, len(gpus_of_driver())), as_json=as_json)
        return
    show_settings(loaded, keys, as_json=as_json)
