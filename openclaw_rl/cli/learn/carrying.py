"""`openclaw-rl rollouts export` and `rollouts import`: conversations carried away as files, and brought in.

The store is only read for the one; the other takes the writer's lock, which a running server has.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from rich.text import Text

from openclaw_rl.cli.learn.importing import Imported, import_rollouts, read_rollouts
from openclaw_rl.cli.learn.trajectory_files import Exported, write_trajectories
from openclaw_rl.cli.screen import make_console, print_json
from openclaw_rl.config import Config
from openclaw_rl.views.rows import open_rows
from openclaw_rl.views.sessions import find_session
from openclaw_rl.wiring.foundation import open_store


def run_export(
    config: Config, folder: Path, *, form: str, session: str | None, user: str | None, as_json: bool
) -> None:
    rows = open_rows(config.store)
    if session is None:
        sessions = [summary.session for summary in rows.sessions(user)]
    else:
        sessions = [find_session(rows, session)[0]]
    exported = write_trajectories(rows, sessions, folder, form=form)
    if as_json:
        print_json(exported.to_json())
    else:
        make_console("stderr").print(_exported_text(exported, folder))


def run_import(config: Config, path: Path, *, as_json: bool) -> None:
    imported = asyncio.run(_import(config, path))
    if as_json:
        print_json(imported.to_json())
    else:
        make_console("stderr").print(_imported_text(imported))


async def _import(config: Config, path: Path) -> Imported:
    rollouts = read_rollouts(path)
    async with await open_store(config.store) as store:
        return await import_rollouts(store, rollouts)


def _exported_text(exported: Exported, folder: Path) -> Text:
    told = f"{exported.turns} turns of {exported.sessions} sessions are in {folder}, in {exported.files} files."
    if exported.without_ids:
        told += f" {exported.without_ids} more have no exact ids, which a training trace is made of; atif has them too."
    if exported.private:
        told += f" {exported.private} were kept private."
    return Text(told)


def _imported_text(imported: Imported) -> Text:
    told = f"{imported.read} turns read: {imported.new} new, {imported.known} known, {imported.refused} refused; "
    return Text(
        f"{told}{imported.not_exact} of them without exact ids of a version of ours: those are not learned from."
    )
