"""`openclaw-rl keys`: who may call the gateway. Looking reads the store; changing asks whoever is its writer.

While a server runs it is the only writer, so changes go through its admin socket and take effect at once. When none
does, this process takes the writer's lock for a moment.
"""

from __future__ import annotations

import asyncio
import time
from urllib.parse import quote

from rich.table import Table
from rich.text import Text

from openclaw_rl.cli.address import KEY_FILE
from openclaw_rl.cli.admin import ask_server, check_user_name
from openclaw_rl.cli.screen import ago, make_console, one_line, plain_table, print_json
from openclaw_rl.config import StoreConfig
from openclaw_rl.errors import NotFound
from openclaw_rl.gateway.access.auth import key_digest, new_key, read_key_file
from openclaw_rl.types import ApiKey
from openclaw_rl.views.rows import open_rows
from openclaw_rl.views.sessions import KeyView
from openclaw_rl.wiring.foundation import open_store


def show_keys(store: StoreConfig, *, as_json: bool) -> None:
    """Print all keys, revoked ones too; the secrets themselves are nowhere to be had."""
    keys = open_rows(store).keys()
    if as_json:
        print_json([KeyView(key=key).to_json() for key in keys])
    else:
        make_console().print(keys_table(keys, now=time.time()))


def add_key(store: StoreConfig, user: str, label: str, *, as_json: bool) -> None:
    """Make a key for a user and print it: the one time that it can be seen."""
    check_user_name(user)
    made = asyncio.run(make_key(store, user, label))
    if as_json:
        print_json({**made, "user": user, "label": label})
        return
    console = make_console()
    console.print(Text.assemble((made["key"], "bold")), soft_wrap=True)
    make_console("stderr").print(f"Key {made['id']} of {user}. It is shown only now; keep it safe.", style="dim")


def revoke_key(store: StoreConfig, key_id: str) -> None:
    """Make a key open nothing any more."""
    known = {key.id: key for key in open_rows(store).keys()}  # noqa: SIM118 (a query, not a dict's keys)
    if key_id not in known:
        raise NotFound(f"there is no key {key_id!r}; `openclaw-rl keys list` shows all")
    console = make_console("stderr")
    if known[key_id].revoked_at is not None:
        console.print(f"Key {key_id} was revoked before.", style="dim")
        return
    asyncio.run(close_key(store, key_id))
    console.print(f"Key {key_id} of {known[key_id].user} is revoked.")
    local = read_key_file(store.data_dir / KEY_FILE)
    if local is not None and key_digest(local) == known[key_id].digest:
        console.print(f"It was the one in {store.data_dir / KEY_FILE}; the next `openclaw-rl up` makes a new one.")


def keys_table(keys: list[ApiKey], *, now: float) -> Table:
    """One row each; revoked ones are dim."""
    table = plain_table("key", "user", "label", "made", "state")
    for key in keys:
        state = "valid" if key.revoked_at is None else f"revoked {ago(now - key.revoked_at)}"
        words = (key.id, key.user, key.label, ago(now - key.created_at), state)
        table.add_row(*(Text(one_line(word, 60)) for word in words), style="dim" if key.revoked_at else "")
    return table


async def make_key(store: StoreConfig, user: str, label: str) -> dict[str, str]:
    """A new key, by whoever is the store's writer: its `id`, and the `key` itself."""
    made = await ask_server(store, "POST", "/keys", {"user": user, "label": label})
    if made is not None:
        return {"id": made["id"], "key": made["key"]}
    key, secret = new_key(user, time.time(), label=label)
    async with await open_store(store) as writer:
        await writer.put_key(key)
    return {"id": key.id, "key": secret}


async def close_key(store: StoreConfig, key_id: str) -> None:
    """Makes a key open nothing any more, by whoever is the store's writer."""
    if await ask_server(store, "DELETE", f"/keys/{quote(key_id, safe='')}") is None:
        async with await open_store(store) as writer:
            await writer.revoke_key(key_id, time.time())
