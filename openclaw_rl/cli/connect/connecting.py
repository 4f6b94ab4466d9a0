"""`openclaw-rl connect CLIENT`: an agent that people already have asks the running server from now on, and learns.

Says what will change and asks; makes a key for the client; changes its settings and keeps a record of how they were;
then sees whether a first turn arrives. `--remove` undoes all of it. What each client is told is in
`clients.py`, how files are changed in `files.py`.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.text import Text

from openclaw_rl.cli.address import KEY_FILE, START_IT, ServerGone, read_address
from openclaw_rl.cli.client import GatewayClient, ServerRefused
from openclaw_rl.cli.connect import files
from openclaw_rl.cli.connect import openclaw as program
from openclaw_rl.cli.connect.check import FirstTurn, check_first_turn, run_client
from openclaw_rl.cli.connect.clients import (
    CLIENTS,
    HIDDEN_KEY,
    Client,
    Home,
    keys_in,
    masked,
    model_name,
    window_warning,
)
from openclaw_rl.cli.connect.files import Edit, Settings
from openclaw_rl.cli.connect.keys import close_key, make_key
from openclaw_rl.cli.connect.openclaw import Change, OpenClaw
from openclaw_rl.cli.connect.records import Connection, drop_connection, read_connection, write_connection
from openclaw_rl.cli.screen import make_console, print_json
from openclaw_rl.clients import Served, openclaw_provider
from openclaw_rl.config import Config
from openclaw_rl.errors import ConfigError, OpenClawError, StoreError
from openclaw_rl.gateway.access.auth import read_key_file
from openclaw_rl.types import LOCAL_USER, Json
from openclaw_rl.views.rows import open_rows


class NotConnected(OpenClawError):
    """There is nothing to remove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectPlan:
    """What connecting a client changes; nothing where its settings are only printed."""

    edits: Sequence[Edit] = ()
    changes: Sequence[Change] = ()


def find_client(name: str) -> Client:
    if name in CLIENTS:
        return CLIENTS[name]
    near = difflib.get_close_matches(name, CLIENTS, n=1)
    raise ConfigError(f"{name!r} is no client; {f'did you mean {near[0]}? ' if near else ''}There are: {_all_names()}")


def connect(
    config: Config,
    name: str,
    *,
    only_print: bool,
    try_client: bool,
    as_json: bool,
    confirm: Callable[[str], None],
) -> int:
    """Connect a client; the exit status: 1 if its first turn did not arrive as it should."""
    client, console = find_client(name), make_console("stderr")
    data_dir = config.store.data_dir
    shown = asyncio.run(_ask_server(config))
    warning = window_warning(client, shown.window)
    if warning is not None:
        console.print(Text(f"! {warning}", "yellow"), soft_wrap=True)
    old = read_connection(data_dir, client.name)
    openclaw = shutil.which("openclaw") if client.name == "openclaw" else None
    writes = not only_print and (client.files is not None or openclaw is not None)
    if client.name == "openclaw" and openclaw is None and not only_print:
        said = "openclaw is not on the PATH, so nothing was changed. Where it is, these commands connect it:"
        console.print(said, markup=False, soft_wrap=True)
    plan = _agreed_plan(client, shown, old, openclaw, confirm) if writes else ConnectPlan()
    served, key_id = asyncio.run(_with_key(config, client, shown, old))
    try:
        if writes:
            _write(config, client, plan, served, key_id, old, openclaw)
        else:
            settings = old or Connection(client=client.name, key_id=key_id, key=served.key)
            write_connection(data_dir, replace(settings, key_id=key_id, key=served.key))
    except BaseException:
        if old is None or old.key_id != key_id:
            _close_key(config, key_id)
        raise
    if not writes and not as_json:
        sys.stdout.write(_printed(client, served))  # to be copied, or read by a shell
        sys.stdout.flush()
    found = _check(config, client, served, try_client=try_client)
    if as_json:
        print_json(_report(client, served, key_id, plan, warning, found))
        return 0 if found.ok else 1
    if writes:
        console.print(Text(f"{client.name} is connected to {served.url}.", "bold"))
    mark = ("✓ ", "green") if found.ok else ("✗ ", "red")
    console.print(Text.assemble(mark, found.text), soft_wrap=True)
    console.print(f"`openclaw-rl connect {client.name} --remove` undoes it.", style="dim", markup=False)
    return 0 if found.ok else 1


def disconnect(config: Config, name: str, *, as_json: bool, confirm: Callable[[str], None]) -> None:
    """Undo what `connect` did: settings as they were, the key of no use. What others changed since stays."""
    client, console = find_client(name), make_console("stderr")
    data_dir = config.store.data_dir
    old = read_connection(data_dir, client.name)
    if old is None:
        raise NotConnected(f"{client.name} is not connected; `openclaw-rl connect {client.name}` does that")
    undone = [(edit, files.undo(edit, files.read_text(edit.path))) for edit in old.edits]
    openclaw = shutil.which("openclaw")
    for edit, back in undone:
        now = files.read_text(edit.path)
        if now != back.text:
            files.refuse_read_only(edit.path)
        for line in _diff(edit.path, now, back.text):
            console.print(line, soft_wrap=True)
    for change in reversed(old.changes):
        console.print(Text(masked(program.undo_text(change)), "dim"), soft_wrap=True)
    confirm(f"Disconnect {client.name}?")
    left = [words for _, back in undone for words in back.left]
    for edit, back in undone:
        files.write_text(edit.path, back.text, edit.mode or files.mode_of(edit.path) or 0o600)
    if old.changes and openclaw is None:
        left.append("OpenClaw's settings, as openclaw is not on the PATH; the commands above undo them")
    elif openclaw is not None:
        with console.status(f"{client.name} is told …", spinner_style="dim"):
            left += OpenClaw(openclaw).remove(old.changes)
    _close_key(config, old.key_id)
    drop_connection(data_dir, client.name)
    if as_json:
        print_json({"client": client.name, "key_id": old.key_id, "left": [*left]})
        return
    console.print(Text(f"{client.name} is disconnected, and its key {old.key_id} opens nothing any more."))
    for words in left:
        console.print(Text(f"! left as it is: {words}", "yellow"), soft_wrap=True)


async def _ask_server(config: Config) -> Served:
    """What is served now; the key of the answer opens nothing."""
    address = read_address(config.store.data_dir)
    if address is None:
        raise ServerGone(f"no server is running on {config.store.data_dir}; {START_IT}")
    async with GatewayClient(address.url, read_key_file(config.store.data_dir / KEY_FILE)) as wire:
        reason = await wire.why_not_ready()
        if reason is not None:
            raise ServerGone(f"the server at {address.url} is not ready: {reason}")
        model, window = await wire.served()
    return Served(url=address.url, model=model_name(model), window=window, key=HIDDEN_KEY)


async def _with_key(config: Config, client: Client, served: Served, old: Connection | None) -> tuple[Served, str]:
    """The same with the client's key, and the key's id; a key that was made before and still opens is kept."""
    if old is not None:
        try:
            async with GatewayClient(served.url, old.key) as wire:
                await wire.models()
            return replace(served, key=old.key), old.key_id
        except ServerRefused as refusal:
            if refusal.status != 401:
                raise
    made = await make_key(config.store, LOCAL_USER, client.name)
    return replace(served, key=made["key"]), made["id"]


def _close_key(config: Config, key_id: str) -> None:
    """Somebody may have revoked it already, or erased the whole store."""
    try:
        keys = open_rows(config.store).keys()
    except StoreError:
        return
    if any(key.id == key_id and key.revoked_at is None for key in keys):
        asyncio.run(close_key(config.store, key_id))


def _plan(client: Client, served: Served, old: Connection | None, openclaw: str | None) -> ConnectPlan:
    if openclaw is not None:
        return ConnectPlan(changes=OpenClaw(openclaw).plan(served, old.changes if old else ()))
    assert client.files is not None
    home = Home(folder=Path.home(), env=os.environ)
    return ConnectPlan(edits=[_edit(client, settings, old) for settings in client.files(served, home)])


def _edit(client: Client, settings: Settings, old: Connection | None) -> Edit:
    """The change of one file, from what it is without an earlier connection. One of another data directory is not
    ours to undo, and could not be undone any more once ours lay above it."""
    path = files.real_path(settings.path)
    files.refuse_read_only(path)
    text, mode = files.read_text(path), files.mode_of(path)
    for earlier in old.edits if old is not None else ():
        if earlier.path == path:
            text, mode = files.undo(earlier, text).text, earlier.mode
    if keys_in(text or "") - ({old.key} if old is not None else set()):
        raise ConfigError(
            f"{path} is left alone: it holds the key of another connection; undo that one first, with `openclaw-rl "
            f"connect {client.name} --remove --data-dir DIR` and the data directory that it was made with, or take "
            "the key out by hand"
        )
    return files.plan_edit(settings, client.name, text, mode)


def _agreed_plan(
    client: Client, shown: Served, old: Connection | None, openclaw: str | None, confirm: Callable[[str], None]
) -> ConnectPlan:
    """What will change, after somebody saw it and agreed."""
    console = make_console("stderr")
    with console.status(f"what {client.name} has now …", spinner_style="dim"):
        plan = _plan(client, shown, old, openclaw)
    for line in _preview(plan):
        console.print(line, soft_wrap=True)
    confirm(f"Connect {client.name}?")
    return plan


def _write(
    config: Config,
    client: Client,
    plan: ConnectPlan,
    served: Served,
    key_id: str,
    old: Connection | None,
    openclaw: str | None,
) -> None:
    """Makes the changes with the real key in them; if one fails, everything is as it was. The record comes first."""
    data_dir = config.store.data_dir
    try:
        if plan.changes:  # files are read again; OpenClaw, which takes seconds, is not asked again
            provider, *others = plan.changes
            plan = ConnectPlan(changes=[replace(provider, value=openclaw_provider(served)), *others])
        else:
            plan = _plan(client, served, old, None)
        # A file that the client does not read any more, as its folder was moved, is still to be undone.
        paths = {edit.path for edit in plan.edits}
        moved = [edit for edit in old.edits if edit.path not in paths] if old is not None else []
        edits = [*plan.edits, *moved]
        write_connection(
            data_dir,
            Connection(client=client.name, key_id=key_id, key=served.key, edits=edits, changes=plan.changes),
        )
        with make_console("stderr").status(f"{client.name} is told …", spinner_style="dim"):
            for edit in plan.edits:
                files.write_text(edit.path, edit.after, 0o600)
            if openclaw is not None:
                OpenClaw(openclaw).apply(plan.changes, old.changes if old else ())
    except BaseException:
        for edit in plan.edits:
            if files.read_text(edit.path) == edit.after:
                files.write_text(edit.path, edit.before, edit.mode or 0o600)
        if old is None:
            drop_connection(data_dir, client.name)
        else:
            write_connection(data_dir, old)
        raise


def _check(config: Config, client: Client, served: Served, *, try_client: bool) -> FirstTurn:
    console = make_console("stderr")
    found = shutil.which(client.program) if client.program is not None else None
    if try_client and found is None:
        return FirstTurn(ok=False, text=f"{client.program or client.name} is not on the PATH, so it cannot be tried")
    try:
        with console.status("a first turn …", spinner_style="dim"):
            if try_client and found is not None:
                return run_client(config.store, client, found)
            return asyncio.run(check_first_turn(config.store, client, served))
    except StoreError as error:
        return FirstTurn(ok=False, text=f"what became of a first turn cannot be read: {error}")


def _preview(plan: ConnectPlan) -> Iterator[Text]:
    """What will change, as a person reads it, without the key."""
    for edit in plan.edits:
        yield from _diff(edit.path, files.read_text(edit.path), edit.after)
    for change in plan.changes:
        if change.was_set:
            yield Text(f"# {change.path} is {masked(json.dumps(change.before))} now", "dim")
        yield Text(masked(program.set_text(change.path, change.value)), "green")


def _diff(path: Path, now: str | None, then: str | None) -> Iterator[Text]:
    before, after = (masked(text or "") for text in (now, then))
    yield Text(f"{path}{' (new)' if now is None else ' (goes)' if then is None else ''}", "bold")
    if then is None:
        return
    styles = {"+": "green", "-": "red"}
    for line in list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1))[2:]:
        if not line.startswith("@@"):
            yield Text(line, styles.get(line[0], "dim"))


def _printed(client: Client, served: Served) -> str:
    """The client's settings for somebody who puts them where they belong."""
    if client.name == "openclaw":
        return program.as_commands(program.wanted(served))
    if client.lines is not None:
        return client.lines(served)
    assert client.files is not None
    return "\n".join(map(_fragment, client.files(served, Home(folder=Path.home(), env=os.environ))))


def _fragment(settings: Settings) -> str:
    if settings.form != "json":
        lines = [*settings.head, *([""] if settings.head else []), *settings.tail]
    else:
        tree: dict[str, Json] = {}
        for path, value in settings.values.items():
            node = tree
            for name in path[:-1]:
                inner = node.setdefault(name, {})
                assert isinstance(inner, dict)
                node = inner
            node[path[-1]] = value
        lines = [json.dumps(tree, indent=2, ensure_ascii=False)]
    return "\n".join([f"# {shlex.quote(str(settings.path))}", *lines, ""])


def _report(
    client: Client, served: Served, key_id: str, plan: ConnectPlan, warning: str | None, found: FirstTurn
) -> dict[str, Json]:
    return {
        "client": client.name,
        "url": served.url,
        "model": served.model,
        "context_window": served.window,
        "key_id": key_id,
        "files": [str(edit.path) for edit in plan.edits],
        "settings": [change.path for change in plan.changes],
        "lines": None if plan.edits or plan.changes else _printed(client, served),
        "warning": warning,
        "first_turn": asdict(found),
    }


def _all_names() -> str:
    return ", ".join(CLIENTS)
