"""`openclaw-rl keys`: who may call the gateway. Looking reads the store; changing asks whoever is its writer.

While a server runs it is the only writer, so changes go through its admin socket and take effect at once. When none
does, this process takes the writer's lock for a moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from urllib.parse import quote

from rich.table import Table
from rich.text import Text

from openclaw_rl.cli.address import KEY_FILE
from openclaw_rl.cli.admin import ask_server, check_user_name
from openclaw_rl.cli.screen import ago, make_console, one_line, plain_table, print_json
from openclaw_rl.config import StoreConfig
from openclaw_rl.errors import ConfigError, NotFound
from openclaw_rl.gateway.access.auth import key_digest, new_key, read_key_file
from openclaw_rl.types import ApiKey, KeyTerms
from openclaw_rl.views.rows import open_rows
from openclaw_rl.views.sessions import KeyView
from openclaw_rl.wiring.foundation import open_store

_NO_TERMS: Mapping[str, float | None] = MappingProxyType({})


def show_keys(store: StoreConfig, *, as_json: bool) -> None:
    """Print all keys, revoked ones too; the secrets themselves are nowhere to be had."""
    keys = open_rows(store).keys()
    if as_json:
        print_json([KeyView(key=key).to_json() for key in keys])
    else:
        make_console().print(keys_table(keys, now=time.time()))


def add_key(
    store: StoreConfig, user: str, label: str, *, as_json: bool, terms: Mapping[str, float | None] = _NO_TERMS
) -> None:
    """Make a key for a user and print it: the one time that it can be seen."""
    check_user_name(user)
    made = asyncio.run(make_key(store, user, label, changed(KeyTerms(), terms)))
    if as_json:
        print_json({**made, "user": user, "label": label})
        return
    console = make_console()
    console.print(Text.assemble((made["key"], "bold")), soft_wrap=True)
    make_console("stderr").print(f"Key {made['id']} of {user}. It is shown only now; keep it safe.", style="dim")


def limit_key(store: StoreConfig, key_id: str, terms: Mapping[str, float | None]) -> None:
    """Give a key other terms; 0 is what the settings say."""
    key = _known(store)(key_id)
    new = changed(key.terms, terms)
    asyncio.run(set_terms(store, key_id, new))
    make_console("stderr").print(f"Key {key_id} of {key.user}: {terms_text(new)}.")


def changed(terms: KeyTerms, wishes: Mapping[str, float | None]) -> KeyTerms:
    """The terms with what is wished: None leaves one as it is, and 0 takes it away."""
    wished = {name: value or None for name, value in wishes.items() if value is not None}
    try:
        return replace(terms, **wished)  # type: ignore[arg-type]
    except ValueError as error:
        raise ConfigError(str(error)) from None


def terms_text(terms: KeyTerms) -> str:
    """In words; empty columns of a table are what the settings say."""
    words = [
        f"{value:g} {name}"
        for value, name in (
            (terms.requests_per_minute, "requests/min"),
            (terms.tokens_per_minute, "tokens/min"),
            (terms.training_share, "of training"),
            (terms.weight, "weight"),
        )
        if value is not None
    ]
    return ", ".join(words) or "as the settings say"


def _known(store: StoreConfig) -> Callable[[str], ApiKey]:
    known = {key.id: key for key in open_rows(store).keys()}  # noqa: SIM118 (a query, not a dict's keys)

    def find(key_id: str) -> ApiKey:
        if key_id not in known:
            raise NotFound(f"there is no key {key_id!r}; `openclaw-rl keys list` shows all")
        return known[key_id]

    return find


def revoke_key(store: StoreConfig, key_id: str) -> None:
    """Make a key open nothing any more."""
    known = {key_id: _known(store)(key_id)}
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
    table = plain_table("key", "user", "label", "made", "terms", "state")
    for key in keys:
        state = "valid" if key.revoked_at is None else f"revoked {ago(now - key.revoked_at)}"
        terms = "" if key.terms == KeyTerms() else terms_text(key.terms)
        words = (key.id, key.user, key.label, ago(now - key.created_at), terms, state)
        table.add_row(*(Text(one_line(word, 60)) for word in words), style="dim" if key.revoked_at else "")
    return table


async def make_key(store: StoreConfig, user: str, label: str, terms: KeyTerms = KeyTerms()) -> dict[str, str]:
    """A new key, by whoever is the store's writer: its `id`, and the `key` itself."""
    made = await ask_server(store, "POST", "/keys", {"user": user, "label": label, "terms": terms.to_json()})
    if made is not None:
        return {"id": made["id"], "key": made["key"]}
    key, secret = new_key(user, time.time(), label=label, terms=terms)
    async with await open_store(store) as writer:
        await writer.put_key(key)
    return {"id": key.id, "key": secret}


async def set_terms(store: StoreConfig, key_id: str, terms: KeyTerms) -> None:
    """Gives a key these terms, by whoever is the store's writer."""
    if await ask_server(store, "POST", "/keys/terms", {"key": key_id, "terms": terms.to_json()}) is None:
        async with await open_store(store) as writer:
            await writer.set_terms(key_id, terms)


async def close_key(store: StoreConfig, key_id: str) -> None:
    """Makes a key open nothing any more, by whoever is the store's writer."""
    if await ask_server(store, "DELETE", f"/keys/{quote(key_id, safe='')}") is None:
        async with await open_store(store) as writer:
            await writer.revoke_key(key_id, time.time())
