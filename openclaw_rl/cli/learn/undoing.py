"""`openclaw-rl undo`, `forget`, `export` and `import`: what was learned, taken back, carried away, brought in.

Through the running server where there is one; else under the writer's lock, and the next start loads what is live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from openclaw_rl.cli.admin import ask_server, check_line_name
from openclaw_rl.cli.screen import make_console, print_json
from openclaw_rl.config import Config
from openclaw_rl.errors import ConfigError, NotFound
from openclaw_rl.protocols import ReadStore
from openclaw_rl.release.folders import check_adapter, export_version, model_card
from openclaw_rl.release.undo.commands import Commands
from openclaw_rl.types import Json, turn_id
from openclaw_rl.views.rows import open_rows
from openclaw_rl.views.sessions import find_session, find_turn
from openclaw_rl.views.versions import find_version
from openclaw_rl.wiring.commands import make_commands
from openclaw_rl.wiring.foundation import open_store


def undo(config: Config, name: str, *, as_json: bool) -> None:
    """Takes back what a turn taught. `name` is SESSION.INDEX, or the start of a session and an index."""
    session, index = find_turn(open_rows(config.store), name)
    turn = turn_id(session.id, index)
    told = asyncio.run(_command(config, "/undo", {"turn": turn}, lambda commands: commands.undo(turn)))
    if as_json:
        print_json(told)
        return
    console = make_console("stderr")
    if told["removed"] == 0:
        console.print(Text(f"Nothing had been learned from {turn}, and nothing will be."))
    else:
        console.print(Text(f"{turn} teaches nothing any more."))
    console.print(Text(_answers(told)))
    if told["returned"]:
        console.print(Text(_rebuilding(told["returned"])))


def forget(config: Config, name: str, *, is_user: bool, confirm: Callable[[str], None], as_json: bool) -> None:
    """Deletes a session, or all of a user, with everything that was learned from it; `confirm` is told what."""
    rows = open_rows(config.store)
    body = _whose(name, rows, is_user=is_user)
    confirm(f"session {body['session']}" if "session" in body else f"everything that {body['user']} ever said")
    told = asyncio.run(_command(config, "/forget", body, lambda commands: commands.forget(**body)))
    if as_json:
        print_json(told)
        return
    console = make_console("stderr")
    what = f"session {body['session']}" if "session" in body else f"all that {body['user']} said"
    console.print(Text(f"Forgotten: {what} ({told['sessions']} conversation{'s' if told['sessions'] != 1 else ''})."))
    if told["deleted"]:
        console.print(Text(f"Versions deleted with it: {', '.join(told['deleted'])}. {_answers(told)}"))
    if told["returned"]:
        console.print(Text(_rebuilding(told["returned"])))
    if "user" in body:
        console.print("Keys stay; `openclaw-rl keys revoke` takes them away.", style="dim", markup=False)
    if told["erased"] and config.store.url is not None:
        note = "No row of it is left. PostgreSQL overwrites what it held in time; its log and backups keep it longer."
        console.print(Text(note))
    elif told["erased"]:
        console.print(Text("Nothing of it is on the disk any more."))
    else:
        note = "Another program reads the store: traces stay in it until that ends; `openclaw-rl up` then erases them."
        console.print(note, style="bold yellow", markup=False)


def export(config: Config, name: str, target: Path, *, user: str | None) -> None:
    """Writes a version as a PEFT folder with a model card."""
    rows = open_rows(config.store)
    version = find_version(rows, name, user=user).version
    mine = rows.versions(version.line, every_model=True)
    steps = {step.number: step for step in rows.steps(version.line)}
    base_model = version.base_model or config.model.name
    card = model_card(version, mine, steps, base_model=base_model)
    export_version(version, target, base_model=base_model, card=card)
    make_console("stderr").print(Text(f"{version.label} is in {target}."))


def take_in(config: Config, folder: Path, *, user: str, as_json: bool) -> None:
    """Brings an adapter in as a candidate of a user's line."""
    check_line_name(user)
    check_adapter(folder)
    folder = folder.absolute()
    body: dict[str, Json] = {"folder": str(folder), "line": user}
    told = asyncio.run(_command(config, "/import", body, lambda commands: commands.take_in(folder, user)))
    if as_json:
        print_json(told)
        return
    said = {
        "live": "passed its gate and answers from now on.",
        "candidate": "waits for its gate; `openclaw-rl up` puts it through.",
        "no_effect": "changes nothing that can be measured, so it does not answer; the next step builds on it.",
    }
    what = said.get(told["state"], f"is {told['state'].replace('_', ' ')}: {told['reason']}")
    make_console("stderr").print(Text(f"{told['version']} {what}"))


def _whose(name: str, rows: ReadStore, *, is_user: bool) -> dict[str, str]:
    """A session by its name, a user by the whole name, or a session by its start; what is both is the session."""
    sessions = [summary.session for summary in rows.sessions()]
    users = {session.user for session in sessions} | {version.line for version in rows.versions(every_model=True)}
    is_session = any(name in (session.id, session.key) for session in sessions)
    if is_user and name not in users:
        raise NotFound(f"nothing of a user {name!r} is stored; there is something of {', '.join(sorted(users))}")
    if is_user or (name in users and not is_session):
        return {"user": name}
    session, index = find_session(rows, name)
    if index is not None:
        raise ConfigError(f"{name} is a turn; `openclaw-rl undo {name}` takes it back, `forget {session.id}` all of it")
    return {"session": session.id}


async def _command(
    config: Config,
    path: str,
    body: Mapping[str, Json],
    alone: Callable[[Commands], Awaitable[dict[str, Json]]],
) -> Any:
    answer = await ask_server(config.store, "POST", path, dict(body), timeout_s=None)
    if answer is not None:
        return answer
    async with await open_store(config.store) as store:
        return await alone(make_commands(config, store))


def _answers(told: Mapping[str, Any]) -> str:
    if told["answers"] == told["answered"]:
        return f"{told['answers']} answers as before."
    return f"{told['answers']} answers from now on, instead of {told['answered']}."


def _rebuilding(count: int) -> str:
    plural = "sample waits" if count == 1 else "samples wait"
    return f"{count} other {plural} to be learned from again, in the background; `openclaw-rl versions` shows how far."
