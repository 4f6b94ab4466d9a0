"""`openclaw-rl page`: a link that opens the page of the running server."""

from __future__ import annotations

import asyncio
import sys

from openclaw_rl.cli.admin import NoServer, ask_server
from openclaw_rl.config import StoreConfig


def show_link(store: StoreConfig) -> None:
    """Print it alone, so that `open $(openclaw-rl page)` works."""
    answer = asyncio.run(ask_server(store, "POST", "/page", {}))
    if answer is None:
        raise NoServer("no server runs on this directory; start it with `openclaw-rl up`, which prints a link too")
    sys.stdout.write(f"{answer['url']}\n")
