"""`openclaw-rl`: the commands and their options. Wiring only; what a command does is in `pipeline.py` and `terminal/`.

Everything heavy is imported inside the command that needs it, so `--help` is quick. Exit status: 0 done, 1 failed,
2 used wrongly; errors are one line on standard error and never a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated

import typer

from openclaw_rl.errors import ConfigError, OpenClawError
from openclaw_rl.terminal.options import AsJson, ConfigFiles, DataDir, Overrides, load
from openclaw_rl.terminal.screen import complain

if TYPE_CHECKING:
    from openclaw_rl.config import LoadedConfig

app = typer.Typer(
    help="An agent that gets better because people talk to it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
keys_app = typer.Typer(
    help="Who may call the gateway: list, add and revoke API keys.", no_args_is_help=True, rich_markup_mode="markdown"
)
app.add_typer(keys_app, name="keys")

Host = Annotated[
    str | None, typer.Option("--host", metavar="HOST", help="Address to listen on.", show_default="127.0.0.1")
]
Port = Annotated[
    int | None,
    typer.Option("--port", metavar="PORT", help="Port to listen on; 0 takes any free one.", show_default="30000"),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="The embedded model's name, a Hugging Face folder, or a hub name."),
]
Engine = Annotated[
    str | None, typer.Option("--engine", metavar="NAME", help="Which engine samples: embedded, scripted, …")
]
Method = Annotated[str | None, typer.Option("--method", metavar="NAME", help="How it learns (training.method).")]
Backend = Annotated[str | None, typer.Option("--backend", metavar="NAME", help="Where it learns (training.backend).")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Answer with the scripted engine: everything but a model.")]
Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="Another server's address, http://HOST:PORT.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Its API key.", show_default="the one in DIR/key")
]
SessionName = Annotated[
    str, typer.Argument(metavar="SESSION", help="A session, the start of its name, or a turn such as s-5f1c.2.")
]


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


@app.command()
def up(
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    host: Host = None,
    port: Port = None,
    model: Model = None,
    engine: Engine = None,
    method: Method = None,
    backend: Backend = None,
    dry_run: DryRun = False,
    overrides: Overrides = None,
) -> None:
    """Start everything: gateway and engine, supervised.

    The first start fetches the model. Ctrl-C lets running answers finish and leaves nothing running. Judge, trainer and
    release join in a later release.
    """
    flags = {"--host": host, "--port": port, "--model": model, "--method": method, "--backend": backend}
    flags |= {"--engine": "scripted" if dry_run else engine}
    _serve(load(data_dir, config, overrides, flags))


@app.command()
def serve(
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    host: Host = None,
    port: Port = None,
    model: Model = None,
    engine: Engine = None,
    dry_run: DryRun = False,
    overrides: Overrides = None,
) -> None:
    """Serve without learning: gateway and engine only.

    Today the same as `up`, which also learns in a later release.
    """
    flags = {"--host": host, "--port": port, "--model": model, "--engine": "scripted" if dry_run else engine}
    _serve(load(data_dir, config, overrides, flags))


@app.command()
def chat(
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Chat with the running model in the terminal.

    `/new` starts over, `/good` and `/bad TEXT` say what the last answer was like, `/help` lists the rest. Through a
    pipe every line is a message, and standard output gets the answers alone.
    """
    settings = load(data_dir, config, overrides).config
    from openclaw_rl.terminal.address import find_server
    from openclaw_rl.terminal.chat import run_chat

    found, secret = find_server(settings, url=url, key=key)
    raise typer.Exit(run_chat(found, secret, data_dir=settings.store.data_dir))


@app.command()
def sessions(
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Only this user's.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the N seen last.", metavar="N")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """List the conversations that are stored, the one seen last first."""
    store = load(data_dir, config, overrides).config.store
    from openclaw_rl.terminal.listing import show_sessions

    show_sessions(store.data_dir, store.url, user=user, limit=limit, as_json=as_json)


@app.command()
def inspect(
    session: SessionName,
    turn: Annotated[int | None, typer.Option("--turn", min=0, metavar="N", help="Only turn N, uncut.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Show the turns of a session.

    What was asked, answered and said afterwards, with token counts and versions; with `--json` also every token id and
    log-prob, exactly as sampled.
    """
    store = load(data_dir, config, overrides).config.store
    from openclaw_rl.terminal.inspection import show_session

    show_session(store.data_dir, store.url, session, index=turn, as_json=as_json)


@app.command()
def doctor(
    as_json: AsJson = False, data_dir: DataDir = None, config: ConfigFiles = None, overrides: Overrides = None
) -> None:
    """Check this machine, and say what to do.

    CPU, GPU, memory, disk, port, file modes, model, a running server. The exit status is 1 if something is broken.
    """
    settings = load(data_dir, config, overrides).config
    from openclaw_rl.terminal.doctor import run_doctor

    raise typer.Exit(run_doctor(settings, as_json=as_json))


@app.command("config")
def show_config(
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY|SECTION.KEY=VALUE", help="Only these settings or sections; or set some."),
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
) -> None:
    """Show every setting and where it came from.

    Defaults are weaker than files, files than the environment, and that than the command line.
    """
    given = keys or []
    loaded = load(data_dir, config, [key for key in given if "=" in key])
    from openclaw_rl.terminal.settings import show_settings

    show_settings(loaded, [key for key in given if "=" not in key], as_json=as_json)


@keys_app.command("list")
def list_keys(
    as_json: AsJson = False, data_dir: DataDir = None, config: ConfigFiles = None, overrides: Overrides = None
) -> None:
    """List all keys, revoked ones too; only their digests are stored."""
    store = load(data_dir, config, overrides).config.store
    from openclaw_rl.terminal.keys import show_keys

    show_keys(store, as_json=as_json)


@keys_app.command("add")
def add_key(
    user: Annotated[str, typer.Argument(metavar="USER", help="Whose key it is: A-Z a-z 0-9 _ . -")],
    label: Annotated[str, typer.Option("--label", metavar="TEXT", help="What it is for.")] = "",
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Make a key for a user and print it, this once. A running server knows it at once."""
    store = load(data_dir, config, overrides).config.store
    from openclaw_rl.terminal import keys

    keys.add_key(store, user, label, as_json=as_json)


@keys_app.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `openclaw-rl keys list` shows it.")],
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Make a key open nothing any more. A running server obeys at once."""
    store = load(data_dir, config, overrides).config.store
    from openclaw_rl.terminal import keys

    keys.revoke_key(store, key_id)


def _serve(loaded: LoadedConfig) -> None:
    import uvloop

    from openclaw_rl import pipeline
    from openclaw_rl.terminal.screen import make_console
    from openclaw_rl.terminal.startup import print_started, print_starting, print_stopping

    console, settings = make_console(), loaded.config
    # Other commands find a directory by themselves if they see the same environment.
    is_found = loaded.sources["store.data_dir"].startswith(("default", "env"))

    def started(now: pipeline.Started) -> None:
        key = now.key if settings.gateway.require_key else None
        print_started(console, url=now.url, key=key, model=now.model, data_dir=now.data_dir, is_found=is_found)

    print_starting(console, model=settings.model.name, engine=settings.engine.type)
    uvloop.run(pipeline.run(settings, on_started=started, on_stopping=lambda: print_stopping(console)))


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point; `arguments` None means the process's own."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no ✓ shows ? instead of a traceback
    failures: list[BaseException] = []
    try:
        app(args=arguments, prog_name="openclaw-rl")
    except* OpenClawError as group:  # a failure in one of the pipeline's loops arrives in a group
        failures += _leaves(group)
    for failure in failures:
        complain(str(failure))
    if failures:
        sys.exit(2 if any(isinstance(failure, ConfigError) for failure in failures) else 1)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]
