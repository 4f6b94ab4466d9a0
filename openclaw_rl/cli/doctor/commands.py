"""`openclaw-rl doctor` and `config`, and their options."""

from __future__ import annotations

import typer

from openclaw_rl.cli.options import AsJson, Loaded, command

room = typer.Typer()


@command(room)
def doctor(loaded: Loaded, as_json: AsJson = False) -> None:
    """Check this machine, and say what to do.

    CPU, GPU, memory, disk, port, file modes, model, a running server. The exit status is 1 if something is broken.
    """
    from openclaw_rl.cli.doctor.examine import run_doctor

    raise typer.Exit(run_doctor(loaded.config, as_json=as_json))


@command(room, "config")
def show_config(loaded: Loaded, keys: list[str], as_json: AsJson = False) -> None:
    """Show every setting and where it came from.

    Defaults are weaker than files, files than the environment, and that than the command line.
    """
    from openclaw_rl.cli.doctor.settings import show_settings

    show_settings(loaded, keys, as_json=as_json)
