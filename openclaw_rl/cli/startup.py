"""`openclaw-rl up` and `serve`: the pipeline, and what it says: that it starts, how to talk to the model, each step."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import typer
import uvloop
from rich.text import Text

from openclaw_rl import pipeline
from openclaw_rl.cli.address import KEY_FILE
from openclaw_rl.cli.screen import make_console
from openclaw_rl.config import Config, LoadedConfig
from openclaw_rl.wiring.cloud import desk_of

_BODY = '{"messages": [{"role": "user", "content": "Hello!"}]}'


def run_server(loaded: LoadedConfig, *, learn: bool) -> None:
    """Serves until Ctrl-C, and says how it goes."""
    console, settings = make_console(), loaded.config
    # Other commands find a directory by themselves if they see the same environment.
    is_found = loaded.sources["store.data_dir"].startswith(("default", "env"))

    def say(text: Text) -> None:
        console.print(text, soft_wrap=True)

    def started(now: pipeline.Started) -> None:
        key = now.key if settings.gateway.require_key else None
        told = started_text(
            url=now.url, key=key, model=now.model, data_dir=now.data_dir, is_found=is_found, page=now.page
        )
        say(told)

    _agree(settings, say)
    say(Text.assemble(("Starting ", "dim"), settings.model.name, (f" on the {settings.engine.type} engine …", "dim")))
    run = pipeline.run(
        settings,
        learn=learn,
        on_started=started,
        on_stopping=lambda: say(Text("\nRunning answers may finish; Ctrl-C again stops now.", "dim")),
        say=lambda line: say(Text(line, "dim")),
        loaded=loaded,
    )
    uvloop.run(run)


def _agree(settings: Config, say: Callable[[Text], None]) -> None:
    """Shows what leaves the machine before any of it does, and asks, once for each service."""
    desk = desk_of(settings)
    if desk is None or desk.has_consent or not sys.stdin.isatty():
        return  # without a terminal the start is refused, with the same words
    say(Text(desk.leaves()))
    typer.confirm("Go on?", abort=True, err=True)
    desk.agree()


def started_text(
    *, url: str, key: str | None, model: str, data_dir: Path, is_found: bool, page: str | None = None
) -> Text:
    """The block that a person reads and copies from. `key` None: this server asks for none; `is_found`: commands find
    this data directory by themselves. `page` opens the page, once."""
    key_file = data_dir / KEY_FILE
    chat = f"{our_command()} chat" + ("" if is_found else f" --data-dir {shlex.quote(str(data_dir))}")
    text = Text.assemble("\n", ("OpenClaw-RL is ready", "bold green"), f"  {model}\n")
    if page is not None:
        text.append_text(_row("Page", page))
    text.append_text(_row("Base URL", f"{url}/v1"))
    if key is not None:
        text.append_text(_row("Key", key))
        text.append(f"  (also in {key_file})", "dim")
    text.append_text(_row("Chat", chat))
    text.append(f"\n\n{curl_command(url, key_file if key is not None else None)}\n\n")
    return text.append("Ctrl-C stops everything.", "dim")


def our_command() -> str:
    """How to call us again from the same folder: `make run` starts a command that is not on the PATH."""
    if shutil.which("openclaw-rl") is not None:
        return "openclaw-rl"
    started_as = Path(sys.argv[0])
    return shlex.quote(os.path.relpath(started_as)) if started_as.name == "openclaw-rl" else "openclaw-rl"


def curl_command(url: str, key_file: Path | None) -> str:
    """A request that can be pasted into a shell; the key stays in its file and out of the shell's history."""
    parts = [f"curl {shlex.quote(url)}/v1/chat/completions"]
    if key_file is not None:
        parts.append(f'-H "Authorization: Bearer $(cat {shlex.quote(str(key_file))})"')
    parts += ["-H 'Content-Type: application/json'", f"-d '{_BODY}'"]
    return " \\\n  ".join(parts)


def _row(label: str, value: str) -> Text:
    return Text.assemble("\n", (f"{label:<10}", "dim"), (value, "bold"))
