"""`openclaw-rl`: all commands. `up` and `serve` are here; the others stand in the `commands.py` of their rooms.

Everything heavy is imported inside the command that needs it, so `--help` is quick. Exit status: 0 done, 1 failed,
2 used wrongly; errors are one line on standard error and never a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from io import TextIOWrapper
from typing import Annotated

import typer

from openclaw_rl.cli.chat.commands import room as chat_room
from openclaw_rl.cli.connect.commands import room as connect_room
from openclaw_rl.cli.demo.commands import room as demo_room
from openclaw_rl.cli.doctor.commands import room as doctor_room
from openclaw_rl.cli.env.commands import room as env_room
from openclaw_rl.cli.inspect.commands import room as inspect_room
from openclaw_rl.cli.learn.commands import room as learn_room
from openclaw_rl.cli.options import Loaded, command
from openclaw_rl.cli.screen import complain
from openclaw_rl.cli.worker.commands import room as worker_room
from openclaw_rl.errors import ConfigError, OpenClawError

app = typer.Typer(
    help="An agent that gets better because people talk to it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_SERVING = ("--host", "--port", "--model", "--engine", "--dry-run")


def _show_version(asked: bool) -> None:
    if asked:
        print(f"openclaw-rl {metadata.version('openclaw-rl')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@command(app, flags=(*_SERVING, "--method", "--backend"))
def up(loaded: Loaded) -> None:
    """Start everything: gateway, engine, and what learns from reactions.

    What people say next is judged and becomes training samples, in the background. The first start fetches the model.
    Ctrl-C lets running answers finish and leaves nothing running.
    """
    from openclaw_rl.cli.startup import run_server

    run_server(loaded, learn=True)


@command(app, flags=_SERVING)
def serve(loaded: Loaded) -> None:
    """Serve without learning: gateway and engine only.

    Every turn and reaction is recorded as with `up`, and nothing is judged; the next `up` takes it up.
    """
    from openclaw_rl.cli.startup import run_server

    run_server(loaded, learn=False)


for _room in (chat_room, connect_room, inspect_room, learn_room, demo_room, env_room, worker_room, doctor_room):
    app.add_typer(_room)


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point; `arguments` None means the process's own."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no ✓ shows ? instead of a traceback
    failures: list[BaseException] = []
    was_interrupted = False
    try:
        app(args=arguments, prog_name="openclaw-rl")
    except* OpenClawError as group:  # a failure in one of the pipeline's loops arrives in a group
        failures += _leaves(group)
    except* KeyboardInterrupt:  # before typer is at work, which has its own way to end
        was_interrupted = True
    if was_interrupted:
        sys.exit(130)
    for failure in failures:
        complain(str(failure))
    if failures:
        sys.exit(2 if any(isinstance(failure, ConfigError) for failure in failures) else 1)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]
