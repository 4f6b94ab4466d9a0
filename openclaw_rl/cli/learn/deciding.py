"""`openclaw-rl accept`, `reject` and `hint`: what a person decides about a lesson.

Through the running server where there is one; else under the writer's lock, and the next `up` judges it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rich.text import Text

from openclaw_rl.cli.admin import ask_server
from openclaw_rl.cli.screen import make_console, print_json
from openclaw_rl.config import Config
from openclaw_rl.dashboard.server.deciding import Decisions
from openclaw_rl.protocols import WholeStore
from openclaw_rl.types import Json, turn_id
from openclaw_rl.views.rows import open_rows
from openclaw_rl.views.sessions import find_turn
from openclaw_rl.wiring.commands import make_commands
from openclaw_rl.wiring.foundation import open_store


def accept(config: Config, name: str, *, as_json: bool) -> None:
    turn = _turn(config, name)
    told = _command(config, "/accept", {"turn": turn}, lambda store: _decisions(config, store).accept_turn(turn))
    _tell(told, f"{turn} is accepted; `openclaw-rl why {turn}` shows what becomes of it.", as_json)


def give_hint(config: Config, name: str, hint: str, *, as_json: bool) -> None:
    turn = _turn(config, name)
    body: dict[str, Json] = {"turn": turn, "hint": hint}
    told = _command(config, "/hint", body, lambda store: _decisions(config, store).hint_turn(turn, hint))
    _tell(told, f"That is the hint of {turn} now; `openclaw-rl why {turn}` shows what becomes of it.", as_json)


def reject(config: Config, name: str, *, as_json: bool) -> None:
    turn = _turn(config, name)
    told = _command(config, "/reject", {"turn": turn}, lambda store: make_commands(config, store).reject(turn))
    _tell(told, f"{turn} is no lesson. {told['answers']} answers.", as_json)


def _turn(config: Config, name: str) -> str:
    session, index = find_turn(open_rows(config.store), name)
    return turn_id(session.id, index)


def _decisions(config: Config, store: WholeStore) -> Decisions:
    return Decisions(open_rows(config.store), store.put_feedback)


def _command(
    config: Config,
    path: str,
    body: Mapping[str, Json],
    alone: Callable[[WholeStore], Awaitable[Mapping[str, Json]]],
) -> Mapping[str, Any]:
    async def run() -> Any:
        answer = await ask_server(config.store, "POST", path, dict(body), timeout_s=None)
        if answer is not None:
            return answer
        async with await open_store(config.store) as store:
            return await alone(store)

    told: Mapping[str, Any] = asyncio.run(run())
    return told


def _tell(told: Mapping[str, Any], words: str, as_json: bool) -> None:
    if as_json:
        print_json(dict(told))
    else:
        make_console("stderr").print(Text(words))
