"""`openclaw-rl chat`, and its options."""

from __future__ import annotations

from typing import Annotated

import typer

from openclaw_rl.cli.options import Key, Loaded, command, opt

room = typer.Typer()


@command(room)
def chat(
    loaded: Loaded,
    url: Annotated[str | None, opt("--url URL", "Another server's address, http://HOST:PORT.")] = None,
    key: Key = None,
) -> None:
    """Chat with the running model in the terminal.

    `/new` starts over, `/good` and `/bad TEXT` say what the last answer was like, `/help` lists the rest. Through a
    pipe every line is a message, and standard output gets the answers alone.
    """
    from openclaw_rl.cli.address import find_server
    from openclaw_rl.cli.chat.loop import run_chat
    from openclaw_rl.cli.chat.recall import said_before

    found, secret = find_server(loaded.config, url=url, key=key)
    raise typer.Exit(run_chat(found, secret, said=lambda: said_before(loaded.config.store)))
